-- Remove sums of usage by customer of an API that was moved away, some leaves of a month. Its keys took their counts
-- with them, and would add them to these sums again if the API came back.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  sums by customer
-- ARGV[1]  api8
-- ARGV[2]  month      since 1970
-- ARGV[3]  count      limit of the leaves
-- returns  1 if there are more, or 0

-- @include "include/names"

local workspace, api8, month, count = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local bounds = name_of.sum_bounds(workspace, api8, month)
local leaves = redis.call('ZRANGE', bounds, 0, count - 1)
for _, bound in ipairs(leaves) do
  redis.call('UNLINK', name_of.sum_leaf(workspace, api8, month, bound))
end
if #leaves > 0 then
  redis.call('ZREM', bounds, unpack(leaves))
  return 1
end
redis.call('UNLINK', name_of.sum_leaf(workspace, api8, month, ''))
return 0
