-- Change a root key: only the fields that the request carries.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  root key list and record, the set of governing root keys, the audit stream
-- ARGV[1]  request    JSON {rootKeyId} and any of {name, grants, enabled, expires}; null removes name or expires
-- ARGV[2]  grants     of the caller, who must hold all that the root key holds
-- ARGV[3]  actor      JSON, see include/audit
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  'updated' | 'root_key_not_found' | 'not_covered' | 'last_root_key'

-- @include "include/clock"
-- @include "include/names"
-- @include "include/grants"
-- @include "include/rootKeys"
-- @include "include/audit"

local workspace, request, caller_grants, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], ARGV[3], now_ms(ARGV[4])
local null = cjson.null
local digest = root_digest_of(workspace, request.rootKeyId)
if not digest then return 'root_key_not_found' end
local record = root_key_record(workspace, digest)
local stored = redis.call('HMGET', record, 'grants', 'enabled', 'expires')
if not covers(caller_grants, stored[1]) then return 'not_covered' end

local grants, enabled, expires = request.grants or stored[1], stored[2] == '1', stored[3] or nil
if request.enabled ~= nil then enabled = request.enabled end
if request.expires == null then expires = nil elseif request.expires then expires = int(request.expires) end
local governs = lists(grants, '*') and enabled and not expires
if not stays_governed(workspace, digest, governs) then return 'last_root_key' end

redis.call('HSET', record, 'grants', grants, 'enabled', enabled and '1' or '0')
if expires then redis.call('HSET', record, 'expires', expires) else redis.call('HDEL', record, 'expires') end
if request.name == null then
  redis.call('HDEL', record, 'name')
elseif request.name then
  redis.call('HSET', record, 'name', request.name)
end
note_governing(workspace, digest, governs)
audit(workspace, now, actor, 'root_key', request.rootKeyId)
return 'updated'
