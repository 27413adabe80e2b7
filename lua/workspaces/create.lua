-- Create a workspace. The list of all workspaces is in another slot of Redis Cluster, so it is written separately,
-- after this.
--
-- ARGV[1]  name
-- ARGV[2]  sequence   where its sequence starts: random, so that ids of two workspaces do not coincide
-- ARGV[3]  sums       1: the version of the data has sums of usage by customer (include/usageSums), of all days
-- returns  the time of its creation, Unix milliseconds

local workspace, name, sequence, sums, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1', now_ms(ARGV[4])
redis.call('HSET', workspace, 'name', name, 'created', int(now), 'sequence', sequence)
redis.call('HSET', workspace, 'key_records', 1, 'override_records', 1)
if sums then redis.call('HSET', workspace, 'summed', 0) end
return int(now)
