-- Delete an identity. Its keys stay valid without it: their links have its id, which no longer exists. The list of its
-- keys is kept as long as their usage.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record, list and list of keys, former members, the audit stream
-- ARGV[1]  identity   its id or externalId
-- ARGV[2]  usage_retention_ms
-- ARGV[3]  actor      JSON, see include/audit
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  1, or 0 when there is no such identity

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/identities"
-- @include "include/limits"
-- @include "include/names"
-- @include "include/usage"

local workspace, wanted, usage_retention_ms, actor, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local external_id = external_id_for(workspace, wanted)
if not external_id then return 0 end
local identity, meta = load_identity(workspace, external_id), identity_meta(workspace, external_id)
if erase_identity(workspace, identity.id16, external_id, usage_retention_ms + 31 * DAY_MS) then
  add_former(name_of.former_members(workspace, external_id), identity.id16, now, usage_retention_ms)
end
limit_list.note_ends(workspace, identity.id16, identity.limits, {})
audit(
  workspace,
  now,
  actor,
  'identity',
  'id_' .. identity.id16,
  { { 'externalId', external_id }, { 'meta', meta or nil } }
)
return 1
