#!lua flags=no-writes
-- A page of APIs in order of creation, oldest or newest first.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API records and list, key lists
-- ARGV[1]  after      the last id of the page before (without `api_`), or ''
-- ARGV[2]  count      limit of the page
-- ARGV[3]  order      asc | desc
-- returns  {{ApiReply (src/records/apis.ts)…}, 1 if there are more, else 0, the number of all APIs}

-- @include "include/fields"
-- @include "include/names"
-- @include "include/pages"

local workspace, after, count, order = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local function api_reply(_, _, id16)
  local api8 = string.sub(id16, 9)
  local api = read_fields(name_of.api_record(workspace, api8), 'id', 'name', 'created')
  api.keyCount = redis.call('ZCARD', name_of.key_list(workspace, api8))
  return named(api)
end
local page = page_of(workspace, name_of.api_list(workspace), after, order, count, api_reply)
page[3] = redis.call('ZCARD', name_of.api_list(workspace))
return page
