-- Create root keys of an export with their ids, from the command line only. Existing ones are skipped.
--
-- derives  root key records and list, the set of admin root keys, the audit stream
-- ARGV[1]  request    JSON {rootKeys: [{id (without `root_`), name, start, grants (text, see include/rootGrants),
--                     enabled, expires, created, used}], dryRun}, with distinct ids; name, expires and used may
--                     be absent
-- ARGV[2]  digests    SHA-256 of each root key string, 32 bytes each, distinct
-- returns  {for each root key 'created' | 'exists' | 'id_taken'}

local workspace, request, digests, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], ARGV[3], now_ms(ARGV[4])
local outcomes, created = {}, 0
for index, root_key in ipairs(request.rootKeys) do
  root_key.digest = string.sub(digests, index * 32 - 31, index * 32)
  if redis.call('EXISTS', name_of.root_key_record(workspace, root_key.digest)) == 1 then
    outcomes[index] = 'exists'
  elseif root_digest_of(workspace, 'root_' .. root_key.id) then
    outcomes[index] = 'id_taken'
  else
    outcomes[index], created = 'created', created + 1
  end
end
if request.dryRun then return outcomes end
require_room(workspace, actor, created)
for index, root_key in ipairs(request.rootKeys) do
  if outcomes[index] == 'created' then
    create_root_key(workspace, root_key.digest, root_key)
    audit(workspace, now, actor, 'root_key', 'root_' .. root_key.id, new_root_key_changes(root_key))
  end
end
return outcomes
