-- Limits that have changed by themselves since the state of an owner was written: temporary ones that have ended, and
-- those of a plan that was changed. The next decision about the key or its identity puts the present limits in their
-- place, as a change of the owner at that time would have done. The owner gets a new version, so that servers renew its
-- snapshot.

local current_limits = {}

-- The present limits of an owner: {owner, record, limits, counters (limit_list.replace), merged (field of its
-- record; nil if it has no plan)}. `plan` is that of plans_of_key.load.
local function changed_limits(owner, record, limits, plan)
  local list, merged = limit_ends.in_force(limits, call_now), nil
  if plan then
    list, merged = plans.merged(limit_list.own(list), plans_of_key.whole(plan.id)), plan.merged
  end
  add_work(20 * (#limits + #list))
  local after, counters = limit_list.replace(call_workspace, owner, limits, list, call_now)
  return { owner = owner, record = record, limits = after, counters = counters, merged = merged }
end

-- Stores the counters of an owner, and the version of its plan.
local function keep_changed(changed)
  limit_list.keep_counters(call_workspace, changed.owner, changed.record, changed.counters, call_now)
  if changed.merged then redis.call('HSET', changed.record, 'merged', changed.merged) end
end

-- Replaces the limits of the key that was loaded, and of its identity, where they have changed, and reads their plans.
-- `has_plan`: the key has one. Everything is read before the first write.
function current_limits.apply(has_plan)
  local identity_record = key_identity and name_of.identity_record(call_workspace, key_external_id)
  local has_identity_plan = key_identity and packed_identity.has_plan(key_identity)
  local plan, is_changed, identity_plan, is_identity_changed =
    plans_of_key.load(has_plan and key_name, has_identity_plan and identity_record)
  local has_ended = key_flags.temporary
    and limit_ends.has_ended(key_packed, key_limits_at, key_flags.tail_bytes, call_now)
  local of_key, of_identity, identity = nil, nil, nil
  if has_ended or is_changed then
    local limits = read_limits(key_packed, key_limits_at, key_flags.tail_bytes)
    of_key = changed_limits(key24(), key_name, limits, plan)
  end
  has_ended = key_identity
    and limit_ends.is_flagged(key_identity)
    and limit_ends.has_ended(key_identity, IDENTITY_LIMITS_AT, 0, call_now)
  if has_ended or is_identity_changed then
    identity = packed_identity.read(key_identity)
    of_identity = changed_limits(identity.id16, identity_record, identity.limits, identity_plan)
  end
  if not of_key and not of_identity then return end
  local _, next_version = take_stamps(call_workspace, call_now, 2)
  if of_key then
    keep_changed(of_key)
    loaded_key.set_limits(next_version(), pack_limits(of_key.limits))
    redis.call('HSET', key_name, 'state', key_packed)
  end
  if of_identity then
    keep_changed(of_identity)
    identity.limits, identity.version = of_identity.limits, next_version()
    key_written(key_packed, packed_identity.pack(identity))
    redis.call('HSET', identity_record, 'state', key_identity)
  end
end
