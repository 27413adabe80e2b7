#!lua flags=no-writes
-- A page of APIs in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API records and list, key lists
-- ARGV[1]  after      the last id of the page before (without `api_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{ApiReply (src/store/apis.ts)…}, 1 if there are more, else 0}

-- @include "include/fields"
-- @include "include/names"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local from = after == '' and '-' or '(' .. after
local ids = redis.call('ZRANGE', api_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local replies = {}
for index = 1, math.min(count, #ids) do
  local api8 = string.sub(ids[index], 9)
  local api = read_fields(api_record(workspace, api8), 'id', 'name', 'created')
  api.keyCount = redis.call('ZCARD', key_list(workspace, api8))
  replies[index] = named(api)
end
return { replies, #ids > count and 1 or 0 }
