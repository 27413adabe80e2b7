-- Refills of balances of keys and identities, for the scripts that manage them.

-- The balance of a state is set, or refilled: what is held of the former one does not come back to it.
local function renumber_balance(s)
  if s.extended then s.balances = (s.balances + 1) % 65536 end
end

-- Applies a refill that is due: the balance is set to the amount, even if it is higher. Returns whether one was due.
local function apply_refill(s, now)
  if not s.refilled or now < s.refill_due then return false end
  renumber_balance(s)
  s.balance, s.refill_due = s.refill_amount, refill_after(now, s.refill_day)
  return true
end

-- Sets the refill of a state or of the balance of an identity: {interval, amount, refillDay}, or nil for none.
local function set_refill(state, refill, now)
  state.refilled = refill ~= nil
  state.refill_amount, state.refill_day, state.refill_due = 0, 0, 0
  if refill then
    state.refill_amount = refill.amount
    state.refill_day = refill.interval == 'monthly' and (refill.refillDay or 1) or 0
    state.refill_due = refill_after(now, state.refill_day)
  end
end
