-- Change a plan: only the fields that are in the request. One record is written: the next decision about a key or an
-- identity with the plan merges its limits again.
--
-- derives  plans, permissions and roles and their lists, the audit stream
-- ARGV[1]  request    JSON {planId, mayCreatePermissions} and any of {ratelimits, permissions (slugs), roles (names),
--                     meta (JSON text, '' removes it)}
-- returns  {'updated'} | {'plan_not_found', planId} | {'role_not_found', name} | {'create_permission', slug} | a
--          refusal of a limit as in plans/create: {'slots_limit', index} | {'slots_duration', index} | {'quota_period',
--          index} | {'quota_duration', index} | {'not_quota', index}

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local plan = plans.read(workspace, request.planId)
if not plan then return { 'plan_not_found', request.planId } end
local before, limits, roles = plans.texts(workspace, plan, now), nil, nil
if request.ratelimits then
  local refusal, refused_at
  limits, refusal, refused_at = limit_list.with_all(plan.limits, request.ratelimits, now)
  if refusal then return { refusal, int(refused_at) } end
  -- A limit keeps its id.
  local ids = {}
  for _, l in ipairs(plan.limits) do
    ids[l.name] = l.id
  end
  for _, l in ipairs(limits) do
    l.id, l.window = ids[l.name], ''
  end
end
if request.roles then
  local missing_role
  roles, missing_role = find_roles(workspace, request.roles)
  if missing_role then return { 'role_not_found', missing_role } end
end
local numbers, missing = find_permissions(workspace, request.permissions or {})
if #missing > 0 and not request.mayCreatePermissions then return { 'create_permission', missing[1] } end
require_room(workspace, actor, #missing)

local next_id, next_version, reserve = take_stamps(workspace, now, 1 + #(limits or {}) + #missing, true)
reserve()
create_permissions(workspace, missing, numbers, next_id)
local record = name_of.plan_record(workspace, plan.id)
if limits then
  limit_list.name(limits, next_id)
  plan.limits = limits
end
if roles then plan.roles = roles end
if request.permissions then plan.direct = list_of(request.permissions, numbers) end
if request.meta then plan.meta = request.meta ~= '' and request.meta end
local version, packed = plans.changed(workspace, next_version), pack_limits(plan.limits)
redis.call('HSET', record, 'version', version, 'limits', packed, 'updated', int(now))
for _, field in ipairs({ 'direct', 'roles', 'meta' }) do
  write_field(record, field, plan[field])
end
audit(workspace, now, actor, 'plan', plan.id, {
  { 'ratelimits', before.ratelimits, limits_text(plan.limits, now) },
  { 'permissions', before.permissions, request.permissions and names_text(request.permissions) or before.permissions },
  { 'roles', before.roles, request.roles and names_text(request.roles) or before.roles },
  { 'meta', before.meta, plan.meta or nil },
})
return { 'updated' }
