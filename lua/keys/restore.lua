-- Restore a deleted key, whose record is kept for the retention time. It is valid again immediately, with its fields,
-- limits and balance, its plan if that exists, a refill that was due since, its identity if that exists, and its usage.
--
-- derives  key and API records, lists of keys and deleted keys, the index by expiry, identity's record and key
--          list, refill and purge queues, lists of former keys, the audit stream
-- ARGV[1]  key_id
-- returns  {'restored'} | {'key_not_found'} when there is no such deleted key, its API was deleted, or a key has its id

local workspace, key_id, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])

local digest = deleted_digest_of(workspace, key_id)
local record, state = load_key(workspace, digest, now, true)
-- An import may have used the string or the id again.
if not record or 'key_' .. state.id ~= key_id or digest_of(workspace, key_id) then return { 'key_not_found' } end
local identity, external_id = identity_of(workspace, state.link)
local is_of_deleted = not identity and is_restorable_link(workspace, state.link)
local fields = read_fields(record, 'name', 'start')

local has_plan, restore_plan = plans.restoring(workspace, record, state.id)

local _, next_version = take_stamps(workspace, now, 1)
local api8 = string.sub(state.id, 17)
local member = member_of_api(state.id, digest)
state.deleted, state.version = false, next_version()
if state.planned and not has_plan then
  state.planned, state.limits = false, limit_list.own(state.limits)
end
redis.call('HSET', record, 'state', pack_state(state))
restore_plan(record)
redis.call('ZADD', name_of.key_list(workspace, api8), 0, member)
redis.call('ZREM', name_of.deleted_keys(workspace, api8), member)
redis.call('ZREM', name_of.purge_queue(workspace), digest)
remove_former(name_of.former_keys(workspace, api8), state.id)
if identity or is_of_deleted then index_under_identity(workspace, state.link, state.id, is_of_deleted) end
if identity then remove_former(name_of.former_members(workspace, external_id), state.id) end
if state.expires < NEVER then index_expiry_of(workspace, state) end
limit_list.note_ends(workspace, state.id, {}, state.limits)
queue_refill(workspace, digest, state)
audit(workspace, now, actor, 'key', key_id, {
  { 'name', nil, fields.name or nil },
  { 'start', nil, fields.start or nil },
  { 'externalId', nil, external_id_of(state.link) },
})
return { 'restored' }
