-- The plans of the key that was loaded: its own, and that of its identity. A key without both reads nothing of this.

local plans_of_key = {}

-- Those of the loaded key; false for none. Valid while key_flags.planned is set.
local key_plan, identity_plan = false, false

-- The version of a plan that does not exist.
local GONE = '\0\0\0\0\0\0\0\0'

-- The owners whose limits are known to be the present ones of their plan, by the names of their records: {plan
-- (plan_of), version of the plans of the workspace, version of the owner (two values)}. It is kept between batches, as
-- reading `merged` took as long as a limit. No version repeats, so an owner that was changed, or moved to another plan,
-- is read again. Two generations of a bounded size.
local OWNERS_MAX = 8192
local owners = { fresh = {}, former = {}, count = 0 }

-- Before a dry run: the one before may have remembered a version that was not stored. A change may get it.
function plans_of_key.forget() owners = { fresh = {}, former = {}, count = 0 } end

local function remember(record, plan, version, number)
  if owners.count == OWNERS_MAX then
    owners.former, owners.fresh, owners.count = owners.fresh, {}, 0
  end
  owners.fresh[record], owners.count = { plan, call_state.plans_version, version, number }, owners.count + 1
end

-- The version of the plans of the workspace (plans.changed), read once per batch.
local function version_of_plans()
  local state = call_state
  if state.plans_of ~= call_number then
    state.plans_version = redis.call('HGET', call_workspace, 'plans') or ''
    state.plans, state.whole_plans, state.plans_of = {}, {}, call_number
  end
  return state.plans_version
end

-- {id, version, direct, roles, merged: field `merged` of an owner that has its present limits, permits: it has
-- permissions or roles} of a plan, read once per batch. One that does not exist permits nothing.
local function plan_of(id)
  local plan = call_state.plans[id]
  if not plan then
    local record = name_of.plan_record(call_workspace, id)
    local stored = redis.call('HMGET', record, 'version', 'direct', 'roles')
    plan = { id = id, version = stored[1] or GONE, direct = stored[2] or '', roles = stored[3] or '' }
    plan.merged, plan.permits = plan.version .. id, plan.direct .. plan.roles ~= ''
    call_state.plans[id] = plan
  end
  return plan
end

-- A plan with its limits (plans.read), read once per batch; nil if it does not exist.
function plans_of_key.whole(id)
  local whole = call_state.whole_plans
  whole[id] = whole[id] or plans.read(call_workspace, id)
  return whole[id]
end

-- The plan of an owner by the name of its record and its version, and whether its limits are those of another version;
-- false and false for none.
local function plan_in(record, version, number)
  local present, owner = version_of_plans(), owners.fresh[record] or owners.former[record]
  if owner and owner[2] == present and owner[3] == version and owner[4] == number then return owner[1], false end
  local merged = redis.call('HGET', record, 'merged')
  local id = merged and string.sub(merged, VERSION_LENGTH + 1) or redis.call('HGET', record, 'planId')
  if not id then return false, false end
  local plan = plan_of(id)
  if merged == plan.merged then remember(record, plan, version, number) end
  return plan, merged ~= plan.merged
end

-- Reads the plans of the key and its identity by the names of their records, false for an owner without one. Returns
-- for each its plan (plan_of), or false, and whether the limits of the owner are those of another version.
function plans_of_key.load(record, identity_record)
  local is_changed, is_identity_changed = false, false
  key_plan, identity_plan = false, false
  if record then
    key_plan, is_changed = plan_in(record, key_version_time, key_version_number)
  end
  if identity_record then
    local version = string.sub(key_identity, IDENTITY_HEAD_VERSION_AT, IDENTITY_HEAD_LENGTH)
    identity_plan, is_identity_changed = plan_in(identity_record, version, 0)
  end
  if key_plan or identity_plan then
    loaded_key.set_planned(key_plan and key_plan.permits or identity_plan and identity_plan.permits)
  end
  return key_plan, is_changed, identity_plan, is_identity_changed
end

-- Two lists of numbers (`,3,17,`) as one.
local function both(list, other)
  if other == '' then return list end
  if list == '' then return other end
  return as_list(combine('add', numbers_in(list), numbers_in(other)))
end

-- The permissions and the roles of the key, own and by its plans, as lists of numbers; '' for none.
function plans_of_key.permissions()
  if not key_flags.permissions then return '', '' end
  local stored = redis.call('HMGET', key_name, 'direct', 'roles')
  local direct, roles = stored[1] or '', stored[2] or ''
  if not key_flags.planned then return direct, roles end
  for _, plan in ipairs({ key_plan or identity_plan, key_plan and identity_plan or nil }) do
    direct, roles = both(direct, plan.direct), both(roles, plan.roles)
  end
  return direct, roles
end

-- The id and the metadata (JSON text, nil for none) of the plan of the key, or else of its identity; nil without one.
function plans_of_key.displayed()
  if not key_flags.planned then return nil end
  for _, plan in ipairs({ key_plan or identity_plan, key_plan and identity_plan or nil }) do
    if plan.version ~= GONE then
      return plan.id, redis.call('HGET', name_of.plan_record(call_workspace, plan.id), 'meta') or nil
    end
  end
end

-- The ids of both plans, of the key and of its identity; false for none.
function plans_of_key.ids()
  if not key_flags.planned then return false, false end
  return key_plan and key_plan.version ~= GONE and key_plan.id,
    identity_plan and identity_plan.version ~= GONE and identity_plan.id
end
