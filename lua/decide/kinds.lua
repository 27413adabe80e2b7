-- The functions of each kind of decision that leases call. The files of leases contain no more about the kinds.

-- By the kind of an item:
--   decide(position, last, root_index, hold)
--                                        decides it; returns the packed answer and a snapshot, or AGAIN and the hold of
--                                        the next time (again.lua)
--   passed                               the outcome that charges
--   lease(outcome, position, last, root, wanted, number)
--                                        grants a lease of the decision that was just made; returns units and term
--   awaited()                            marks the recalled leases of the decision that was just made as overdue
--   settle(number, count, outcome, used, used_at, subject)
--                                        counts what a lease decided, and gives back what it did not use
local decision_kinds = {
  [KIND_VERIFY] = {
    decide = verify,
    passed = VALID,
    lease = lease_verification,
    awaited = function() noted_leases.recall_of_key(true) end,
    settle = settle_verifications,
  },
  -- Not leased. It is sent within a lease item only after a refusal that leases may change.
  [KIND_HOLD] = {
    decide = verify_with_hold,
    passed = VALID,
    awaited = function() noted_leases.recall_of_key(true) end,
  },
  [KIND_LIMIT] = {
    decide = ratelimit,
    passed = LIMIT_PASSED,
    lease = check_leases.lease,
    awaited = function() limit_checks.recall(item_checks, true) end,
    settle = check_leases.settle,
  },
}

-- The kind of a decision with this outcome: each kind has the outcomes from `passed` up to the next kind's.
local function kind_of_outcome(outcome) return decision_kinds[outcome < LIMIT_PASSED and KIND_VERIFY or KIND_LIMIT] end
