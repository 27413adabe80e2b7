-- End the move of an API in the workspace that it was moved away from, when all has arrived in the other one.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the move, usage of the API and its lists of used keys, the roll-up queue and its positions, tags, counts on
--          their way
-- ARGV[1]  api8
-- ARGV[2]  first_day  of which usage may be stored, since 1970
-- ARGV[3]  last_day
-- returns  nothing

-- @include "include/names"

local workspace, api8, first_day, last_day = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

for day = first_day, last_day do
  local text = string.format('%d', day)
  redis.call(
    'UNLINK',
    name_of.api_usage(workspace, api8, text),
    name_of.tag_usage(workspace, api8, text),
    name_of.used_on_day(workspace, api8, text),
    name_of.used_in_week(workspace, api8, string.format('%d', math.floor(day / 7)))
  )
  for _, kind in ipairs({ 'k', 't' }) do
    local queue, member = name_of.rollup_queue(workspace, kind, api8, day)
    redis.call('ZREM', queue, member)
    redis.call('HDEL', name_of.rollup_positions(workspace), member)
  end
end
redis.call(
  'UNLINK',
  name_of.tag_names(workspace, api8),
  name_of.former_keys(workspace, api8),
  name_of.counts_on_the_way(workspace, api8)
)
redis.call('HSET', name_of.move(workspace, api8), 'state', 'moved')
