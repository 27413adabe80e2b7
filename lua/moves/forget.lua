-- Remove the usage of former keys of an API, which has arrived in another workspace.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  logs and days of keys, lists of former keys
-- ARGV[1]  api8
-- ARGV[2…] keys       each without `key_`
-- returns  nothing

-- @include "include/names"

local workspace, api8, args = KEYS[1], ARGV[1], ARGV
for index = 2, #args do
  redis.call('UNLINK', name_of.key_usage(workspace, args[index]), name_of.key_days(workspace, args[index]))
  redis.call('ZREM', name_of.former_keys(workspace, api8), args[index])
end
