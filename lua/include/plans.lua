-- Plans: named sets of limits, permissions, roles and metadata, to which keys and identities refer. The limits of a
-- plan are merged into the states of its owners (decide/verification/currentLimits.lua): field `merged` of their
-- records has the version of the plan that was merged. Its permissions and roles are read from its record.

local plans = {
  -- Limits of a plan, and own limits of an owner that has one: so it has at most limit_list.MAX after merging.
  LIMITS_MAX = 25,
}

-- A plan: {id, id16, version, limits, direct and roles (lists of numbers, '' for none), meta (JSON text or false),
-- created, updated (text, or false)}; nil if it does not exist.
function plans.read(workspace, plan_id)
  local record = name_of.plan_record(workspace, plan_id)
  local plan = read_fields(record, 'id16', 'version', 'limits', 'direct', 'roles', 'meta', 'created', 'updated')
  if not plan.version then return nil end
  plan.id, plan.direct, plan.roles = plan_id, plan.direct or '', plan.roles or ''
  plan.limits = read_limits(plan.limits, 1, 0)
  return plan
end

-- The id16 of a plan; nil if it does not exist.
function plans.find(workspace, plan_id)
  return plan_id and redis.call('HGET', name_of.plan_record(workspace, plan_id), 'id16') or nil
end

-- The id of a plan if it exists, or nil; or of the plan of a deleted owner with this record. Field `formerPlan` of the
-- record has the id16 of that plan: one that was created later with the same planId is another one.
function plans.named(workspace, plan_id, record)
  local id16 = plans.find(workspace, plan_id)
  local former = id16 and record and redis.call('HGET', record, 'formerPlan')
  return id16 and (former or id16) == id16 and plan_id or nil
end

