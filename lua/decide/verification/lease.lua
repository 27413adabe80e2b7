-- Leases of verifications.

-- @include "decide/call"
-- @include "decide/verification/charge"
-- @include "decide/verification/key"
-- @include "decide/leased"
-- @include "decide/refusals"
-- @include "decide/session"
-- @include "decide/verification/snapshot"
-- @include "decide/tags"
-- @include "decide/totals"
-- @include "decide/verification/verify"
-- @include "include/names"
-- @include "include/usage"
-- @include "include/window"

-- Variables of leased_charge: how often it charges; the milliseconds until the first slice ends; whether a limit has
-- too little room.
local lease_times, lease_slice_left, lease_exceeds

-- In the place of window_charge: charges `lease_times` decisions at once, of which the limit must have room for
-- `this_session.left` times as many.
local function leased_charge(text, first, last, now, limit, duration, cost, may_charge)
  lease_slice_left = math.min(lease_slice_left, slice_end_at(now, limit, duration) - now)
  local total, first_live, oldest, kept_until, suffix =
    window_charge(text, first, last, now, limit, duration, cost * lease_times, may_charge)
  if not total or total + cost * lease_times * this_session.left > limit then lease_exceeds = true end
  return total, first_live, oldest, kept_until, suffix
end

-- A fingerprint of the limits of the key and its identity.
local function fingerprint_of_limits()
  local limits = configured_limits(key_packed, key_limits_at, KEY_TAIL_LENGTH)
  if key_identity then limits = limits .. configured_limits(key_identity, IDENTITY_LIMITS_AT, 0) end
  return string.sub(redis.sha1hex(limits), 1, 8)
end

-- Charges units for `wanted` more decisions, or for as many as leave enough for others. Returns their number and the
-- term of the lease; 0, 0 for none.
local function lease_units(cost, requested, wanted, number, term)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  local leases, paused_until, ended = noted_leases.recent(noted_leases.of_key(), LEASE_OF_KEY_LENGTH)
  local leases_of_identity, identity_paused_until, ended_of_identity =
    noted_leases.recent(noted_leases.of_identity(), LEASE_OF_KEY_LENGTH)
  if paused_until + identity_paused_until > 0 then return 0, 0 end
  if #leases + #leases_of_identity >= LEASES_MAX * LEASE_OF_KEY_LENGTH then return 0, 0 end

  local units, limited = wanted, key_flags.limited
  lease_slice_left = this_session.term
  while units > 0 do
    lease_times, lease_exceeds = units, limited and balance < this_session.left * units * cost
    -- A charge is not written before the end, so a smaller one may follow.
    if not lease_exceeds and check_limits_by(leased_charge, requested) and not lease_exceeds then break end
    units = math.floor(units / 2)
  end
  term = math.min(term, this_session.term_until(call_now + lease_slice_left))
  if units == 0 or term == 0 then return 0, 0 end

  local charged = limited and units * cost or 0
  local state = key_state(true, balance - charged, refill_due, last_used, hour, valid, refusals, spent)
  local new_identity = key_identity and identity_state()
  local entry =
    struct.pack(LEASE_OF_KEY, this_session.id, number, call_now, 0, units, refill_due, fingerprint_of_limits())
  redis.call('HSET', key_name, 'state', state, 'leases', ended .. leases .. entry)
  if new_identity then
    local identity = name_of.identity_record(call_workspace, key_external_id)
    redis.call('HSET', identity, 'state', new_identity, 'leases', ended_of_identity .. leases_of_identity .. entry)
  end
  write_charged_counters()
  return units, term
end

-- The time for which an outcome of the key holds if nothing is changed: until it or its root key expires, its balance
-- is refilled, or an exceeded limit has room.
local function term_of(outcome, root)
  local ends = root.expires or NEVER
  if outcome == NOT_FOUND then return this_session.term_until(ends) end
  if key_expires > call_now then ends = math.min(ends, key_expires) end
  local _, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled and refill_due > call_now then ends = math.min(ends, refill_due) end
  if outcome == RATE_LIMITED then
    for index = 1, charge_count do
      local at = 4 * index - 4
      if charge_results[at + 2] == 1 then ends = math.min(ends, charge_results[at + 4]) end
    end
  end
  return this_session.term_until(ends)
end

-- Grants a lease of a verification that was just decided; `position` and `last` are those of its VERIFY_ITEM. Returns
-- its units and its term, see GRANTED.
local function lease_verification(outcome, position, last, root, wanted, number)
  local digest, cost, _, _, _, fields = struct.unpack(VERIFY_ITEM, call_items, position)
  -- What verify wrote is read again only if the fields of the state have other positions, as the link of the key was
  -- removed.
  if outcome ~= NOT_FOUND and key_external_id ~= key_linked_id then read_key(digest, true) end
  local term = term_of(outcome, root)
  if outcome == RATE_LIMITED or outcome == USAGE_EXCEEDED then
    -- Units that are overdue may be returned after all.
    local leases = noted_leases.recent(noted_leases.of_key() .. noted_leases.of_identity(), LEASE_OF_KEY_LENGTH)
    if leases ~= '' then return 0, 0 end
  end
  if outcome ~= VALID or charge_count == 0 and not key_flags.limited then return 0, term end
  if key_flags.limited and this_session.credits == 0 then return 0, 0 end
  local request = fields <= last and request_of(string.sub(call_items, fields, last))
  return lease_units(cost, request and request.limits, wanted, number, term)
