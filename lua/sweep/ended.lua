-- Remove what is stored of some overrides that have ended, which reads take for absent, but which count as records; and
-- what the index of ends has of limits and overrides that have ended.
--
-- derives  namespaces, overrides and their lists, the index of ends
-- ARGV[1]  count      limit of the overrides, and of the members of the index
-- returns  the larger number of both; fewer than `count` means that none is left

local workspace, count, now = KEYS[1], tonumber(ARGV[1]), now_ms(ARGV[2])
local overrides = override_records.remove_ended(workspace, now, count)
local index = name_of.ends(workspace)
local ended = redis.call('ZRANGE', index, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
if #ended > 0 then redis.call('ZREM', index, unpack(ended)) end
return math.max(overrides, #ended)
