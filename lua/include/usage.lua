-- Usage counts. A key counts the present hour inside its own state, which verification writes anyway; the next hour's
-- first verification (or whoever deletes the key or changes its identity) appends the finished hour to the key's
-- history of that month. Totals of an API and of a namespace are added up over a batch and written once.

-- The name of the month, `202611`, that `hour` (hours since 1970) lies in. Days are named by their number since 1970.
local function month_name(hour)
  local year, month = month_of(math.floor(hour / 24))
  return string.format('%04d%02d', year, month + 1)
end

-- An hour of a key as its history holds it; '' if nothing was counted in it.
--   hour (4 bytes), a bit per outcome that was counted and 64 when credits were spent (1), each such count (4 each),
--   credits spent (7, if any), externalId at that time (its length in 1, then itself)
local function usage_entry(external_id, usage)
  local counted = { struct.unpack(USAGE, usage) }
  local hour, spent = counted[1], counted[OUTCOMES_COUNTED + 2]
  if hour == 0 then return '', 0 end
  local bits, counts = 0, ''
  for outcome = 1, OUTCOMES_COUNTED do
    if counted[outcome + 1] > 0 then
      bits, counts = bits + 2 ^ (outcome - 1), counts .. struct.pack('>I4', counted[outcome + 1])
    end
  end
  if spent > 0 then bits, counts = bits + 2 ^ OUTCOMES_COUNTED, counts .. struct.pack('>I7', spent) end
  return struct.pack('>I4B', hour, bits) .. counts .. struct.pack('>Bc0', #external_id, external_id), hour
end

-- Appends an hour to the history of a key, if anything was counted in it.
local function flush_usage(workspace, key24, external_id, usage, retention_ms)
  local entry, hour = usage_entry(external_id, usage)
  if entry == '' then return end
  local history = key_usage(workspace, key24, month_name(hour))
  redis.call('APPEND', history, entry)
  redis.call('PEXPIRE', history, int(retention_ms + 31 * DAY_MS))
end

-- Notes that something which has a history is no longer in the list where it would be looked for: `member` is a key (24
-- characters) or a deleted identity's id (16), whose list of keys then stays for as long. The note goes with the history: each
-- new one removes at most 100 that are too old, as there may be millions.
local function note_former(list, member, now, retention_ms)
  local kept_ms, hour = retention_ms + 31 * DAY_MS, math.floor(now / HOUR_MS)
  if redis.call('ZADD', list, 'GT', hour, member) == 1 then
    -- Popped, and the first that is not too old put back: scripts read nothing once they have begun to write.
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

-- The externalId in the identity part of a state ('' when the key has none).
local function external_id_of(identity) return string.sub(identity, 17) end
