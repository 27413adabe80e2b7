-- The records of keys. Every function that reads runs before the first write of its script.

-- The id of an API that exists, or nil.
local function live_api(workspace, api_id)
  local id = redis.call('HGET', name_of.api_record(workspace, string.sub(api_id, -8)), 'id')
  if id == api_id then return id end
end

-- Reads a key: the name of its record, its state with a due refill applied and the balance that it draws on, and the id
-- of its API; nil when the key does not exist, or it or its API was deleted. With `is_deleted` it reads only deleted
-- keys, of APIs that exist.
local function load_key(workspace, digest, now, is_deleted)
  if not digest then return nil end
  local record = name_of.key_record(workspace, digest)
  local packed = redis.call('HGET', record, 'state')
  if not packed then return nil end
  local state = read_state(packed)
  if state.deleted ~= (is_deleted or false) then return nil end
  local api_id = redis.call('HGET', name_of.api_record(workspace, string.sub(state.id, 17)), 'id')
  if not api_id then return nil end
  apply_refill(state, now)
  if state.draws then drawn_by.load(workspace, record, state, now) end
  return record, state, api_id
end

-- The field `created` of a key's record. Nearly all keys have none, because they were created at the time in their id.
-- The two times differ only for a key that was imported, or created after the clock stepped back (include/ids).
local function created_field(id, created) return created ~= time_in(id) and int(created) end

-- The fields of a key's reply (KeyReply in src/records/records.ts), and the number of its parts.
local function key_reply(workspace, record, state, api_id, now)
  local reply = {
    keyId = 'key_' .. state.id,
    apiId = api_id,
    enabled = state.enabled and 1,
    lastUsed = state.last_used > 0 and int(state.last_used),
    balance = state.limited and int(state.balance),
    refillAmount = state.refilled and int(state.refill_amount),
    refillDay = state.refilled and state.refill_day,
    limits = limit_replies(state.limits, now),
  }
  for name, none in pairs(KEY_TIMES) do
    reply[name] = state[name] ~= none and int(state[name])
  end
  for name, value in pairs(read_fields(record, KEY_DISPLAY_FIELDS)) do
    reply[name] = value
  end
  reply.created = reply.created or int(time_in(state.id))
  local digest = state.deleted and string.sub(record, #name_of.key_record(workspace, '') + 1)
  reply.restorableUntil = digest and redis.call('ZSCORE', name_of.purge_queue(workspace), digest)
  -- The plan of a deleted key may have been deleted too: nothing that imports the key would find it.
  reply.planId = plans.named(workspace, reply.planId, state.deleted and record)
  local stored, given = redis.call('HMGET', record, 'direct', 'roles'), nil
  local direct, roles = stored[1] or '', stored[2] or ''
  reply.slugs, reply.permissionLists, given = effective_slugs(workspace, direct, roles)
  reply.roleNames = names_of_roles(workspace, roles)
  local parts = given + #reply.roleNames + parts_of_limits(state.limits) + parts_of_meta(reply.meta)
  local identity, external_id = identity_of(workspace, state.link)
  if identity then
    local record_of_identity, identity_parts = name_of.identity_record(workspace, external_id), nil
    local balance = balance_of_identity(record_of_identity, identity, now)
    reply.identity, identity_parts =
      identity_reply(identity, external_id, identity_meta(record_of_identity), balance, now)
    parts = parts + identity_parts
  end
  return reply, parts
end

-- Updates the queue of refills after a change of a state.
local function queue_refill(workspace, digest, state)
  if state.refilled then
    redis.call('ZADD', name_of.refill_queue(workspace), int(state.refill_due), digest)
  else
    redis.call('ZREM', name_of.refill_queue(workspace), digest)
  end
end

-- The flag of a state that is set if the record has a field.
local FIELD_FLAGS = KEY_FIELD_FLAGS

-- Sets the flag of a field, if it has one, for its value: '' and false are none.
local function set_flag(state, field, value)
  local flag = FIELD_FLAGS[field]
  if flag then state[flag] = value and value ~= '' end
end

-- Writes a field of a key's record, or removes it where the value is '' or false, and sets its flag in the state.
local function set_key_field(record, state, field, value)
  write_field(record, field, value)
  set_flag(state, field, value)
end

-- Reads where a key is listed. Returns a function that removes it from all lists and queues.
local function unlisting_key(workspace, digest, state)
  local unindex = unindexing_under_identity(workspace, state.link, state.id)
  local plan_id = redis.call('HGET', name_of.key_record(workspace, digest), 'planId')
  return function()
    redis.call('ZREM', name_of.key_list(workspace, string.sub(state.id, 17)), member_of_api(state.id, digest))
    unindex_expiry(workspace, state.id)
    redis.call('ZREM', name_of.refill_queue(workspace), digest)
    plans.unindex(workspace, plan_id, state.id)
    unindex()
  end
end

-- Removes everything of a key except its usage history. It reads, so it must run before the other writes of a script.
-- Returns the number of its counters, and of removed key records: 0 or 1, for the caller to pass to add_records.
local function erase_key(workspace, digest, state)
  local unlist, counters = unlisting_key(workspace, digest, state), counters_of(workspace, state.id)
  unlist()
  erase_counters(workspace, state.id, counters)
  limit_list.note_ends(workspace, state.id, state.limits, {})
  return #counters, redis.call('UNLINK', name_of.key_record(workspace, digest))
end
