-- Leases of verifications.

-- Variables of leased_charge: how often it charges; whether a limit has too little room; when the first slice ends, and
-- when the oldest units of a window expire; the durations of the limits, in the order of charge_results.
local lease_times, lease_exceeds, lease_slice_ends, lease_units_expire
local lease_durations = {}

-- Replaces window_charge: charges `lease_times` decisions at once, and checks that the limit has room for
-- `this_session.required` times as many. With `lease_times` 0 it only checks.
local function leased_charge(text, first, last, now, limit, duration, cost, may_charge)
  local units = cost * lease_times
  local total, first_live, oldest, kept_until, suffix =
    quota_log.charge_of(duration)(text, first, last, now, limit, duration, units, may_charge and units > 0)
  -- A cost of 0 leaves a window empty: its reset would change with the first charge by another request.
  if not first_live or total + units * this_session.required > limit then lease_exceeds = true end
  lease_slice_ends = math.min(lease_slice_ends, window_log.slice_end(now, limit, duration))
  if first_live then lease_units_expire = math.min(lease_units_expire, window_log.reset(oldest, duration)) end
  lease_durations[charge_count + 1] = duration
  return total, first_live, oldest, kept_until, suffix
end

-- The windows of the key and of its identity that leased_charge charged: each LEASED_WINDOW.
local function charged_windows(requested)
  local of_key, of_identity = {}, {}
  local key_limits = read_limits(key_packed, key_limits_at, key_flags.tail_bytes)
  local identity_limits = key_identity and read_limits(key_identity, IDENTITY_LIMITS_AT, 0)
  for index = 1, charge_count do
    local place, windows, name = charge_results[RESULT_FIELDS * (index - 1) + RESULT_PLACE], of_key, nil
    if place > PLACES_OF_REQUEST then
      name = requested[place - PLACES_OF_REQUEST][1]
    elseif place > PLACES_OF_IDENTITY then
      name, windows = identity_limits[place - PLACES_OF_IDENTITY].name, of_identity
    else
      name = key_limits[place].name
    end
    windows[#windows + 1] = struct.pack(LEASED_WINDOW, lease_durations[index], charge_costs[place], #name, name)
  end
  return table.concat(of_key), table.concat(of_identity)
end

-- Charges `wanted` more decisions in memory; or the largest half, quarter, … of them that leaves enough for others.
-- Returns their number, which are the units of the lease; 0 for fewer than `least`.
local function charge_units(cost, requested, wanted, balance, least)
  local units = wanted
  while units >= least do
    lease_times, lease_exceeds = units, key_flags.limited and balance < this_session.required * units * cost
    lease_slice_ends, lease_units_expire = NEVER, NEVER
    -- A charge is not written before the end, so a smaller one may follow.
    if not lease_exceeds and check_limits_by(leased_charge, requested) and not lease_exceeds then break end
    units = math.floor(units / 2)
  end
  return units >= least and units or 0
end

-- Charges units for `wanted` more decisions, or for as many as leave enough for others, and notes them with the key and
-- its identity. Returns their number and the term of the lease; 0, 0 for none.
local function lease_units(cost, requested, wanted, number, ends)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  local leases, count, paused_until, ended = lease_list.recent(noted_leases.of_key(), call_now)
  local leases_of_identity, identity_count, identity_paused_until, ended_of_identity =
    lease_list.recent(noted_leases.of_identity(), call_now)
  if paused_until + identity_paused_until > 0 or count + identity_count >= LEASES_MAX then return 0, 0 end

  -- A long lease if there is much room, else a short one.
  this_session.required = this_session.long_left
  local units = this_session.has_long() and charge_units(cost, requested, wanted, balance, math.ceil(wanted / 2)) or 0
  local is_long = units > 0
  if not is_long and this_session.is_hot then
    this_session.required = this_session.left
    units = charge_units(cost, requested, wanted, balance, 1)
  end
  if units == 0 then return 0, 0 end
  local term = this_session.term_until(math.min(ends, lease_slice_ends, lease_units_expire), is_long)
  if term == 0 then return 0, 0 end

  local limited = key_flags.limited
  local charged = limited and units * cost or 0
  local state = key_state(true, balance - charged, refill_due, last_used, hour, valid, refusals, spent)
  local new_identity = key_identity and identity_state()
  local of_key, of_identity = charged_windows(requested)
  of_key = struct.pack(LEASED_CREDITS, limited and refill_due or NEVER) .. of_key
  local function noted(what) return struct.pack(NOTED_LEASE, this_session.id, number, call_now, 0, units, #what, what) end
  redis.call('HSET', key_name, 'state', state, 'leased', ended .. leases .. noted(of_key))
  if new_identity then
    local identity = name_of.identity_record(call_workspace, key_external_id)
    leases_of_identity = ended_of_identity .. leases_of_identity .. noted(of_identity)
    redis.call('HSET', identity, 'state', new_identity, 'leased', leases_of_identity)
  end
  adhoc_limits.write()
  return units, term
end

-- The time until which an outcome of the key holds if nothing is changed: until it or its root key expires, its balance
-- is refilled, an exceeded limit has room, or the figures of its limits in the answer change. Not beyond the hour, in
-- which all decisions of a lease are counted.
local function end_of(outcome, root, requested)
  local ends = root.expires or NEVER
  if outcome == NOT_FOUND then return ends end
  ends = math.min(ends, (call_hour + 1) * HOUR_MS)
  ends = precheck_until(ends)
  local _, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled and refill_due > call_now then ends = math.min(ends, refill_due) end
  local _, _, holds_due = loaded_key.extension()
  ends = math.min(ends, holds_due)
  if outcome == RATE_LIMITED then
    for index = 0, charge_count - 1 do
      local at = RESULT_FIELDS * index
      if charge_results[at + RESULT_EXCEEDED] == 1 then ends = math.min(ends, charge_results[at + RESULT_RESET]) end
    end
  end
  if outcome == RATE_LIMITED or outcome == USAGE_EXCEEDED then
    lease_times, lease_slice_ends, lease_units_expire = 0, NEVER, NEVER
    check_limits_by(leased_charge, requested)
    ends = math.min(ends, lease_units_expire)
  end
  return ends
end

-- When the first temporary limit of the key or its identity ends; NEVER without one. Nil if a concurrency limit may
-- take part in a verification of the key.
local function first_end(requested)
  local named, ends = {}, NEVER
  for _, wanted in ipairs(requested or {}) do
    named[wanted[1]] = true
  end
  local function has_slots(packed, limits_at, tail_bytes)
    for _, l in ipairs(read_limits(packed, limits_at, tail_bytes)) do
      if l.type == 1 and (l.autoApply == 1 or named[l.name]) then return true end
      ends = math.min(ends, l.ends or NEVER)
    end
    return false
  end
  if has_slots(key_packed, key_limits_at, key_flags.tail_bytes) then return nil end
  if key_identity and has_slots(key_identity, IDENTITY_LIMITS_AT, 0) then return nil end
  return ends
end

-- Grants a lease of a verification that was just decided; `position` and `last` are those of its VERIFY_ITEM. Returns
-- its units and its term, see GRANTED. A restricted key is not leased, because its outcome depends on the address of
-- the request. So a lease may repeat a decision for any address. Nor is a key whose identity has a balance, one that
-- shares its balance with its predecessors, nor a verification in which a concurrency limit takes part, because its
-- slots are free again at any time.
local function lease_verification(outcome, position, last, root, wanted, number)
  local _, cost, _, _, _, fields = struct.unpack(VERIFY_ITEM, call_items, position)
  local is_found = outcome ~= NOT_FOUND
  if is_found and (restriction.is_restricted() or identity_credits.is_shared()) then return 0, 0 end
  if is_found and key_flags.extended and loaded_key.is_shared() then return 0, 0 end
  local request = fields <= last and read_request(call_items, fields, last)
  local requested = request and request.limits
  local is_checked = outcome == VALID or outcome == RATE_LIMITED or outcome == USAGE_EXCEEDED
  local limits_end = NEVER
  -- The limits of an identity are in every answer but NOT_FOUND.
  if is_checked or outcome ~= NOT_FOUND and key_identity and limit_ends.is_flagged(key_identity) then
    limits_end = first_end(requested)
    if not limits_end then return 0, 0 end
  end
  local ends = math.min(end_of(outcome, root, requested), limits_end)
  if outcome == RATE_LIMITED or outcome == USAGE_EXCEEDED then
    -- Units that are overdue may be returned after all.
    local leases = lease_list.recent(noted_leases.of_key() .. noted_leases.of_identity(), call_now)
    if leases ~= '' then return 0, 0 end
    -- A settlement may return what is held.
    local _, _, holds_due = loaded_key.extension()
    if holds_due ~= NEVER then return 0, 0 end
    local identity = key_identity and name_of.identity_record(call_workspace, key_external_id)
    if identity and hold_times.identity_until(identity) > call_now then return 0, 0 end
  end
  -- A refusal for lack of units is not leased for long, because these may be given back.
  if outcome ~= VALID then return 0, this_session.term_until(ends, not is_checked) end
  if charge_count == 0 and not key_flags.limited then return 0, this_session.term_until(ends, true) end
  if key_flags.limited and this_session.credits == 0 then return 0, 0 end
  return lease_units(cost, requested, wanted, number, ends)
end
