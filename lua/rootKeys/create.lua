-- Create a root key. The caller must have all grants of the new root key, and must not expire before it.
--
-- derives  root key record and list, the set of admin root keys, the audit stream
-- ARGV[1]  digest     SHA-256 of the root key string
-- ARGV[2]  request    JSON {name, start, grants (text, see include/rootGrants), expires}; name and expires may be
--                     absent
-- returns  {'created', the root key's id} | {'lacks', grant} | {'outlives', when the caller expires} |
--          {'expired'} | {'unauthorized' | 'root_key_disabled' | 'root_key_expired'}

local workspace, digest, request, actor, now = KEYS[1], ARGV[1], cjson.decode(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local caller, refusal = caller_of(workspace, actor, 'create_root_key', now)
if not caller then return refusal end
local lacking = lacking_grant(caller.grants, request.grants)
if lacking then return { 'lacks', lacking } end
if (request.expires or math.huge) > caller.ends then return { 'outlives', int(caller.ends) } end
if (request.expires or math.huge) <= now then return { 'expired' } end
require_room(workspace, actor, 1)

request.id, request.enabled, request.created = take_stamps(workspace, now, 1)(), true, now
create_root_key(workspace, digest, request)
audit(workspace, now, actor, 'root_key', 'root_' .. request.id, new_root_key_changes(request))
return { 'created', 'root_' .. request.id }
