-- Leases: a server may repeat a decision by itself for a short time. Units that it may charge are charged here in
-- advance, and what it did not use is given back. src/decide/leases/leases.ts describes the protocol.

-- Grants a lease of a decision that was just made; `position` and `last` are those of its item. Returns its units and
-- its term, see GRANTED.
local function grant_lease(kind, outcome, position, last, root, wanted, number)
  this_session.register()
  -- A request whose number is not new was sent before the connection was lost. The session no longer waits for it.
  if not this_session.may_grant or number <= this_session.granted then return 0, 0 end
  local units, term = kind.lease(outcome, position, last, root, wanted, number)
  add_work(20)
  if term == 0 then return 0, 0 end
  this_session.grants, this_session.granted = true, number
  this_session.granted_term = math.max(this_session.granted_term, this_session.whole)
  return units, term
end

-- Decides an item within a lease item by its own kind, and grants a lease of the decision. Units that recalled leases
-- have not returned count as spent.
local function lease(position, last, root_index, hold)
  local item_kind, wanted, hot, number, recalled
  item_kind, wanted, hot, number, recalled, position = struct.unpack(LEASE_ITEM, call_items, position)
  local kind = decision_kinds[item_kind]
  for name in string.gmatch(recalled, '[^,]+') do
    this_session.recalled[name] = true
  end
  local answer, snapshot = kind.decide(position, last, root_index, hold)
  if answer == AGAIN then return AGAIN, snapshot end
  local outcome, units, term = string.byte(answer) % SNAPSHOT_BEFORE, 0, 0
  -- Recalled leases are marked even if the request is not refused, so that the next refusal does not wait for them
  -- again.
  if recalled ~= '' and outcome % WITH_HOLD == kind.passed then after_charge(kind.awaited) end
  if wanted > 0 and outcome <= LIMIT_BLOCKED then
    this_session.is_hot = hot == 1
    units, term = after_charge(grant_lease, kind, outcome, position, last, call_roots[root_index], wanted, number)
  end
  local cut, long = 0, 0
  if not term then
    units, term = 0, 0
  elseif term > 0 then
    cut, long = this_session.cut, this_session.long
  end
  return struct.pack(GRANTED, units, term, cut, long) .. answer, snapshot
end

-- Settles the tallies of a session, once: a settlement that is sent again changes nothing.
local function settle(position)
  local settlement, tallies
  settlement, tallies, position = struct.unpack(SETTLE_ITEM, call_items, position)
  this_session.register()
  if settlement > this_session.settled then
    this_session.settled = settlement
    for _ = 1, tallies do
      local number, count, outcome, used, used_at, subject
      number, count, outcome, used, used_at, subject, position = struct.unpack(TALLY, call_items, position)
      -- The clock may have stepped back since.
      -- One that fails is not settled again, and the others are.
      after_charge(kind_of_outcome(outcome).settle, number, count, outcome, used, math.min(used_at, call_now), subject)
    end
    add_work(8 * tallies)
  end
  return struct.pack('>B', LEASE_DONE)
end
