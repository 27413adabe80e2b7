-- Create an identity.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record and list, the audit stream
-- ARGV[1]  request    JSON {externalId, meta (JSON text), ratelimits}; meta may be absent
-- ARGV[2]  actor      JSON, see include/audit
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  the identity's id, or false when the externalId exists

-- @include "include/clock"
-- @include "include/names"
-- @include "include/ids"
-- @include "include/calendar"
-- @include "include/state"
-- @include "include/window"
-- @include "include/permissions"
-- @include "include/keys"
-- @include "include/identities"
-- @include "include/audit"

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local record = identity_record(workspace, request.externalId)
if redis.call('EXISTS', record) == 1 then return false end
local next_id, next_version = take_stamps(workspace, now, 3 + #request.ratelimits)
local id16 = string.sub(create_identity(workspace, request.externalId, now, next_id, next_version), 1, 16)
redis.call('HSET', record, 'state',
  pack_identity({ id = id16, version = next_version(), limits = new_limits(request.ratelimits, next_id) }))
if request.meta then redis.call('HSET', record, 'meta', request.meta) end
audit(workspace, now, actor, 'identity', 'id_' .. id16)
return 'id_' .. id16
