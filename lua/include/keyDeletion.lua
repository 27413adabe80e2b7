-- Deletes and restores keys, for keys/delete, keys/restore and keys/change. These functions read; each returns a
-- function that writes, and returns the changes for the event.

-- Deletes a key, which was loaded; it is invalid immediately. Unless `permanent`, its record is kept for the retention
-- time, so that the key can be restored and the same secret cannot be imported again; then the sweeper removes it. If a
-- key has very many holds, the sweeper ends the rest, in a record that no request finds. `given` is {permanent,
-- retentionMs, usageRetentionMs}.
local function deleting_key(workspace, digest, record, state, given, now)
  local permanent, usage_retention_ms = given.permanent, given.usageRetentionMs
  local fields = read_fields(record, 'name', 'start')
  local api8, member = string.sub(state.id, 17), member_of_api(state.id, digest)
  local unindex_start = unindexing_start(workspace, api8, permanent and fields.start, member)
  local stored_limits = state.limits
  local limits, has_ended = limit_ends.in_force(stored_limits, now)
  local plan_id = state.planned and redis.call('HGET', record, 'planId')
  local plan16, counters, end_holds, have_ended = plans.find(workspace, plan_id), nil, nil, nil
  if has_ended then
    -- A restored key has the limits of its plan that were behind those that have ended.
    if plan16 then limits = plans.merged(limit_list.own(limits), plans.after(workspace, nil, plan_id)) end
    state.limits, counters = limit_list.replace(workspace, state.id, stored_limits, limits, now)
  end
  local erased = permanent and counters_of(workspace, state.id) or {}
  if permanent then
    end_holds, have_ended = ending_holds(workspace, record, state, now, usage_retention_ms)
  end
  local unlist = unlisting_key(workspace, digest, state)
  return function()
    unlist()
    -- A key that is restored has its counters: open holds may give units back to them.
    if counters and not permanent then limit_list.keep_counters(workspace, state.id, record, counters, now) end
    erase_counters(workspace, state.id, erased)
    limit_list.note_ends(workspace, state.id, stored_limits, {})
    unindex_start()
    flush_usage(workspace, state.id, external_id_of(state.link), state.usage, state.forbidden, usage_retention_ms)
    add_former(name_of.former_keys(workspace, api8), state.id, now, usage_retention_ms)
    if state.link ~= '' then
      add_former(name_of.former_members(workspace, external_id_of(state.link)), state.id, now, usage_retention_ms)
    end
    if end_holds then end_holds() end
    if have_ended then
      add_records(workspace, 'key_records', -redis.call('UNLINK', record))
    else
      state.deleted, state.usage, state.forbidden = true, NO_USAGE, 0
      redis.call('HSET', record, 'state', pack_state(state))
      if permanent then
        -- The digest of no key.
        digest = state.id .. '\0\0\0\0\0\0\0\0'
        redis.call('RENAME', record, name_of.key_record(workspace, digest))
      else
        redis.call('ZADD', name_of.deleted_keys(workspace, api8), 0, member)
        if plan16 then redis.call('HSET', record, 'formerPlan', plan16) end
      end
      redis.call('ZADD', name_of.purge_queue(workspace), int(now + (permanent and 0 or given.retentionMs)), digest)
    end
    return {
      { 'name', fields.name or nil },
      { 'start', fields.start or nil },
      { 'externalId', external_id_of(state.link) },
      { 'permanent', nil, permanent or nil },
    }
  end
end

-- Restores a deleted key, which was loaded by this id, while its record is kept. It is valid again immediately, with
-- its fields, limits and balance, its plan if that exists, a refill that was due since, its identity if that exists,
-- and its usage. The function takes `next_version`. Returns nil if an import has used the string or the id again.
local function restoring_key(workspace, key_id, digest, record, state, now)
  if 'key_' .. state.id ~= key_id or digest_of(workspace, key_id) then return nil end
  local identity, external_id = identity_of(workspace, state.link)
  local is_of_deleted = not identity and is_restorable_link(workspace, state.link)
  local fields = read_fields(record, 'name', 'start')
  local restore_plan
  state.planned, state.limits, restore_plan = plans.restoring(workspace, record, state.id, state.limits, now)
  return function(next_version)
    local api8 = string.sub(state.id, 17)
    local member = member_of_api(state.id, digest)
    state.deleted, state.version = false, next_version()
    redis.call('HSET', record, 'state', pack_state(state))
    restore_plan(record)
    redis.call('ZADD', name_of.key_list(workspace, api8), 0, member)
    redis.call('ZREM', name_of.deleted_keys(workspace, api8), member)
    redis.call('ZREM', name_of.purge_queue(workspace), digest)
    remove_former(name_of.former_keys(workspace, api8), state.id)
    if identity or is_of_deleted then index_under_identity(workspace, state.link, state.id, is_of_deleted) end
    if identity then remove_former(name_of.former_members(workspace, external_id), state.id) end
    if state.expires < NEVER then index_expiry_of(workspace, state) end
    limit_list.note_ends(workspace, state.id, {}, state.limits)
    queue_refill(workspace, digest, state)
    return {
      { 'name', nil, fields.name or nil },
      { 'start', nil, fields.start or nil },
      { 'externalId', nil, external_id_of(state.link) },
    }
  end
end
