-- Create a permission.
--
-- derives  permissions and their list, the audit stream
-- ARGV[1]  request    JSON {slug, name, description, keptId (of an export, without `perm_`)}; the last two may be
--                     absent
-- returns  the permission's id, or false when the slug or the id exists

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
if redis.call('HEXISTS', name_of.permission_numbers(workspace), request.slug) == 1 then return false end
if request.keptId and permission_number(workspace, 'perm_' .. request.keptId) then return false end
require_room(workspace, actor, 1)
local id16 = request.keptId or take_stamps(workspace, now, 1)()
create_permission(workspace, request.slug, request.name, request.description, id16)
audit(workspace, now, actor, 'permission', 'perm_' .. id16, {
  { 'slug', nil, request.slug },
  { 'name', nil, request.name },
  { 'description', nil, request.description },
})
return 'perm_' .. id16
