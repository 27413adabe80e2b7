-- Create a plan.
--
-- derives  plans and their list, permissions and roles and their lists, the audit stream
-- ARGV[1]  request    JSON of NewPlan (src/records/plans.ts): planId, ratelimits, permissions (slugs), roles (names),
--                     meta (JSON text), created, updated (Unix milliseconds); these may be absent; mayCreatePermissions
-- returns  {'created'} | {'exists'} | {'role_not_found', name} | {'create_permission', slug} | a refusal of
--          limit_list.with_all and the index of the limit, from 0: {'slots_limit', index} | {'slots_duration', index} |
--          {'quota_period', index} | {'quota_duration', index} | {'not_quota', index}

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
if plans.find(workspace, request.planId) then return { 'exists' } end
local limits, refusal, refused_at = limit_list.of_new(request.ratelimits, now)
if refusal then return { refusal, int(refused_at) } end
local roles, missing_role = find_roles(workspace, request.roles)
if missing_role then return { 'role_not_found', missing_role } end
local numbers, missing = find_permissions(workspace, request.permissions)
if #missing > 0 and not request.mayCreatePermissions then return { 'create_permission', missing[1] } end
require_room(workspace, actor, 1 + #missing)

local next_id, next_version, reserve = take_stamps(workspace, now, 2 + #limits + #missing, true)
reserve()
create_permissions(workspace, missing, numbers, next_id)
local id16 = next_id()
limit_list.name(limits, next_id)
local plan = {
  id16 = id16,
  version = plans.changed(workspace, next_version),
  limits = (pack_limits(restore_limits(limits, request.ratelimits))),
  direct = list_of(request.permissions, numbers),
  roles = roles,
  meta = request.meta,
  created = int(request.created or now),
  updated = request.updated and int(request.updated),
}
set_fields(name_of.plan_record(workspace, request.planId), plan)
redis.call('ZADD', name_of.plan_list(workspace), 0, id16 .. request.planId)
audit(workspace, now, actor, 'plan', request.planId, {
  { 'ratelimits', nil, limits_text(limits, now) },
  { 'permissions', nil, names_text(request.permissions) },
  { 'roles', nil, names_text(request.roles) },
  { 'meta', nil, request.meta },
})
return { 'created' }