-- The limits of an owner with those of its plan (nil for none), for limit_list.replace: an own limit replaces that of
-- the plan with its name.
function plans.merged(own, plan)
  local list, names = {}, {}
  for index, l in ipairs(own) do
    list[index], names[l.name] = l, true
  end
  for _, l in ipairs(plan and plan.limits or {}) do
    if not names[l.name] then
      local planned = limit_list.of(l)
      planned.id, planned.of_plan = l.id, true
      list[#list + 1] = planned
    end
  end
  return list
end

-- Gives the plans of a workspace their next version, because one was created, changed or deleted, or owners were moved
-- to it: decisions read again what they know of owners (decide/verification/plansOfKey.lua). Returns the version.
function plans.changed(workspace, next_version)
  local version = next_version()
  redis.call('HSET', workspace, 'plans', version)
  return version
end

-- Stores the plan of an owner in its record, and which version of it was merged: field `merged` has the version and the
-- id, so that a decision reads one field. Nil removes both.
function plans.keep(record, plan)
  if plan then
    redis.call('HSET', record, 'planId', plan.id, 'merged', plan.version .. plan.id)
  else
    redis.call('HDEL', record, 'planId', 'merged')
  end
end

-- The list that has an owner, and its member: of a key (24) as under an identity, of an identity its id (16).
local function listing_of(workspace, plan_id, owner)
  if #owner == 16 then return name_of.plan_identities(workspace, plan_id), owner end
  return name_of.plan_keys(workspace, plan_id), member_under_identity(owner)
end

-- Adds an owner to those of a plan; nil for none.
function plans.index(workspace, plan_id, owner)
  if not plan_id then return end
  local list, member = listing_of(workspace, plan_id, owner)
  redis.call('ZADD', list, 0, member)
end

-- Removes an owner from those of a plan; nil or false for none.
function plans.unindex(workspace, plan_id, owner)
  if not plan_id then return end
  local list, member = listing_of(workspace, plan_id, owner)
  redis.call('ZREM', list, member)
end

-- Moves an owner from one plan to another; nil or false for none.
function plans.move(workspace, from, to, owner)
  if (from or nil) == (to or nil) then return end
  plans.unindex(workspace, from, owner)
  plans.index(workspace, to, owner)
end

-- The numbers of keys and identities that have a plan.
function plans.users(workspace, plan_id)
  return redis.call('ZCARD', name_of.plan_keys(workspace, plan_id)),
    redis.call('ZCARD', name_of.plan_identities(workspace, plan_id))
end

-- Reads the plan of an owner with these limits that is restored, before the first write. Returns whether the plan
-- exists, the limits of the owner, and a function that puts the owner under the plan again, or takes the plan away from
-- it; the counts of the plan's limits stay.
function plans.restoring(workspace, record, owner, limits, now)
  local plan_id, counters = redis.call('HGET', record, 'planId'), nil
  local exists = plans.named(workspace, plan_id, record) ~= nil
  if plan_id and not exists then
    limits, counters = limit_list.replace(workspace, owner, limits, limit_list.own(limits), now)
  end
  return exists,
    limits,
    function(restored)
      redis.call('HDEL', restored, 'formerPlan')
      if exists then
        plans.index(workspace, plan_id, owner)
      elseif plan_id then
        plans.keep(restored, nil)
        limit_list.keep_counters(workspace, owner, restored, counters, now)
      end
    end
end

-- The plan of an owner after a change: `wanted` is that of the request (a planId, null for none, nil for as before).
-- `stored` is that of its record, or false, and may not exist any more. Returns the plan, or nil; then the planId that
-- does not exist.
function plans.after(workspace, wanted, stored)
  if wanted == cjson.null then return nil end
  local plan_id = wanted or stored
  local plan = plan_id and plans.read(workspace, plan_id) or nil
  return plan, not plan and wanted or nil
end

-- Gives a key with this state the limits `wanted` and those of a plan, in place of those of the plan `before`; nil or
-- false for no plan. It reads. Returns a function that writes what is not in the state, with ids for new limits.
function plans.changing(workspace, record, state, change, now)
  local plan, counters = change.plan, nil
  state.limits, counters = limit_list.replace(workspace, state.id, state.limits, plans.merged(change.wanted, plan), now)
  return function(next_id)
    limit_list.name(state.limits, next_id)
    limit_list.keep_counters(workspace, state.id, record, counters, now)
    plans.keep(record, plan)
    plans.move(workspace, change.before, plan and plan.id, state.id)
  end
end

-- The first of up to `count` owners of a plan, each {id (24 or 16), record}; without a record if it is gone.
function plans.owners(workspace, plan_id, count)
  local owners = {}
  for _, member in ipairs(redis.call('ZRANGE', name_of.plan_keys(workspace, plan_id), 0, count - 1)) do
    local key24 = key_of_member(member)
    local digest = digest_of(workspace, 'key_' .. key24)
    owners[#owners + 1] = { id = key24, record = digest and name_of.key_record(workspace, digest) }
  end
  local left = count - #owners
  if left == 0 then return owners end
  for _, id16 in ipairs(redis.call('ZRANGE', name_of.plan_identities(workspace, plan_id), 0, left - 1)) do
    local external_id = external_id_for(workspace, 'id_' .. id16)
    owners[#owners + 1] = { id = id16, record = external_id and name_of.identity_record(workspace, external_id) }
  end
  return owners
end

-- The texts of a plan's values for its audit event.
function plans.texts(workspace, plan, now)
  return {
    ratelimits = limits_text(plan.limits, now),
    permissions = names_text(slugs_of(workspace, plan.direct)),
    roles = names_text(names_of_roles(workspace, plan.roles)),
    meta = plan.meta or nil,
  }
end

-- A plan as a named reply (PlanReply in src/records/plans.ts), and the number of its parts.
function plans.reply(workspace, plan_id, now)
  local plan = plans.read(workspace, plan_id)
  local key_count, identity_count = plans.users(workspace, plan_id)
  -- They are few, so they are not returned as lists of numbers.
  local slugs, _, given = effective_slugs(workspace, plan.direct, '')
  return named({
    id = 'plan_' .. plan.id16,
    planId = plan_id,
    limits = limit_replies(plan.limits, now),
    slugs = slugs,
    roleNames = names_of_roles(workspace, plan.roles),
    meta = plan.meta,
    created = plan.created,
    updated = plan.updated,
    keyCount = key_count,
    identityCount = identity_count,
  }),
    given + parts_of_limits(plan.limits) + parts_of_meta(plan.meta)
end
