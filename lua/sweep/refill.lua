-- Apply due refills to the stored balances of some keys. Requests that read a key apply a due refill too; this is for
-- keys that no request reads.
--
-- derives  the refill queue, key records
-- ARGV[1]  count      limit of the keys
-- returns  {number of due keys; fewer than `count` means that none is left, how long the first has been due (ms)}

local workspace, count, now = KEYS[1], tonumber(ARGV[1]), now_ms(ARGV[2])
local queue = name_of.refill_queue(workspace)
local due = redis.call('ZRANGE', queue, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
local late = due[1] and now - tonumber(redis.call('ZSCORE', queue, due[1])) or 0
local function refill(digest)
  local record = name_of.key_record(workspace, digest)
  local packed = redis.call('HGET', record, 'state')
  local state = packed and read_state(packed)
  if state and state.refilled and not state.deleted then
    if apply_refill(state, now) then redis.call('HSET', record, 'state', pack_state(state)) end
    redis.call('ZADD', queue, int(state.refill_due), digest)
  else
    redis.call('ZREM', queue, digest)
  end
end

for _, digest in ipairs(due) do
  -- A record that cannot be read is tried again after a day, so that it does not delay others.
  if not pcall(refill, digest) then redis.call('ZADD', queue, int(now + DAY_MS), digest) end
end
return { #due, late }
