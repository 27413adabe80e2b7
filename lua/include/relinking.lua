-- Keys of a restored identity. A verification takes the link to a deleted identity out of the state of a key, so that
-- what is counted later is not counted for that identity; the link is then in field `formerLink` of its record.
--
-- Keys are linked again in steps. Field `relinked` of the identity has the place of the next step: a member of the list
-- of its keys. Until the last step an entry in the queue of deleted records lets the sweeper continue.

local relinking = {}

-- Keys of a step: some milliseconds of Redis's time.
local RELINKED_AT_ONCE = 100

-- The kind of the entries in the queue.
local RELINKED = 'r'

-- Whether an entry in the queue of deleted records is one of these.
function relinking.is_queued(kind) return kind == RELINKED end

-- A key (member of the list of an identity) that has this link or had it before the identity was deleted: its record
-- and state; nil when there is none, or it was linked to another or none since.
local function linked_key(workspace, member, link)
  local key_id = 'key_' .. key_of_member(member)
  local digest = digest_of(workspace, key_id) or deleted_digest_of(workspace, key_id)
  local record = digest and name_of.key_record(workspace, digest)
  local stored = record and redis.call('HMGET', record, 'state', 'formerLink')
  if not stored or not stored[1] then return nil end
  -- A broken record must not stop the others.
  local is_read, state = pcall(read_state, stored[1])
  if not is_read or state.link ~= link and (state.link ~= '' or stored[2] ~= link) then return nil end
  return record, state
end

-- Reads some keys of an identity, from a place on. Returns a function that links them, and returns whether there may be
-- more.
local function read_step(workspace, id16, external_id, place, usage_retention_ms, now)
  local identity, link = name_of.identity_record(workspace, external_id), id16 .. external_id
  local list, former = name_of.identity_keys(workspace, id16), name_of.former_members(workspace, external_id)
  local from = place == '' and '-' or '(' .. place
  local members = redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, RELINKED_AT_ONCE)
  local keys, others = {}, {}
  for _, member in ipairs(members) do
    local record, state = linked_key(workspace, member, link)
    if state and state.link == '' then keys[#keys + 1] = { record = record, state = state } end
    -- A deleted key is in the list again when it is restored.
    if not state or state.deleted then others[#others + 1] = member end
  end

  return function()
    for _, key in ipairs(keys) do
      local state = key.state
      flush_usage(workspace, state.id, '', state.usage, state.forbidden, usage_retention_ms)
      state.link, state.usage, state.forbidden = link, NO_USAGE, 0
      redis.call('HSET', key.record, 'state', pack_state(state))
      redis.call('HDEL', key.record, 'formerLink')
    end
    -- Their usage was counted for this identity.
    for _, member in ipairs(others) do
      redis.call('ZREM', list, member)
      add_former(former, key_of_member(member), now, usage_retention_ms)
    end
    if #members == RELINKED_AT_ONCE then
      redis.call('HSET', identity, 'relinked', members[#members])
      return true
    end
    redis.call('HDEL', identity, 'relinked')
    redis.call('ZREM', name_of.deleted_queue(workspace), RELINKED .. link)
    return false
  end
end

-- Reads the first keys. Returns a function that begins to link keys once the identity is restored, and returns whether
-- there may be more.
function relinking.begin(workspace, id16, external_id, usage_retention_ms, now)
  local link_first = read_step(workspace, id16, external_id, '', usage_retention_ms, now)
  return function()
    redis.call('HSET', name_of.identity_record(workspace, external_id), 'relinked', '')
    redis.call('ZADD', name_of.deleted_queue(workspace), int(now), RELINKED .. id16 .. external_id)
    return link_first()
  end
end

-- Links some more keys of an identity that is being restored. Returns whether there may be more.
function relinking.continue(workspace, id16, external_id, usage_retention_ms, now)
  local stored = redis.call('HMGET', name_of.identity_record(workspace, external_id), 'state', 'relinked')
  -- It was restored, deleted again, or replaced.
  if not stored[2] or string.sub(stored[1], 1, 16) ~= id16 then
    redis.call('ZREM', name_of.deleted_queue(workspace), RELINKED .. id16 .. external_id)
    return false
  end
  return read_step(workspace, id16, external_id, stored[2], usage_retention_ms, now)()
end
