-- Create a successor of a root key, with a new secret and the same name, grants, state and expiry. The old one expires.
-- The caller must have all of its grants, and must not expire before it.
--
-- derives  root key records and list, the set of admin root keys, the audit stream
-- ARGV[1]  root_key_id  the old root key
-- ARGV[2]  digest       SHA-256 of the new root key string
-- ARGV[3]  start        of the new root key string
-- ARGV[4]  expires_in   milliseconds until the old root key expires, unless it expires earlier; '' leaves its expiry
-- returns  {'created', the new root key's id} | {'root_key_not_found' | 'not_covered'} | {'lacks', grant} |
--          {'outlives', when the caller expires} | {'unauthorized' | 'root_key_disabled' | 'root_key_expired'}

local workspace, root_key_id, digest, start, expires_in = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local actor, now = ARGV[5], now_ms(ARGV[6])
local caller, refusal = caller_of(workspace, actor, 'create_root_key', now)
if not caller then return refusal end
local lacking = lacking_grant(caller.grants, 'root_key.*.update_root_key')
if lacking then return { 'lacks', lacking } end
local old_digest = root_digest_of(workspace, root_key_id)
if not old_digest then return { 'root_key_not_found' } end
local record = name_of.root_key_record(workspace, old_digest)
local old = read_fields(record, 'name', 'grants', 'enabled', 'expires')
if lacking_grant(caller.grants, old.grants) then return { 'not_covered' } end
local ended = tonumber(old.expires)
if (ended or math.huge) > caller.ends then return { 'outlives', int(caller.ends) } end
require_room(workspace, actor, 1)

local new =
  { id = take_stamps(workspace, now, 1)(), start = start, name = old.name, grants = old.grants, created = now }
new.enabled, new.expires = old.enabled == '1', ended
create_root_key(workspace, digest, new)
local ends = expires_in and math.min(ended or math.huge, now + expires_in) or ended
if ends then
  redis.call('HSET', record, 'expires', int(ends))
  record_admin(workspace, old_digest, false)
end
audit(workspace, now, actor, 'root_key', root_key_id, {
  { 'successor', nil, 'root_' .. new.id },
  { 'expires', ended, ends },
})
return { 'created', 'root_' .. new.id }
