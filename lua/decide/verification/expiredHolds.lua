-- Ends the holds of the key that was loaded which have expired, before anything else is decided about it.

-- Limit of the expired holds that one decision settles, in addition to that of their bytes.
local SETTLED_AT_ONCE = 250

-- Ends a hold that has expired: gives it back or charges it, as its request demanded.
local function expire(settling, h, hold)
  if hold.state == hold_format.RELEASED then return NEVER end
  local is_charged = hold.state == hold_format.CHARGES
  held_charges.settle_windows(hold, is_charged)
  local account = held_charges.settle_one(settling, hold, is_charged and hold.cost or 0)
  if is_charged then
    local balance = key_flags.limited and settling.balance or nil
    local settled = { suffix = hold.suffix, late = false, cost = hold.cost, balance = balance, windows = hold.windows }
    settled.shared, settled.packed = account and account.balance, settled_holds.pack(hold.windows)
    settled_holds.note(settling, h, call_hour, settled)
    return NEVER
  end
  -- No process examined it in time.
  if hold.due + hold_list.LATE_MS <= call_now then return NEVER end
  return hold_list.release(h, hold, math.min(hold.due, call_now))
end

-- Removes the fields of holds from a key that has none, or keeps them for some time.
local function forget(h)
  local kept_until = hold_list.kept_until(h, call_now)
  if kept_until > call_now then
    loaded_key.set_due(kept_until)
    redis.call('HSET', key_name, 'state', key_packed)
    return hold_times.queue(kept_until)
  end
  local moved = { { hour = h.noted_hour, notes = h.notes } }
  after_charge(settled_holds.move, call_workspace, key24(), call_hour, moved)
  hold_list.remove(h)
  after_charge(redis.call, 'ZREM', name_of.hold_queue(call_workspace), hold_times.digest())
  loaded_key.set_due(NEVER)
  redis.call('HSET', key_name, 'state', key_packed)
end

-- Settles the holds of the key that have expired.
local function apply_due_holds()
  local h = hold_list.read(key_name)
  if h.count == 0 then return forget(h) end
  local due, next_due = hold_list.take_due(h, call_now, SETTLED_AT_ONCE)
  local settling = held_charges.begin()
  for _, hold in ipairs(due) do
    next_due = math.min(next_due, expire(settling, h, hold))
  end
  if h.count == 0 then next_due = hold_list.kept_until(h, call_now) end
  held_charges.write(settling, h, next_due)
  add_work(20 * #due + h.count / 2)
end

-- Whether a key with this time for its holds has to be examined now: the time has come, or was set while the clock was
-- ahead.
local function are_holds_due(holds_due)
  return holds_due <= call_now or holds_due ~= NEVER and holds_due > call_now + HOLDS_DUE_WITHIN
end
