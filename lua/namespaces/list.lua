#!lua flags=no-writes
-- A page of namespaces in order of creation, oldest or newest first.
--
-- derives  namespace names and list, lists of overrides and of their ends
-- ARGV[1]  after      the last id of the page before (without `rlns_`), or ''
-- ARGV[2]  count      limit of the page
-- ARGV[3]  order      asc | desc
-- returns  {{NamespaceReply (src/records/overrides.ts)…}, 1 if there are more, else 0, the number of all namespaces}

local workspace, after, count, order, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local function namespace_reply(_, _, id16)
  local ended = redis.call('ZCOUNT', name_of.override_ends_of(workspace, id16), '-inf', int(now))
  return named({
    id = id16,
    name = redis.call('HGET', name_of.namespace_names(workspace), id16),
    created = int(time_in(id16)),
    overrideCount = redis.call('ZCARD', name_of.override_list(workspace, id16)) - ended,
  })
end
local page = page_of(workspace, name_of.namespace_list(workspace), after, order, count, namespace_reply)
page[3] = redis.call('HLEN', name_of.namespace_names(workspace))
return page
