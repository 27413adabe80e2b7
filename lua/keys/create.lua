-- Create keys of one API: one for createKey, up to 1000 for migrateKeys and imports. All of them are created, or none.
-- Keys whose digest exists are skipped.
--
-- derives  API, key, identity, permission, role and plan records and their lists, the indexes of starts and by expiry,
--          the refill and purge queues, the audit stream
-- ARGV[1]  request    JSON of CreateKeys (src/records/keys.ts). Its keys have no digest, `bytes` instead of byteLength,
--                     and the values of keyRecordFields as text
-- ARGV[2]  digests    SHA-256 of each key string, 32 bytes each, in the order of the keys
-- returns  {'created', then for each key its id ('' in a dry run), or false when its digest exists} |
--          {'api_not_found'} | {'role_not_found', name} | {'create_permission', slug} | {'key_id_taken', key id} |
--          {'plan_not_found', planId} | {'too_many_limits', index of the key} | {'expired'} | {'ended', index of the
--          key, a space, index of its limit} | {'too_late', as before}; indexes from 0

local workspace, request, digests, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], ARGV[3], now_ms(ARGV[4])

local api_id = live_api(workspace, request.apiId)
if not api_id then return { 'api_not_found' } end
local api8 = string.sub(api_id, -8)

-- Read and decide.
local stamps, records, all_slugs, slug_seen, links = 0, 0, {}, {}, {}
for index, key in ipairs(request.keys) do
  key.digest = string.sub(digests, index * 32 - 31, index * 32)
  key.exists = redis.call('EXISTS', name_of.key_record(workspace, key.digest)) == 1
  if
    key.keptId
    and not key.exists
    and (digest_of(workspace, key.keptId) or deleted_digest_of(workspace, key.keptId))
  then
    return { 'key_id_taken', key.keptId }
  end
  if request.refusesExpired and (key.expires or math.huge) <= now then return { 'expired' } end
  local missing
  key.role_numbers, missing = find_roles(workspace, key.roles or {})
  if missing then return { 'role_not_found', missing } end
  for _, slug in ipairs(not key.exists and key.permissions or {}) do
    if not slug_seen[slug] then
      slug_seen[slug] = true
      all_slugs[#all_slugs + 1] = slug
    end
  end
  if key.externalId and not key.exists and links[key.externalId] == nil then
    links[key.externalId] = find_identity_link(workspace, key.externalId) or false
    stamps = stamps + 2
    if not links[key.externalId] then records = records + 1 end
  end
  if not key.exists then records = records + 1 end
  local refusal, refused_at
  key.limits, refusal, refused_at = limit_list.of_new(key.ratelimits or {}, now)
  if refusal and not key.exists then return { refusal, int(index - 1) .. ' ' .. int(refused_at) } end
  if key.planId and not key.exists then
    if not plans.find(workspace, key.planId) then return { 'plan_not_found', key.planId } end
    if #key.limits > plans.LIMITS_MAX then return { 'too_many_limits', int(index - 1) } end
  end
  stamps = stamps + 2 + #(key.limits or {})
end
local numbers, missing_slugs = find_permissions(workspace, all_slugs)
if #missing_slugs > 0 and not request.mayCreatePermissions then return { 'create_permission', missing_slugs[1] } end
if request.dryRun then
  local answer = { 'created' }
  for index, key in ipairs(request.keys) do
    answer[index + 1] = not key.exists and ''
  end
  return answer
end
require_room(workspace, actor, records + #missing_slugs)

local next_id, next_version, reserve_stamps = take_stamps(workspace, now, stamps + #missing_slugs, true)
local entries = {}
for _, key in ipairs(request.keys) do
  if not key.exists then
    key.id = key.keptId and string.sub(key.keptId, 5) or next_id() .. api8
    key.member = member_of_api(key.id, key.digest)
    local former = key.formerLink
    key.is_of_deleted = former and is_restorable_link(workspace, former)
    key.is_linked = not former or key.is_of_deleted or is_live_link(workspace, former)
    if (key.start or '') ~= '' then entries[#entries + 1] = start_entry(key.start, key.member) end
  end
end
local index_starts = indexing_starts(workspace, api8, entries)

-- Write.
reserve_stamps()
create_permissions(workspace, missing_slugs, numbers, next_id)

local answer, created, last = { 'created' }, 0, nil
for index, key in ipairs(request.keys) do
  if key.exists then
    answer[index + 1] = false
  else
    local link = key.formerLink or ''
    if key.externalId then
      links[key.externalId] = links[key.externalId] or create_identity(workspace, key.externalId, next_id, next_version)
      link = links[key.externalId]
    end
    key.direct, key.roles, key.given_roles = list_of(key.permissions or {}, numbers), key.role_numbers, key.roles
    local state = {
      id = key.id,
      version = next_version(),
      enabled = key.enabled ~= false,
      limited = key.remaining ~= nil,
      balance = key.remaining or 0,
      last_used = key.lastUsed or 0,
      usage = NO_USAGE,
      link = link,
      deleted = key.restorableUntil ~= nil,
    }
    for name, none in pairs(KEY_TIMES) do
      state[name] = key[name] or none
    end
    set_refill(state, key.refill, now)
    if key.refillDue and state.refilled then state.refill_due = key.refillDue end
    limit_list.name(key.limits, next_id)
    -- The first decision merges those of its plan.
    state.limits = restore_limits(key.limits, key.ratelimits or {})

    local fields = {
      start = key.start,
      created = created_field(key.id, key.created or now),
      updated = key.updated and int(key.updated),
      migration = request.migrationId,
    }
    for _, field in ipairs({ KEY_GIVEN_FIELDS }) do
      fields[field] = key[field] ~= '' and key[field]
      set_flag(state, field, key[field])
    end
    fields.state = pack_state(state)
    set_fields(name_of.key_record(workspace, key.digest), fields)
    if state.deleted then
      redis.call('ZADD', name_of.deleted_keys(workspace, api8), 0, key.member)
      redis.call('ZADD', name_of.purge_queue(workspace), int(key.restorableUntil), key.digest)
    else
      redis.call('ZADD', name_of.key_list(workspace, api8), 0, key.member)
      plans.index(workspace, key.planId, state.id)
      if key.is_linked then index_under_identity(workspace, link, state.id, key.is_of_deleted) end
      if state.expires < NEVER then index_expiry_of(workspace, state) end
      limit_list.note_ends(workspace, state.id, {}, state.limits)
      if state.refilled then queue_refill(workspace, key.digest, state) end
    end
    answer[index + 1], created, last = 'key_' .. state.id, created + 1, state
  end
end
index_starts()
if created > 0 then
  add_records(workspace, 'key_records', created)
  if request.migrationId or #request.keys > 1 then
    local changes = { { 'keyCount', nil, created }, { 'migrationId', nil, request.migrationId } }
    audit(workspace, now, actor, 'api', api_id, changes)
  else
    local key, changes = request.keys[1], state_changes(NEW_VALUES, state_values(last, now))
    for _, field in ipairs({ KEY_UPDATED_FIELDS }) do
      changes[#changes + 1] = { field, nil, field_text(field, key[field]) }
      if field == 'name' then changes[#changes + 1] = { 'start', nil, key.start } end
    end
    changes[#changes + 1] = { 'roles', nil, names_text(key.given_roles or {}) }
    changes[#changes + 1] = { 'permissions', nil, names_text(key.permissions or {}) }
    audit(workspace, now, actor, 'key', answer[2], changes)
  end
end
return answer
