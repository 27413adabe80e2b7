-- Temporary limits that have ended: the next decision about the key or its identity puts the former limits in their
-- place, as a change at the time of their end would have done. The owner gets a new version, so that servers renew its
-- snapshot.

local ended_limits = {}

-- The limits of an owner without the ended ones, and their counters (limit_list.replace); nil if none has ended.
function ended_limits.of_owner(owner, limits)
  local list, has_ended = limit_ends.in_force(limits, call_now)
  if not has_ended then return nil end
  add_work(10 * #limits)
  local after, counters = limit_list.replace(call_workspace, owner, limits, list, call_now)
  return { limits = after, counters = counters }
end

-- Replaces the ended limits of the key that was loaded, and of its identity. Everything is read before the first write.
function ended_limits.apply()
  local of_key, of_identity, identity, record = nil, nil, nil, nil
  if key_flags.temporary and limit_ends.has_ended(key_packed, key_limits_at, key_flags.tail_bytes, call_now) then
    of_key = ended_limits.of_owner(key24(), read_limits(key_packed, key_limits_at, key_flags.tail_bytes))
  end
  local is_marked = key_identity and limit_ends.is_flagged(key_identity)
  if is_marked and limit_ends.has_ended(key_identity, IDENTITY_LIMITS_AT, 0, call_now) then
    identity, record = packed_identity.read(key_identity), name_of.identity_record(call_workspace, key_external_id)
    of_identity = ended_limits.of_owner(identity.id16, identity.limits)
  end
  if not of_key and not of_identity then return end
  local _, next_version = take_stamps(call_workspace, call_now, 2)
  if of_key then
    limit_list.keep_counters(call_workspace, key24(), key_name, of_key.counters, call_now)
    loaded_key.set_limits(next_version(), pack_limits(of_key.limits))
    redis.call('HSET', key_name, 'state', key_packed)
  end
  if of_identity then
    limit_list.keep_counters(call_workspace, identity.id16, record, of_identity.counters, call_now)
    identity.limits, identity.version = of_identity.limits, next_version()
    key_written(key_packed, packed_identity.pack(identity))
    redis.call('HSET', record, 'state', key_identity)
  end
end
