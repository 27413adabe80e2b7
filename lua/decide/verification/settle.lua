-- Settlements of verifications: what a session decided by leases is counted, and what it did not use comes back to
-- where it was charged, whatever was changed since.

-- The windows that a lease charged at a time (each LEASED_WINDOW), for `times` of its decisions, in the form of
-- owned_windows.returning. `shifted` is that field of the owner.
local function leased_windows(charged, times, at, shifted)
  local wanted, position = { shifted = shifted }, 1
  while position <= #charged and times > 0 do
    local duration, cost, name
    duration, cost, name, position = struct.unpack(LEASED_WINDOW, charged, position)
    wanted[#wanted + 1] = { duration = duration, name = name, units = cost * times, at = at }
  end
  return wanted
end

-- Gives back to the key the units that a lease of it did not use, in memory. Returns the leases that stay noted, the
-- balance, and records of windows to write; nothing when the lease is not noted.
local function returned_to_key(number, used, cost)
  local at, units, charged, others = lease_list.find(noted_leases.of_key(), this_session.id, number)
  if not at then return nil end
  local times, credits_charged = units - used, struct.unpack(LEASED_CREDITS, charged)
  local balance, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  -- Another number: the balance was set since, and has none of these credits.
  if key_flags.limited and credits_charged == refill_due and times > 0 then balance = balance + times * cost end
  local windows = string.sub(charged, LEASED_CREDITS_LENGTH + 1)
  local shifted = windows ~= '' and redis.call('HGET', key_name, 'shifted')
  local records = {}
  local packed = owned_windows.returning(
    key_packed,
    key_limits_at,
    key_flags.tail_bytes,
    key24(),
    leased_windows(windows, times, at, shifted),
    records
  )
  key_written(packed)
  return others, balance, records
end

-- Gives back to the limits of an identity the units that a lease did not use. Returns a function that writes it, or
-- nil.
local function returning_to_identity(record, number, used)
  local stored = redis.call('HMGET', record, 'state', 'leased', 'shifted')
  local at, units, windows, others = lease_list.find(stored[2] or '', this_session.id, number)
  if not at or not stored[1] then return nil end
  local id16 = string.sub(stored[1], 1, 16)
  local wanted = leased_windows(windows, units - used, at, stored[3])
  local records = {}
  local packed = owned_windows.returning(stored[1], IDENTITY_LIMITS_AT, 0, id16, wanted, records)
  return function()
    redis.call('HSET', record, 'state', packed)
    lease_list.write(record, others)
    owned_windows.write(records)
  end
end

-- Counts decisions in the totals of the API of the key.
local function count_for_api(hour, count, outcome, spent)
  local record = name_of.api_usage(call_workspace, key_api8, day_text(hour))
  local field = hour_of_day_text(hour) .. outcome
  add_total(record, field, count)
  if spent > 0 then add_total(record, 's' .. field, spent) end
end

-- Counts the decisions of a session by leases about one key, and gives back the units of a lease that were not used.
-- `subject` is a TALLIED_KEY. A key that was deleted for good is counted by its id.
local function settle_verifications(number, count, outcome, used, used_at, subject)
  local digest, cost, id24, external_id, fields = struct.unpack(TALLIED_KEY, subject)
  local is_live, is_stored = read_tallied_key(digest, id24)
  local request = fields <= #subject and request_of(string.sub(subject, fields))
  local tags = count > 0 and request and request.tags and usage_by_tag.counted(request.tags)
  local hour, spent = math.floor(used_at / HOUR_MS), outcome == VALID and count * cost or 0
  -- The state cannot count them.
  local is_former = not is_live or external_id ~= key_external_id or hour ~= call_hour
  -- Only an extended state counts FORBIDDEN.
  if not is_former and outcome == FORBIDDEN then is_former = not key_flags.extended end
  local leases, balance, records, return_to_identity
  if number > 0 then
    if is_stored then
      leases, balance, records = returned_to_key(number, used, cost)
    end
    -- The tally of a lost answer names no identity: it is that of the key.
    local charged_id = is_stored and id24 == NO_ID24 and key_linked_id or external_id
    return_to_identity = returning_to_identity(name_of.identity_record(call_workspace, charged_id), number, used)
    -- The identity was deleted, and can be restored.
    if not return_to_identity and is_stored and charged_id ~= key_external_id then
      local link = key_linked_id ~= '' and string.sub(key_packed, LINK_ID_FROM, key_limits_at - 1)
        or redis.call('HGET', key_name, 'formerLink')
        or ''
      local deleted = name_of.deleted_identity(call_workspace, string.sub(link, 1, 16))
      return_to_identity = returning_to_identity(deleted, number, used)
    end
  end

  local is_first = false
  if is_stored and (leases or count > 0) then
    balance = balance or struct.unpack(KEY_LIVE, key_packed, key_tail_at)
    local valid_at = count > 0 and outcome == VALID and used_at or 0
    local own_count, own_spent = is_former and 0 or count, is_former and 0 or spent
    is_first = key_counts.write(balance, own_count, outcome, own_spent, valid_at)
  end
  if leases then
    lease_list.write(key_name, leases)
    owned_windows.write(records)
  end
  if return_to_identity then return_to_identity() end
  if count == 0 then return end
  local retention = call_settings.retention
  if is_former then count_late(call_workspace, key24(), external_id, hour, count, outcome, spent, retention) end
  if tags then usage_by_tag.count(tags, external_id, outcome, spent, count, hour) end
  count_for_api(hour, count, outcome, spent)
  if outcome ~= VALID then
    noted_refusals.note(count, outcome, is_first, request, external_id, used_at, true, cost, 0)
  end
end