end

-- The time at which the units that leased_return gives back were charged.
local return_at

-- In the place of window_charge: gives back the units of `lease_times` decisions, in the slice in which they were
-- charged. Gives back nothing where that slice no longer exists.
local function leased_return(text, first, last, now, limit, duration, cost)
  if last < first then return -cost, nil, now end
  -- After the clock stepped back, units are charged in a slice that ends up to a slice later (repaired_window).
  local earliest, latest = slice_end_at(return_at, limit, duration), return_at + duration / 64
  local kept_until, suffix = window_return(text, first, last, earliest, latest, cost * lease_times)
  return -cost, nil, now, kept_until, suffix
end

-- Gives back the units that the lease at `lease_at` of `leases` did not use, in memory. Returns whether windows change,
-- and the balance.
local function give_back(leases, lease_at, used, requested, cost)
  local _, _, at, _, units, refill_due, limits = struct.unpack(LEASE_OF_KEY, leases, lease_at)
  local balance, key_refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  lease_times, return_at = units - used, at
  if lease_times <= 0 then return false, balance end
  -- A balance that was refilled since has none of these units.
  if key_flags.limited and key_refill_due == refill_due then balance = balance + lease_times * cost end
  -- Limits that were changed since have none either. After the clock stepped back, windows have other slices.
  local is_changed = limits == fingerprint_of_limits() and at <= call_now
  return is_changed and check_limits_by(leased_return, requested), balance
end

-- Counts decisions in the history of the key, because the key was deleted since, has another identity, or another hour
-- began.
local function count_former(external_id, hour, count, outcome, spent)
  local counts = {}
  for number = 1, OUTCOMES_COUNTED do
    counts[number] = number == outcome and count or 0
  end
  counts[OUTCOMES_COUNTED + 1] = spent
  flush_usage(call_workspace, key24(), external_id, struct.pack(USAGE, hour, unpack(counts)), call_settings.retention)
  -- The state of the key may have no count of that day.
  add_used(call_workspace, key24(), hour, call_settings.retention)
end

-- Writes `count` more decisions to the state of the key, and gives back what a lease of units (`number`) did not use.
-- Returns whether they are the first refusals of the hour with this outcome.
local function settle_key(number, count, outcome, used, cost, used_at, requested)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  local is_charged, at, leases, other_leases, other_leases_of_identity, usage = false, nil, nil, nil, nil, nil
  local is_first = false
  if number > 0 then
    leases = noted_leases.of_key()
    at, other_leases = noted_leases.find(leases, LEASE_OF_KEY_LENGTH, this_session.id, number)
    local _
    _, other_leases_of_identity =
      noted_leases.find(noted_leases.of_identity(), LEASE_OF_KEY_LENGTH, this_session.id, number)
  end
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
      refusals, is_first = more_refusals(refusals, outcome, count)
    end
  end
  local state = key_state(is_charged, balance, refill_due, last_used, hour, valid, refusals, spent)
  if usage and is_unlinked then state = without_link(state) end
  local new_identity = is_charged and key_identity and identity_state()

  redis.call('HSET', key_name, 'state', state)
  if other_leases then noted_leases.write(key_name, other_leases) end
  if key_identity then
    if new_identity then write_identity(new_identity) end
    if other_leases_of_identity then
      noted_leases.write(name_of.identity_record(call_workspace, key_external_id), other_leases_of_identity)
    end
  end
  if is_charged then write_charged_counters() end
  if usage then flush_usage(call_workspace, key24(), key_linked_id, usage, call_settings.retention, call_hour) end
  return is_first
end

-- Counts decisions in the totals of the API of the key.
local function count_for_api(hour, count, outcome, spent)
  local record = name_of.api_usage(call_workspace, key_api8, day_of(hour))
  local field = hour_of_day(hour) .. outcome
  add_total(record, field, count)
  if spent > 0 then add_total(record, 's' .. field, spent) end
end

-- Counts what a session decided by itself about one key, and gives back what it did not use of a lease. `subject` is a
-- TALLIED_KEY.
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
  local is_first = false
  if is_live then
    is_first = settle_key(number, is_former and 0 or count, outcome, used, cost, used_at, request and request.limits)
  end
  if tags then count_tags(tags, external_id, outcome, spent, count) end
  if count > 0 then count_for_api(hour, count, outcome, spent) end
  if count > 0 and outcome ~= VALID then
    note_refusals(count, outcome, is_first, request, external_id, used_at, true, cost, 0)
  end
end
