#!lua full=allow-oom
-- Change a root key: only the fields that are in the request. The caller must have all of its grants, old and new.
--
-- derives  root key list and record, the set of admin root keys, the audit stream
-- ARGV[1]  request    JSON {rootKeyId} and any of {name, grants, enabled, expires}; null removes name or expires
-- returns  {'updated' | 'root_key_not_found' | 'not_covered' | 'last_root_key'} | {'lacks', grant} |
--          {'outlives', when the caller expires} | {'unauthorized' | 'root_key_disabled' | 'root_key_expired'}

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local null = cjson.null
-- A request with these fields only may end the use of the root key, and stores nothing else.
local ENDING = { rootKeyId = true, enabled = true, expires = true }
local caller, refusal = caller_of(workspace, actor, 'update_root_key', now)
if not caller then return refusal end
local lacking = request.grants and lacking_grant(caller.grants, request.grants)
if lacking then return { 'lacks', lacking } end
local digest = root_digest_of(workspace, request.rootKeyId)
if not digest then return { 'root_key_not_found' } end
local record = name_of.root_key_record(workspace, digest)
local stored = redis.call('HMGET', record, 'grants', 'enabled', 'expires', 'name')
if lacking_grant(caller.grants, stored[1]) then return { 'not_covered' } end

local was_enabled, ended = stored[2] == '1', tonumber(stored[3]) or math.huge
local grants, enabled, ends = request.grants or stored[1], was_enabled, ended
if request.enabled ~= nil then enabled = request.enabled end
if request.expires == null then
  ends = math.huge
elseif request.expires then
  ends = request.expires
end
-- A root key that outlives the caller may only be restricted: not extended, widened or enabled.
if ends > caller.ends then
  local widens = request.grants and lacking_grant(grant_set(stored[1]), grants)
  if ends > ended or widens or enabled and not was_enabled then return { 'outlives', int(caller.ends) } end
end
local is_admin = root_grants.has(grants, '*') and enabled and ends == math.huge
if not keeps_an_admin(workspace, digest, is_admin) then return { 'last_root_key' } end

local was_usable, is_usable = was_enabled and now < ended, enabled and now < ends
full_memory.may_write(has_only(request, ENDING) and was_usable and not is_usable)
set_fields(record, { grants = grants, enabled = enabled and '1' or '0' })
write_field(record, 'expires', ends < math.huge and int(ends))
if request.name then write_field(record, 'name', request.name ~= null and request.name) end
record_admin(workspace, digest, is_admin)
audit(workspace, now, actor, 'root_key', request.rootKeyId, {
  { 'name', stored[4] or nil, request.name or stored[4] or nil },
  { 'permissions', grants_list(stored[1]), grants_list(grants), stored[1] ~= grants },
  { 'enabled', was_enabled, enabled },
  { 'expires', ended < math.huge and ended or nil, ends < math.huge and ends or nil },
})
return { 'updated' }
