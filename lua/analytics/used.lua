#!lua flags=no-writes
-- A page of the keys of an API that were used on a day or in a week.
--
-- derives  lists of used keys
-- ARGV[1]  api8
-- ARGV[2]  kind       'day' or 'week'
-- ARGV[3]  number     of the day or week since 1970
-- ARGV[4]  first      position in the list
-- ARGV[5]  count
-- returns  the first 16 characters of their ids, one after the other. A key may be repeated

local workspace, api8, kind, number = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local first, count = tonumber(ARGV[4]), tonumber(ARGV[5])
local list = kind == 'day' and name_of.used_on_day(workspace, api8, number)
  or name_of.used_in_week(workspace, api8, number)
return table.concat(redis.call('LRANGE', list, first, first + count - 1))
