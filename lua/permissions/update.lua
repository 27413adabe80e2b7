-- Change a permission or a role: only the fields that are in the request. Keys, roles and plans refer to it by its
-- number, so that all of them have its new slug or name immediately.
--
-- derives  permissions, roles and their lists, the audit stream
-- ARGV[1]  kind_name  'permission' or 'role'
-- ARGV[2]  request    JSON {reference (its id, or its slug or name)} and any of {slug (of a permission), name,
--                     description (null and '' remove it)}
-- returns  {'updated', {id, slug, name, description (a named reply)}} | {'not_found'} | {'exists'}

local workspace, kind_name, request, actor, now = KEYS[1], ARGV[1], cjson.decode(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local is_role = kind_name == 'role'
-- The field that no two have; the numbers by it, and the reverse.
local unique = is_role and 'name' or 'slug'
local numbers = is_role and name_of.role_numbers(workspace) or name_of.permission_numbers(workspace)
local names = is_role and name_of.role_names(workspace) or name_of.permission_slugs(workspace)
local number = (is_role and role_number or permission_number)(workspace, request.reference)
if not number then return { 'not_found' } end
local record = (is_role and name_of.role_record or name_of.permission_record)(workspace, number)
local before = read_fields(record, 'id', 'slug', 'name', 'description')
local renamed = request[unique] ~= before[unique] and request[unique]
if renamed and redis.call('HEXISTS', numbers, renamed) == 1 then return { 'exists' } end

if renamed then
  local _, next_version = take_stamps(workspace, now, 1)
  renew_rbac_version(workspace, next_version)
  redis.call('HDEL', numbers, before[unique])
  redis.call('HSET', numbers, renamed, number)
  redis.call('HSET', names, number, renamed)
end
local after, changes = { id = before.id }, {}
for _, field in ipairs({ 'slug', 'name', 'description' }) do
  local value = request[field]
  if value == cjson.null or value == '' then value = false end
  if value ~= nil then write_field(record, field, value) end
  after[field] = value == nil and before[field] or value
  changes[#changes + 1] = { field, before[field] or nil, after[field] or nil }
end
audit(workspace, now, actor, kind_name, before.id, changes)
return { 'updated', named(after) }
