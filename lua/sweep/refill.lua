-- Bring the stored balances of some keys up to date whose refill has come due. Whoever reads or verifies a key applies
-- a due refill anyway; this is for balances that nobody looks at.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the refill queue, key records
-- ARGV[1]  count      at most this many keys
-- ARGV[2]  now_ms     '' for Redis's clock
-- returns  how many were due, fewer than `count` meaning that none is left; for how many ms the first has been due

-- @include "include/clock"
-- @include "include/names"
-- @include "include/state"

local workspace, count, now = KEYS[1], tonumber(ARGV[1]), now_ms(ARGV[2])
local queue = refill_queue(workspace)
local due = redis.call('ZRANGE', queue, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
local late = due[1] and now - tonumber(redis.call('ZSCORE', queue, due[1])) or 0
local function refill(digest)
  local record = key_record(workspace, digest)
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
  -- A record that cannot be read must not stand in the way of the others for ever.
  if not pcall(refill, digest) then redis.call('ZADD', queue, int(now + DAY_MS), digest) end
end
return { #due, late }
