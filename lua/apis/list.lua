#!lua flags=no-writes
-- A page of APIs, or of deleted ones that can be restored, in order of creation, oldest or newest first.
--
-- derives  API records and list, deleted ones, their list and queue, key lists
-- ARGV[1]  after      the last id of the page before (without `api_`), or ''
-- ARGV[2]  count      limit of the page
-- ARGV[3]  order      asc | desc
-- ARGV[4]  deleted    1 for deleted APIs, else 0
-- returns  {{ApiReply (src/records/apis.ts)…}, 1 if there are more, else 0, the number of all of them}

local workspace, after, count, order, deleted = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
local list = deleted and name_of.deleted_apis(workspace) or name_of.api_list(workspace)
local function api_reply(_, _, id16)
  local api8 = string.sub(id16, 9)
  local record = deleted and name_of.deleted_api(workspace, api8) or name_of.api_record(workspace, api8)
  local api = read_fields(record, 'id', 'name', 'created')
  api.keyCount = redis.call('ZCARD', name_of.key_list(workspace, api8))
  api.restorableUntil = deleted and deleted_records.until_of(workspace, 'a', id16)
  return named(api)
end
local page = page_of(workspace, list, after, order, count, api_reply)
page[3] = redis.call('ZCARD', list)
return page
