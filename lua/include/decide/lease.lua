-- Leases: a server may repeat a decision by itself for a short time. Units that it may charge are charged here in advance, and
-- what it did not use is given back. src/store/leases/leases.ts describes the protocol.
--
-- The registry of a workspace names the sessions (servers) that may hold leases: a change waits for them.

-- @include "include/counters"
-- @include "include/decide/call"
-- @include "include/decide/charge"
-- @include "include/decide/key"
-- @include "include/decide/leased"
-- @include "include/decide/snapshot"
-- @include "include/decide/tags"
-- @include "include/decide/totals"
-- @include "include/decide/verify"
-- @include "include/names"
-- @include "include/usage"
-- @include "include/window"

-- Limits of the leases that a record notes, and of the sessions of a workspace.
local LEASES_MAX, SESSIONS_MAX = 32, 64
-- A shorter lease would end before its answer arrives.
local TERM_MIN = 4
-- The milliseconds until `ends`, by a clock that may be 1 % slower than that of Redis, whose time is rounded down.
local function term_until(ends) return math.floor((ends - call_now - 1) / 1.01) end
-- A lease of units leaves room for this many of its size for each session, so that no session is refused while another one has
-- units left.
local LEASES_LEFT = 4

-- The session of this call (LEASE_SESSION), nil for none; its entry in the registry, and the number of entries, once they were
-- read; and whether the call granted a lease. Only the functions in this file change these variables.
local session_id, session_term, session_credits, session_leaves
local session_read, session_granted, session_settled, session_count
local session_grants

-- `packed` is a LEASE_SESSION, or '' for a batch without leases.
local function begin_session(packed)
  session_id, session_read, session_grants = nil, false, false
  if packed == '' then return end
  session_id, session_term, session_credits, session_leaves = struct.unpack(LEASE_SESSION, packed)
end

