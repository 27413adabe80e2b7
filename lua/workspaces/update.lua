-- Change the settings of a workspace: only those that are in the request.
--
-- derives  the audit stream
-- ARGV[1]  request    JSON of any of {name, protectApis, me and prices (JSON as text, '' removes it)}
-- returns  1

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local stored = read_fields(workspace, 'name', 'protectApis', 'me', 'prices')
local was_protected, name, protects = stored.protectApis == '1', request.name or stored.name, request.protectApis
if protects == nil then protects = was_protected end
local me, prices = request.me or stored.me or '', request.prices or stored.prices or ''
redis.call('HSET', workspace, 'name', name)
write_field(workspace, 'protectApis', protects and '1')
write_field(workspace, 'me', me)
write_field(workspace, 'prices', prices)
audit(workspace, now, actor, 'workspace', string.match(workspace, '{(.+)}'), {
  { 'name', stored.name, name },
  { 'protectApis', was_protected, protects },
  { 'me', stored.me or nil, me },
  { 'prices', stored.prices or nil, prices },
})
return 1
