-- End the lock of the migration of all data: the data has the target version, or the migration is given up, or another
-- process may go on.
--
-- KEYS[1]  data      `tg:data`
-- ARGV[1]  fence     number of the holder
-- ARGV[2]  outcome   `migrated`, `cancelled` or `released`
-- ARGV[3]  release   release that migrated the data
-- returns  1, or 0 if another process took the lock meanwhile

local data, fence, outcome, release = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('HMGET', data, 'fence', 'target')
if stored[1] ~= fence or not stored[2] then return 0 end
if outcome == 'migrated' then redis.call('HSET', data, 'version', stored[2], 'release', release) end
redis.call('HDEL', data, 'holder', 'until')
if outcome ~= 'released' then redis.call('HDEL', data, 'target', 'run', 'checked', 'by', 'started', 'done', 'total') end
return 1