-- Reads the entry of the session in the registry, and how many sessions may hold leases, once per call.
local function register()
  if session_read then return end
  session_read, session_granted, session_settled, session_count = true, 0, 0, 1
  local entries, inactive = redis.call('HGETALL', registry(call_workspace)), {}
  for index = 1, #entries, 2 do
    local id = entries[index]
    local term, granted, settled = struct.unpack(REGISTERED, entries[index + 1])
    if id == session_id then
      session_granted, session_settled = granted, settled
    elseif term > 0 then
      session_count = session_count + 1
    else
      inactive[#inactive + 1] = id
    end
  end
  -- An inactive session may still send a settlement again, so its entry stays while there is room.
  if #entries >= 2 * SESSIONS_MAX and #inactive > 0 then
    redis.call('HDEL', registry(call_workspace), unpack(inactive))
  end
end

-- Writes the entry of the session, if it was read.
local function end_session()
  if not session_id then return end
  if session_leaves == 1 and not session_grants then
    redis.call('HDEL', registry(call_workspace), session_id)
  elseif session_read and session_granted + session_settled > 0 then
    local entry = struct.pack(REGISTERED, session_term, session_granted, session_settled)
    redis.call('HSET', registry(call_workspace), session_id, entry)
  end
end

-- Of leased_charge: how often it charges; the milliseconds until the first slice ends; whether a limit has no room for it.
local lease_times, lease_slice_left, lease_exceeds

-- In the place of window_charge: charges `lease_times` decisions at once.
local function leased_charge(text, first, last, now, limit, duration, cost, may_charge)
  local slice = window_slice(limit, duration)
  lease_slice_left = math.min(lease_slice_left, slice - now % slice)
  local total, first_live, oldest, kept_until, suffix =
    window_charge(text, first, last, now, limit, duration, cost * lease_times, may_charge)
  if not total or total + cost * lease_times > limit then lease_exceeds = true end
  return total, first_live, oldest, kept_until, suffix
end

-- A fingerprint of the limits of the key and its identity.
local function fingerprint_of_limits()
  local limits = configured_limits(key_packed, key_limits_at, KEY_TAIL_LENGTH)
  if key_identity then limits = limits .. configured_limits(key_identity, IDENTITY_LIMITS_AT, 0) end
  return string.sub(redis.sha1hex(limits), 1, 8)
end

-- Charges units for `wanted` more decisions, or for as many as leave enough for others. Returns their number and the term of the
-- lease; 0, 0 for none.
local function lease_units(cost, requested, wanted, number, term)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  local leases, leases_of_identity = recent_leases(key_leases()), recent_leases(identity_leases())
  if #leases + #leases_of_identity >= LEASES_MAX * LEASE_ENTRY_LENGTH then return 0, 0 end

  local units, limited = wanted, key_flags.limited
  lease_slice_left = term
  while units > 0 do
    lease_times = LEASES_LEFT * session_count * units
    lease_exceeds = limited and balance < lease_times * cost
    if not lease_exceeds and check_limits_by(leased_charge, requested, false) and not lease_exceeds then break end
    units = math.floor(units / 2)
  end
  term = math.min(term, term_until(call_now + lease_slice_left))
  if units == 0 or term < TERM_MIN then return 0, 0 end

  lease_times = units
  check_limits_by(leased_charge, requested, true)
  local charged = limited and units * cost or 0
  local state = key_state(true, balance - charged, refill_due, last_used, hour, valid, refusals, spent)
  local new_identity = key_identity and identity_state()
  local entry = struct.pack(LEASE_ENTRY, session_id, number, call_now, units, refill_due, fingerprint_of_limits())
  redis.call('HSET', key_name, 'state', state, 'leases', leases .. entry)
  if new_identity then
    local identity = identity_record(call_workspace, key_external_id)
    redis.call('HSET', identity, 'state', new_identity, 'leases', leases_of_identity .. entry)
  end
  if charge_counters then write_counters(call_workspace, key24(), charge_counters, call_now) end
  return units, term
end

-- The time for which an outcome of the key holds if nothing is changed: until it or its root key expires, its balance is refilled,
-- or an exceeded limit has room.
local function term_of(outcome, root)
  local ends = call_now + session_term
  if root.expires then ends = math.min(ends, root.expires) end
  if outcome == NOT_FOUND then return term_until(ends) end
  if key_expires > call_now then ends = math.min(ends, key_expires) end
  local _, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled and refill_due > call_now then ends = math.min(ends, refill_due) end
  if outcome == RATE_LIMITED then
    for index = 1, charge_count do
      local at = 4 * index - 4
      if charge_results[at + 2] == 1 then ends = math.min(ends, charge_results[at + 4]) end
    end
  end
  return term_until(ends)
end

-- Grants a lease of a decision that was just made; `position` and `last` are those of its VERIFY_ITEM. Returns its units and its
-- term, see GRANTED.
local function grant(outcome, position, last, root, wanted, number)
  local digest, cost, _, _, _, fields = struct.unpack(VERIFY_ITEM, call_items, position)
  register()
  -- The state as the verification has written it.
  if session_count > SESSIONS_MAX or outcome ~= NOT_FOUND and not read_key(digest, true) then return 0, 0 end
  -- It was sent before the connection was lost, and the session no longer waits for it.
  if number <= session_granted then return 0, 0 end
  local units, term = 0, term_of(outcome, root)
  if outcome == VALID and (charge_count > 0 or key_flags.limited) then
    if key_flags.limited and session_credits == 0 then return 0, 0 end
    local request = fields <= last and request_of(string.sub(call_items, fields, last))
    units, term = lease_units(cost, request and request.limits, wanted, number, term)
    add_work(20)
  end
  if term < TERM_MIN then return 0, 0 end
  session_grants, session_granted = true, math.max(session_granted, number)
  return units, term
end

-- Decides a verification as an item of its own kind, and grants a lease of the decision.
local function lease(position, last, root_index)
  local wanted, number
  wanted, number, position = struct.unpack(LEASE_ITEM, call_items, position)
  local answer, snapshot = verify(position, last, root_index)
  if not answer then return nil end
  local outcome, units, term = string.byte(answer) % SNAPSHOT_BEFORE, 0, 0
  if outcome <= NOT_FOUND and session_id then
    units, term = grant(outcome, position, last, call_roots[root_index], wanted, number)
  end
  return struct.pack(GRANTED, units, term) .. answer, snapshot
end

-- The time at which the units that leased_return gives back were charged.
local return_at

-- In the place of window_charge: gives back the units of `lease_times` decisions, in the slice in which they were charged. Gives
-- back nothing where that slice no longer exists.
local function leased_return(text, first, last, now, limit, duration, cost)
  if last < first then return -cost, nil, now end
  local slice = window_slice(limit, duration)
  local kept_until, suffix = window_return(text, first, last, return_at - return_at % slice + slice, cost * lease_times)
  return -cost, nil, now, kept_until, suffix
end

-- Gives back the units that the lease at `lease_at` of `leases` did not use, in memory. Returns whether windows change, and the
-- balance.
local function give_back(leases, lease_at, used, requested, cost)
  local _, _, at, units, refill_due, limits = struct.unpack(LEASE_ENTRY, leases, lease_at)
  local balance, key_refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  lease_times, return_at = units - used, at
  if lease_times <= 0 then return false, balance end
  -- A balance that was refilled since has none of these units.
  if key_flags.limited and key_refill_due == refill_due then balance = balance + lease_times * cost end
  -- Limits that were changed since have none either. After the clock stepped back, windows have other slices.
  local is_changed = limits == fingerprint_of_limits() and at <= call_now
  return is_changed and check_limits_by(leased_return, requested, true), balance
end

-- Counts decisions in the history of the key, because the key was deleted since, has another identity, or another hour began.
local function count_former(external_id, hour, count, outcome, spent)
  local counts = {}
  for number = 1, OUTCOMES_COUNTED do
    counts[number] = number == outcome and count or 0
  end
  counts[OUTCOMES_COUNTED + 1] = spent
  flush_usage(call_workspace, key24(), external_id, struct.pack(USAGE, hour, unpack(counts)), call_retention)
end

-- Removes a lease from the record of a key or an identity.
local function remove_lease(record, leases, session, number)
  local at = find_lease(leases, session, number)
  if at then write_leases(record, without_lease(leases, at)) end
end

-- Writes `count` more decisions to the state of the key, and gives back what a lease of units (`number`) did not use.
local function settle_key(number, count, outcome, used, cost, used_at, requested)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  local leases, leases_of_identity, is_charged, usage = key_leases(), identity_leases(), false, nil
  local at = find_lease(leases, session_id, number)
  if at then
    is_charged, balance = give_back(leases, at, used, requested, cost)
  end
  local is_unlinked = key_external_id ~= key_linked_id
  if count > 0 then
    if hour ~= call_hour or is_unlinked then
      usage = string.sub(key_packed, key_tail_at + KEY_LIVE_LENGTH)
      hour, valid, refusals, spent = call_hour, 0, NO_REFUSALS, 0
    end
    if outcome == VALID then
      valid, last_used = valid + count, math.max(last_used, used_at)
      if key_flags.limited then spent = spent + count * cost end
    else
      refusals = more_refusals(refusals, outcome, count)
    end
  end
  local state = key_state(is_charged, balance, refill_due, last_used, hour, valid, refusals, spent)
  if usage and is_unlinked then state = without_link(state) end
  local new_identity = is_charged and key_identity and identity_state()

  redis.call('HSET', key_name, 'state', state)
  remove_lease(key_name, leases, session_id, number)
  if key_identity then
    local identity = identity_record(call_workspace, key_external_id)
    if new_identity then redis.call('HSET', identity, 'state', new_identity) end
    remove_lease(identity, leases_of_identity, session_id, number)
  end
  if is_charged and charge_counters then write_counters(call_workspace, key24(), charge_counters, call_now) end
  if usage then flush_usage(call_workspace, key24(), key_linked_id, usage, call_retention) end
end

-- Counts decisions in the totals of the API of the key.
local function count_for_api(hour, count, outcome, spent)
  local record = api_usage(call_workspace, key_api8, string.format('%d', hour / 24))
  local field = string.format('%02d', hour % 24) .. outcome
  add_total(record, field, count)
  if spent > 0 then add_total(record, 's' .. field, spent) end
end

-- Counts what a session decided by itself about one key, and gives back what it did not use of a lease. `subject` is a TALLIED_KEY.
local function settle_verifications(number, count, outcome, used, age, subject)
  local digest, cost, external_id, fields = struct.unpack(TALLIED_KEY, subject)
  local is_live = read_key(digest, true)
  if not is_live and redis.call('EXISTS', key_name) == 0 then return end

  local request = fields <= #subject and request_of(string.sub(subject, fields))
  local spent = outcome == VALID and key_flags.limited and count * cost or 0
  local tags = count > 0 and request and request.tags and counted_tags(request.tags, key_api8)
  local used_at = call_now - age
  local hour = math.floor(used_at / HOUR_MS)
  local is_former = not is_live or external_id ~= key_external_id or hour ~= call_hour
  if count > 0 and is_former then count_former(external_id, hour, count, outcome, spent) end
  if is_live then
    settle_key(number, is_former and 0 or count, outcome, used, cost, used_at, request and request.limits)
  end
  if tags then count_tags(tags, key24(), external_id, outcome, spent, count) end
  if count > 0 then count_for_api(hour, count, outcome, spent) end
end

-- Settles the tallies of a session, once: a settlement that is sent again changes nothing.
local function settle(position)
  local settlement, tallies
  settlement, tallies, position = struct.unpack(SETTLE_ITEM, call_items, position)
  register()
  if settlement > session_settled then
    session_settled = settlement
    for _ = 1, tallies do
      local number, count, outcome, used, age, subject
      number, count, outcome, used, age, subject, position = struct.unpack(TALLY, call_items, position)
      settle_verifications(number, count, outcome, used, age, subject)
    end
    add_work(8 * tallies)
  end
  return struct.pack('>B', LEASE_DONE)
end

-- Removes leases of a key and its identity whose sessions did not return them: their units stay charged.
local function forget(position, last)
  local digest, fields = struct.unpack(FORGET_ITEM, call_items, position)
  if read_key(digest, true) then
    for session, number in string.gmatch(string.sub(call_items, fields, last), '(%x+)%.(%d+)') do
      remove_lease(key_name, key_leases(), session, tonumber(number))
      if key_identity then
        local identity = identity_record(call_workspace, key_external_id)
        remove_lease(identity, identity_leases(), session, tonumber(number))
      end
    end
  end
  return struct.pack('>B', LEASE_DONE)
end
