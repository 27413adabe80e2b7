#!lua flags=no-writes
-- The plans that the keys or identities of some rows have now.
--
-- derives  plans, lists of keys, key and identity records
-- ARGV[1]  rows  JSON [[key id or '', externalId or '']…]
-- returns  {for each the planId of the key, or else of the identity, or ''}; {} in a workspace without plans

local workspace, rows, planned = KEYS[1], cjson.decode(ARGV[1]), {}
if redis.call('ZCARD', name_of.plan_list(workspace)) == 0 then return planned end
local function plan_of(record) return redis.call('HGET', record, 'planId') end
for index, row in ipairs(rows) do
  local digest = digest_of(workspace, row[1])
  planned[index] = digest and plan_of(name_of.key_record(workspace, digest))
    or plan_of(name_of.identity_record(workspace, row[2]))
    or ''
end
return planned
