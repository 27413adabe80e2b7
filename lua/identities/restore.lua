-- Restore a deleted identity as it was, and some of its keys. The next calls, or the sweeper, link the others again.
--
-- derives  identity record, list and list of keys, identities of plans, the deleted record, its list and queue, key
--          records and lists, their usage, former members, the index of ends, the audit stream
-- ARGV[1]  identity_id
-- ARGV[2]  continues    1: only link more keys
-- ARGV[3]  usage_retention_ms
-- returns  {'restored'} | {'more'} when keys are left | {'identity_not_found'} when there is no such deleted identity |
--          {'identity_already_exists', the externalId, its id} when there is another one with its externalId

local workspace, identity_id, continues, usage_retention_ms = KEYS[1], ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local actor, now = ARGV[4], now_ms(ARGV[5])
local id16 = string.sub(identity_id, 4)
local external_id = not continues and rest_of_id(name_of.deleted_identities(workspace), 'id_', identity_id)
if not external_id then
  external_id = external_id_for(workspace, identity_id)
  local is_begun = external_id
    and redis.call('HEXISTS', name_of.identity_record(workspace, external_id), 'relinked') == 1
  if not is_begun then return { continues and 'restored' or 'identity_not_found' } end
  return { relinking.continue(workspace, id16, external_id, usage_retention_ms, now) and 'more' or 'restored' }
end

local other = find_identity_link(workspace, external_id)
if other then return { 'identity_already_exists', external_id, 'id_' .. string.sub(other, 1, 16) } end
local deleted = name_of.deleted_identity(workspace, id16)
local identity, meta = load_identity(deleted), identity_meta(deleted)
local had_plan, restore_plan = identity.has_plan, nil
identity.has_plan, identity.limits, restore_plan = plans.restoring(workspace, deleted, id16, identity.limits, now)
local link_keys = relinking.begin(workspace, id16, external_id, usage_retention_ms, now)
deleted_records.restore(workspace, 'i', id16 .. external_id)
remove_former(name_of.former_members(workspace, external_id), id16)
limit_list.note_ends(workspace, id16, {}, identity.limits)
local record = name_of.identity_record(workspace, external_id)
restore_plan(record)
if had_plan and not identity.has_plan then redis.call('HSET', record, 'state', packed_identity.pack(identity)) end
audit(workspace, now, actor, 'identity', identity_id, {
  { 'externalId', nil, external_id },
  { 'meta', nil, meta or nil },
})
return { link_keys() and 'more' or 'restored' }
