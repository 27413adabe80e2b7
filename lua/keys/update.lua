#!lua full=allow-oom
-- Change a key. Fields that are not in the request stay. If the change is refused, no field changes.
--
-- derives  key, API, identity, permission, role and plan records and their lists, window counters, the index by
--          expiry, the refill queue, usage history, the audit stream
-- ARGV[1]  request    JSON {keyId, mayCreatePermissions, usageRetentionMs} and KeyChanges (src/records/keys.ts), with
--                     the values of keyRecordFields as text
-- returns  {'updated'} | {'key_not_found'} | {'role_not_found', name} | {'create_permission', slug} |
--          {'plan_not_found', planId} | {'refill_unlimited'} | {'draws', id of the key that has the balance} |
--          {'new_limit'} | {'too_many_limits'} | {'slots_limit'} | {'slots_duration'} | {'quota_period'} |
--          {'quota_duration'} | {'not_quota'} | {'ended', index in ratelimits from 0, '' for ratelimit} | {'too_late',
--          as before} | {'type_of_former', as before} (limit_list.with_one and with_all in include/limitList)

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local null = cjson.null

local digest = digest_of(workspace, request.keyId)
local record, state = load_key(workspace, digest, now)
if not record then return { 'key_not_found' } end
if request.credits and drawn_by.is_elsewhere(state) then return { 'draws', 'key_' .. state.payer.state.id } end

-- Read and decide.
local values, takes_away = state_values(state, now), key_update.ends_use(request, state, now)
local limits, refused_limit, refused_at = limit_ends.in_force(state.limits, now), nil, nil
if request.ratelimit then
  request.ratelimits, refused_limit = limit_list.with_one(limits, request.ratelimit, now)
elseif request.ratelimits and request.ratelimits ~= null then
  request.ratelimits, refused_limit, refused_at = limit_list.with_all(limits, request.ratelimits, now)
end
if refused_limit then return { refused_limit, refused_at and int(refused_at) or '' } end
local stored = read_fields(record, 'direct', 'roles', KEY_UPDATED_FIELDS)
local plan, missing_plan = plans.after(workspace, request.planId, stored.planId or nil)
if missing_plan then return { 'plan_not_found', missing_plan } end
local had_roles = request.roles and names_of_roles(workspace, stored.roles or '')
local had_slugs = request.permissions and slugs_of(workspace, stored.direct or '')
local credits, balance_number = request.credits, state.refill_due
if credits then drawn_by.part(state) end
if credits == null or credits and credits.remaining == null then
  state.limited, state.balance = false, 0
  set_refill(state, nil, now)
elseif credits then
  if credits.remaining then
    state.limited, state.balance = true, credits.remaining
  end
  if credits.refill == null then
    set_refill(state, nil, now)
  elseif credits.refill then
    if not state.limited then return { 'refill_unlimited' } end
    set_refill(state, credits.refill, now)
  end
end
local roles, missing_role
if request.roles then
  roles, missing_role = find_roles(workspace, request.roles)
  if missing_role then return { 'role_not_found', missing_role } end
end
local numbers, missing_slugs = {}, {}
if request.permissions then
  numbers, missing_slugs = find_permissions(workspace, request.permissions)
  if #missing_slugs > 0 and not request.mayCreatePermissions then return { 'create_permission', missing_slugs[1] } end
end
local old_link, new_link = state.link, nil
if request.externalId == null then
  new_link = ''
elseif request.externalId then
  new_link = find_identity_link(workspace, request.externalId)
end
-- Its identity may be being restored, which lists it already.
local former_link = request.externalId and old_link == '' and redis.call('HGET', record, 'formerLink')
local listed_link = former_link and is_live_link(workspace, former_link) and former_link or old_link
local unindex = unindexing_under_identity(workspace, listed_link, state.id)
local wanted, change_limits = limit_list.own(limits), nil
if request.ratelimits then wanted = request.ratelimits ~= null and request.ratelimits or {} end
local changes_limits = request.ratelimits or request.planId
if changes_limits and plan and #wanted > plans.LIMITS_MAX then return { 'too_many_limits', 'planned' } end
if changes_limits then
  change_limits =
    plans.changing(workspace, record, state, { wanted = wanted, plan = plan, before = stored.planId }, now)
end
require_room(workspace, actor, #missing_slugs + (request.externalId and not new_link and 1 or 0))
local sets_balance = credits == null or credits and credits.remaining ~= nil
if sets_balance then renumber_balance(state) end
local renumber_leased = renumbering_leased_credits(record, not sets_balance and balance_number, state.refill_due)
key_update.set_use(state, request)
local next_id, next_version, reserve = take_stamps(workspace, now, 3 + #wanted + #missing_slugs, true)

-- Write.
full_memory.may_write(takes_away)
reserve()
if change_limits then change_limits(next_id) end
if request.externalId then
  state.link = new_link or create_identity(workspace, request.externalId, next_id, next_version)
  if state.link ~= old_link then
    local retention_ms = request.usageRetentionMs
    flush_usage(workspace, state.id, external_id_of(old_link), state.usage, state.forbidden, retention_ms)
    state.usage, state.forbidden = NO_USAGE, 0
    if listed_link ~= '' then
      add_former(name_of.former_members(workspace, external_id_of(listed_link)), state.id, now, retention_ms)
    end
    unindex()
    index_under_identity(workspace, state.link, state.id)
  end
  -- No longer of a deleted identity that may be restored.
  redis.call('HDEL', record, 'formerLink')
end
if roles then set_key_field(record, state, 'roles', roles) end
if request.permissions then
  create_permissions(workspace, missing_slugs, numbers, next_id)
  set_key_field(record, state, 'direct', list_of(request.permissions, numbers))
end
for _, field in ipairs({ KEY_UPDATED_FIELDS }) do
  if request[field] then set_key_field(record, state, field, request[field] ~= null and request[field]) end
end
state.version = next_version()
if credits then
  renumber_leased()
  redis.call('HDEL', record, 'drawsOn')
end
key_update.store(workspace, digest, record, state, request, now)
local changes = state_changes(values, state_values(state, now))
for _, field in ipairs({ KEY_UPDATED_FIELDS }) do
  if request[field] then
    local before, after = stored[field] or nil, request[field] ~= null and request[field] or nil
    changes[#changes + 1] = { field, field_text(field, before), field_text(field, after), before ~= after }
  end
end
if roles then
  changes[#changes + 1] = { 'roles', names_text(had_roles), names_text(request.roles), (stored.roles or '') ~= roles }
end
if request.permissions then
  local list = list_of(request.permissions, numbers)
  changes[#changes + 1] =
    { 'permissions', names_text(had_slugs), names_text(request.permissions), (stored.direct or '') ~= list }
end
audit(workspace, now, actor, 'key', request.keyId, changes)
return { 'updated' }
