-- The next counts of a day of an API that was closed because it was moved. They stay on their way here until the caller
-- says that they have arrived. Their numbers ascend, so the other workspace adds each of them once.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the move, counts on their way, totals and counts by tag of the API
-- ARGV[1]  api8
-- ARGV[2]  arrived    the number of the part that has arrived, or 0
-- ARGV[3]  kind       'a' totals, or 't' counts by tag
-- ARGV[4]  day        since 1970
-- ARGV[5]  count      limit of the counts of a part
-- returns  {number of the part, kind, day, {field, count, …}}, which may be of another kind and day; or {} if the day
--          has no more

-- @include "include/names"

local workspace, api8, arrived, kind, day, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local on_the_way, move = name_of.counts_on_the_way(workspace, api8), name_of.move(workspace, api8)
local stored = redis.call('LRANGE', on_the_way, 0, -1)
if stored[1] and stored[1] ~= arrived then
  return { tonumber(stored[1]), stored[2], stored[3], { unpack(stored, 4) } }
end
local record = kind == 'a' and name_of.api_usage(workspace, api8, day) or name_of.tag_usage(workspace, api8, day)
local counts = redis.call('HRANDFIELD', record, count, 'WITHVALUES')
redis.call('UNLINK', on_the_way)
if #counts == 0 then return {} end
local part = redis.call('HINCRBY', move, 'part', 1)
redis.call('RPUSH', on_the_way, part, kind, day, unpack(counts))
for index = 1, #counts, 2 do
  redis.call('HDEL', record, counts[index])
end
return { part, kind, day, counts }
