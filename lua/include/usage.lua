-- Usage counts. The counts of a key's current hour are in its state, which a verification writes anyway. The first verification of
-- a later hour (or a change that deletes the key or its identity) appends them to the key's history of the month. Totals of APIs
-- and namespaces are added up during a batch and written once.

-- @include "include/calendar"
-- @include "include/clock"
-- @include "include/names"

-- The name of the month, `202611`, of an hour (hours since 1970). Days are named by their number since 1970.
local function month_name(hour)
  local year, month = month_of(math.floor(hour / 24))
  return string.format('%04d%02d', year, month + 1)
end

-- The entry of an hour in a key's history: USAGE_ENTRY_HEAD, each count that is not 0 (4), credits spent if any (7), the externalId
-- at that time (its length in 1, then itself). '' if nothing was counted. Also returns the hour.
local function usage_entry(external_id, usage)
  local counted = { struct.unpack(USAGE, usage) }
  local hour, spent = counted[1], counted[OUTCOMES_COUNTED + 2]
  if hour == 0 then return '', 0 end
  local bits, counts = 0, ''
  for outcome = 1, OUTCOMES_COUNTED do
    local count = counted[outcome + 1]
    if count > 0 then
      bits, counts = bits + 2 ^ (outcome - 1), counts .. struct.pack('>I4', count)
    end
  end
  if spent > 0 then
    bits, counts = bits + 2 ^ OUTCOMES_COUNTED, counts .. struct.pack('>I7', spent)
  end
  return struct.pack(USAGE_ENTRY_HEAD, hour, bits) .. counts .. struct.pack('>Bc0', #external_id, external_id), hour
end

-- Appends an hour to the history of a key, if anything was counted in it.
local function flush_usage(workspace, id24, external_id, usage, retention_ms)
  local entry, hour = usage_entry(external_id, usage)
  if entry == '' then return end
  local history = key_usage(workspace, id24, month_name(hour))
  redis.call('APPEND', history, entry)
  redis.call('PEXPIRE', history, int(retention_ms + 31 * DAY_MS))
end

-- Adds a deleted key (24 characters) or identity (id, 16) to a list, so that its usage can still be read. The list expires with the
-- last history. Each new member removes up to 100 that are too old, because there may be millions.
local function add_former(list, member, now, retention_ms)
  local kept_ms, hour = retention_ms + 31 * DAY_MS, math.floor(now / HOUR_MS)
  if redis.call('ZADD', list, 'GT', hour, member) == 1 then
    -- ZPOPMIN instead of a read, because scripts read nothing after their first write. A member that is not too old is added again.
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
