-- Take the lock of the migration of all data, or keep it, and store how far the migration is. The lock ends by itself.
-- Each holder has a larger number than those before, and the scripts of the migration refuse a smaller one than they
-- have seen. A migration that was given up starts with the first record again: servers of the earlier version may have
-- changed the data.
--
-- KEYS[1]  data      `tg:data`
-- ARGV[1]  holder    id of the process
-- ARGV[2]  release   its release
-- ARGV[3]  target    data version of the step
-- ARGV[4]  term_ms   how long the lock lasts
-- ARGV[5]  done      migrated records
-- ARGV[6]  total     all records, as far as known
-- returns  {outcome `held`, `busy` (another process has the lock) or `migrated`, number of the holder, number of the
--          migration, 1 if no server of an earlier version ran when it began}

local data, holder, release, target, term_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local done, total = ARGV[5], ARGV[6]
local now = now_ms(ARGV[7])

local stored = redis.call('HMGET', data, 'version', 'fence', 'holder', 'until', 'target', 'run', 'started', 'checked')
local version, fence, lasts = tonumber(stored[1]), tonumber(stored[2]) or 0, tonumber(stored[4]) or 0
local run, started = tonumber(stored[6]) or 0, stored[7]
if version and version >= tonumber(target) then return { 'migrated', fence, run, 0 } end
-- A lock for longer than its term was taken before the clock was set back.
local is_locked = stored[3] and stored[3] ~= holder and lasts > now and lasts <= now + term_ms
if is_locked then return { 'busy', fence, run, 0 } end
if stored[3] ~= holder then fence = fence + 1 end
if stored[5] ~= target then
  run, started = fence, int(now)
end
redis.call('HSET', data, 'holder', holder, 'by', release, 'until', int(now + term_ms), 'fence', fence)
redis.call('HSET', data, 'target', target, 'run', run, 'started', started, 'done', done, 'total', total)
return { 'held', fence, run, stored[5] == target and tonumber(stored[8]) == run and 1 or 0 }
