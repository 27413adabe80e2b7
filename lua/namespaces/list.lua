#!lua flags=no-writes
-- A page of namespaces in order of creation, oldest or newest first.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  namespace names and list, lists of overrides
-- ARGV[1]  after      the last id of the page before (without `rlns_`), or ''
-- ARGV[2]  count      limit of the page
-- ARGV[3]  order      asc | desc
-- returns  {{NamespaceReply (src/records/overrides.ts)…}, 1 if there are more, else 0, the number of all namespaces}

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/ids"
-- @include "include/names"
-- @include "include/pages"

local workspace, after, count, order = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ids = members_after(name_of.namespace_list(workspace), after, order, count + 1)
local replies = {}
for index = 1, math.min(count, #ids) do
  local id16 = ids[index]
  replies[index] = named({
    id = id16,
    name = redis.call('HGET', name_of.namespace_names(workspace), id16),
    created = int(time_in(id16)),
    overrideCount = redis.call('ZCARD', name_of.override_list(workspace, id16)),
  })
end
return { replies, #ids > count and 1 or 0, redis.call('HLEN', name_of.namespace_names(workspace)) }
