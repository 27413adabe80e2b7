-- Usage counts. The counts of a key's current hour are in its state, which a verification writes anyway. The first
-- verification of a later hour (or a change that deletes the key or its identity) appends them to the key's log. The
-- sweeper moves the log of a day that has ended to the key's days (src/usage/rollup.ts), and finds the keys in the list
-- of the keys used on that day. Totals of APIs and namespaces are added up during a batch and written once.

-- Time that a record of usage by day is kept after its last write.
local function usage_kept_ms(retention_ms) return int(retention_ms + 2 * DAY_MS) end

-- Adds a key (24) to the list of the keys of its API that were used on the day of an hour. A repeated key is harmless.
-- `is_late`: the list may have been rolled up. It is again, and until then the usage of its day is read from keys.
local function add_used(workspace, id24, hour, retention_ms, is_late)
  local api8, day = string.sub(id24, 17), math.floor(hour / 24)
  local list = name_of.used_on_day(workspace, api8, string.format('%d', day))
  local is_new = redis.call('RPUSH', list, string.sub(id24, 1, 16)) == 1
  -- Only in case that no sweeper runs: it removes the list.
  if is_new then redis.call('PEXPIRE', list, int(retention_ms + 31 * DAY_MS)) end
  if is_new or is_late then
    local queue, member = name_of.rollup_queue(workspace, 'k', api8, day)
    redis.call('ZADD', queue, 'LT', int((day + 1) * DAY_MS + ROLLED_UP_AFTER), member)
  end
end

-- The entry of an hour in a key's log: USAGE_ENTRY_HEAD, each count of USAGE that is not 0 (4), credits spent if any
-- (7), FORBIDDEN verifications if any (4), the externalId at that time (its length in 1, then itself). '' if nothing
-- was counted. Also returns the hour.
local function usage_entry(external_id, usage, forbidden)
  local counted = { struct.unpack(USAGE, usage) }
  local hour, spent = counted[1], counted[OUTCOMES_IN_TAIL + 2]
  if hour == 0 then return '', 0 end
  local bits, counts = 0, ''
  for outcome = 1, OUTCOMES_IN_TAIL do
    local count = counted[outcome + 1]
    if count > 0 then
      bits, counts = bits + 2 ^ (outcome - 1), counts .. struct.pack('>I4', count)
    end
  end
  if spent > 0 then
    bits, counts = bits + SPENT_BIT, counts .. struct.pack('>I7', spent)
  end
  if forbidden > 0 then
    bits, counts = bits + 2 ^ (FORBIDDEN - 1), counts .. struct.pack('>I4', forbidden)
  end
  return struct.pack(USAGE_ENTRY_HEAD, hour, bits) .. counts .. struct.pack('>Bc0', #external_id, external_id), hour
end

-- Appends an hour to the log of a key, if anything was counted in it: USAGE, and FORBIDDEN verifications. `next_hour`
-- (or nil) is the hour in which the key is used now: if another day began, the key is added to the keys used on it.
local function flush_usage(workspace, id24, external_id, usage, forbidden, retention_ms, next_hour)
  local entry, hour = usage_entry(external_id, usage, forbidden)
  if entry ~= '' then
    local log = name_of.key_usage(workspace, id24)
    redis.call('APPEND', log, entry)
    redis.call('PEXPIRE', log, usage_kept_ms(retention_ms))
  end
  if next_hour and math.floor(next_hour / 24) ~= math.floor(hour / 24) then
    -- The clock may have stepped back, since the hour or, of a state without one, since the roll-up that took it.
    add_used(workspace, id24, next_hour, retention_ms, next_hour < hour or hour == 0)
  end
end

-- Counts verifications and credits in the log of a key (24), because its state cannot: since they were made the key was
-- deleted, got another identity or began another hour, or it has no place for them.
local function count_late(workspace, id24, external_id, hour, count, outcome, spent, retention_ms)
  local counts = {}
  for number = 1, OUTCOMES_IN_TAIL do
    counts[number] = number == outcome and count or 0
  end
  counts[OUTCOMES_IN_TAIL + 1] = spent
  local usage, forbidden = struct.pack(USAGE, hour, unpack(counts)), outcome == FORBIDDEN and count or 0
  flush_usage(workspace, id24, external_id, usage, forbidden, retention_ms)
  -- The state of the key may have no count of that day.
  add_used(workspace, id24, hour, retention_ms, true)
end

-- Adds a deleted key (24 characters) or identity (id, 16) to a list, so that its usage can still be read. The list
-- expires with the last history. Each new member removes up to 100 that are too old, because there may be millions.
local function add_former(list, member, now, retention_ms)
  local kept_ms, hour = retention_ms + 31 * DAY_MS, math.floor(now / HOUR_MS)
  if redis.call('ZADD', list, 'GT', hour, member) == 1 then
    -- ZPOPMIN instead of a read, because scripts read nothing after their first write. A member that is not too old is
    -- added again.
    local last_too_old = hour - math.ceil(kept_ms / HOUR_MS) - 1
    for _ = 1, 100 do
      local oldest = redis.call('ZPOPMIN', list)
      if tonumber(oldest[2]) > last_too_old then
        redis.call('ZADD', list, oldest[2], oldest[1])
        break
      end
    end
  end
  redis.call('PEXPIRE', list, int(kept_ms))
end

-- Removes a member that is no longer deleted.
local function remove_former(list, member) redis.call('ZREM', list, member) end
