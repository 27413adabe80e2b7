#!lua full=allow-oom
-- Add, remove or replace the direct permissions of a key.
--
-- derives  key and API records, permissions and their list, the audit stream
-- ARGV[1]  mode       add | remove | set
-- ARGV[2]  request    JSON {keyId, permissions (slugs), mayCreatePermissions, permissionsMax}
-- returns  {'set', permission numbers as a list} | {'key_not_found'} | {'create_permission', slug} |
--          {'permission_not_found', slug} | {'too_many'}

local workspace, mode, request, actor, now = KEYS[1], ARGV[1], cjson.decode(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local record, state = load_key(workspace, digest_of(workspace, request.keyId), now)
if not record then return { 'key_not_found' } end
local numbers, missing = find_permissions(workspace, request.permissions)
if #missing > 0 then
  if mode == 'remove' then return { 'permission_not_found', missing[1] } end
  if not request.mayCreatePermissions then return { 'create_permission', missing[1] } end
end
local had = live_numbers(name_of.permission_slugs(workspace), redis.call('HGET', record, 'direct') or '')
local known = {}
for _, slug in ipairs(request.permissions) do
  if numbers[slug] then known[#known + 1] = numbers[slug] end
end
local kept = #combine(mode, had, known)
if kept + #missing > request.permissionsMax then return { 'too_many' } end
require_room(workspace, actor, #missing)

local slugs = slugs_of(workspace, as_list(had))
local next_id, next_version, reserve = take_stamps(workspace, now, 1 + #missing, true)

full_memory.may_write(mode == 'remove' and kept < #had)
reserve()
create_permissions(workspace, missing, numbers, next_id)
local given = {}
for index, slug in ipairs(request.permissions) do
  given[index] = tostring(numbers[slug])
end
local list = as_list(combine(mode, had, given))
set_key_field(record, state, 'direct', list)
state.version = next_version()
redis.call('HSET', record, 'state', pack_state(state), 'updated', int(now))
-- The slugs by the same rule as the numbers.
local change = {
  'permissions',
  names_text(slugs),
  names_text(combine(mode, slugs, request.permissions)),
  as_list(had) ~= list,
}
audit(workspace, now, actor, 'key', request.keyId, { change })
return { 'set', list }
