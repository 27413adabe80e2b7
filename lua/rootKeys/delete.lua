#!lua flags=allow-oom
-- Delete a root key, all of whose grants the caller must have. The next call with it is refused as unauthorized.
--
-- derives  root key list and record, the set of admin root keys, the audit stream
-- ARGV[1]  root_key_id
-- returns  {'deleted' | 'root_key_not_found' | 'not_covered' | 'last_root_key'} | {'lacks', grant} |
--          {'unauthorized' | 'root_key_disabled' | 'root_key_expired'}

local workspace, root_key_id, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local caller, refusal = caller_of(workspace, actor, 'delete_root_key', now)
if not caller then return refusal end
local digest = root_digest_of(workspace, root_key_id)
if not digest then return { 'root_key_not_found' } end
local record = name_of.root_key_record(workspace, digest)
local stored = redis.call('HMGET', record, 'grants', 'name')
if lacking_grant(caller.grants, stored[1]) then return { 'not_covered' } end
if not keeps_an_admin(workspace, digest, false) then return { 'last_root_key' } end

redis.call('UNLINK', record)
redis.call('ZREM', name_of.root_key_list(workspace), string.sub(root_key_id, 6) .. digest)
record_admin(workspace, digest, false)
audit(workspace, now, actor, 'root_key', root_key_id, {
  { 'name', stored[2] or nil },
  { 'permissions', grants_list(stored[1]) },
})
return { 'deleted' }
