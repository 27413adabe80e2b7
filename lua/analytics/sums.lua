#!lua flags=no-writes
-- A page of the sums of usage by customer, of an API in a month, in order of leaves.
--
-- derives  sums by customer
-- ARGV[1]  api8
-- ARGV[2]  month      since 1970
-- ARGV[3]  from       an externalId, or where the page before said that this one begins; '' for the first page
-- ARGV[4]  up_to      no leaf after this externalId is read; '' for all
-- ARGV[5]  bytes_max  after this many bytes no further leaf is read
-- returns  {where the next page begins, or false after the last one; of each leaf a list of externalId, its days (see
--          include/usageSums), …}. A leaf may have externalIds before `from` and after `up_to`

local workspace, api8, month, from, up_to, bytes_max =
  KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local LEAVES_MAX = 16

local first = usage_sums.bound_of(workspace, api8, month, from)
local last = up_to == '' and '+' or '[' .. up_to
local bounds =
  redis.call('ZRANGEBYLEX', name_of.sum_bounds(workspace, api8, month), '(' .. first, last, 'LIMIT', '0', LEAVES_MAX)
table.insert(bounds, 1, first)
local answer, bytes = { false }, 0
for index, bound in ipairs(bounds) do
  if bytes >= bytes_max or index > LEAVES_MAX then
    answer[1] = bound
    break
  end
  local leaf = redis.call('HGETALL', name_of.sum_leaf(workspace, api8, month, bound))
  for _, text in ipairs(leaf) do
    bytes = bytes + #text
  end
  answer[#answer + 1] = leaf
end
return answer
