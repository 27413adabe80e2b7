-- Settle the expired holds of some keys. Requests that use a key do so too; this is for keys that no request uses.
--
-- derives  the queue of holds, key, API and identity records, windows, usage counts
-- ARGV[1]  count               limit of the keys
-- ARGV[2]  usage_retention_ms  as in the settings of lua/decide.lua
-- ARGV[3]  data_version        of the stored data
-- returns  {number of due keys; fewer than `count` means that none is left, how long the first has been due (ms)}

local workspace, count, retention, data_version, now = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], now_ms(ARGV[4])
local queue = name_of.hold_queue(workspace)
local due = redis.call('ZRANGE', queue, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
if #due == 0 then
  -- Holds that were made while the clock was ahead.
  due = redis.call('ZRANGE', queue, int(now + HOLDS_DUE_WITHIN + 1), int(NEVER), 'BYSCORE', 'LIMIT', 0, count)
end
local late = due[1] and math.max(0, now - tonumber(redis.call('ZSCORE', queue, due[1]))) or 0

-- Work of one call, in units of about a microsecond.
local WORK_MAX = 5000

-- Without items and root keys.
begin_only_batch(workspace, retention .. ' 0 0 0 0 0 0 ' .. data_version .. ' ' .. int(now), '\0\0\0\0')

-- Whether a key has more expired holds than one look settles.
local has_more = false

-- A key that was deleted gives back what it holds of its identity, too.
local function settle(digest)
  if redis.call('EXISTS', name_of.key_record(workspace, digest)) == 0 then
    redis.call('ZREM', queue, digest)
    return
  end
  read_key(digest, true)
  local holds_due = key_flags.extended and loaded_key.load_extension() or NEVER
  if are_holds_due(holds_due) then
    apply_due_holds()
    local _, _, next_due = loaded_key.extension()
    has_more = has_more or next_due <= now
  elseif holds_due == NEVER then
    redis.call('ZREM', queue, digest)
  else
    redis.call('ZADD', queue, int(holds_due), digest)
  end
end

local done = 0
for _, digest in ipairs(due) do
  if call_work > WORK_MAX then break end
  -- A record that cannot be read is tried again after a day, so that it does not delay others.
  if not pcall(settle, digest) then redis.call('ZADD', queue, int(now + DAY_MS), digest) end
  done = done + 1
end
write_api_totals()
write_totals()
return { (done < #due or has_more) and count or #due, late }
