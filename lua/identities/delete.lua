-- Delete an identity. Its keys stay valid without it: a key's link names the id, which stands for nothing from now on.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record, list and list of keys, the audit stream
-- ARGV[1]  identity   its id or externalId
-- ARGV[2]  actor      JSON, see include/audit
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  1, or 0 when there is no such identity

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

local workspace, wanted, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local external_id = external_id_for(workspace, wanted)
if not external_id then return 0 end
local identity = load_identity(workspace, external_id)
redis.call('UNLINK', identity_record(workspace, external_id), identity_keys(workspace, identity.id))
redis.call('ZREM', identity_list(workspace), identity.id .. external_id)
audit(workspace, now, actor, 'identity', 'id_' .. identity.id)
return 1
