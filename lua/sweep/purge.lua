#!lua flags=allow-oom
-- Remove some records that no request can reach: deleted keys, APIs and identities past their retention, and keys of
-- these APIs. It also continues restorations of identities that were interrupted.
--
-- derives  the purge queue, deleted records, their lists and queue, the list of dead APIs, lists of keys and deleted
--          keys, key and identity records, refill queue, identities' key lists, the indexes of starts and by expiry
-- ARGV[1]  count      limit of the keys to remove; it stops earlier when they have many counters
-- ARGV[2]  usage_retention_ms
-- returns  {number of removed keys; fewer than `count` means that none is left, how long the first has been due (ms)}

local workspace, count, usage_retention_ms, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), now_ms(ARGV[3])

-- The state of a key, or nil when there is none or it cannot be read: a broken record must not stop the removal of
-- others.
local function state_of(digest)
  local read, state = pcall(
    function() return read_state(redis.call('HGET', name_of.key_record(workspace, digest), 'state')) end
  )
  return read and state or nil
end

-- After this work on holds, in units of about a microsecond, the next call continues.
local WORK_MAX = 2000
local work = 0

-- Ends holds of a key, if they can be read. Returns whether the last one has ended.
local function end_holds(digest, state)
  local record = name_of.key_record(workspace, digest)
  local is_read, write, have_ended = pcall(ending_holds, workspace, record, state, now, usage_retention_ms)
  if not is_read then return true end
  write()
  work = work + 50 * hold_buckets.work()
  return have_ended
end

local removed, erased, counters = 0, 0, 0
local due = redis.call('ZRANGE', name_of.purge_queue(workspace), '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
local late = due[1] and now - tonumber(redis.call('ZSCORE', name_of.purge_queue(workspace), due[1])) or 0
for _, digest in ipairs(due) do
  local state = state_of(digest)
  local start = state and redis.call('HGET', name_of.key_record(workspace, digest), 'start')
  if state and state.deleted and not end_holds(digest, state) then
    removed = count
    break
  end
  -- An import may have used its id again.
  if state and state.deleted and not digest_of(workspace, 'key_' .. state.id) then
    local members = counters_of(workspace, state.id)
    erase_counters(workspace, state.id, members)
    counters = counters + #members
  end
  if not state or state.deleted then erased = erased + redis.call('UNLINK', name_of.key_record(workspace, digest)) end
  if state then
    local api8, member = string.sub(state.id, 17), member_of_api(state.id, digest)
    -- Without the list, the API and its index were deleted.
    if redis.call('ZREM', name_of.deleted_keys(workspace, api8), member) == 1 then
      unindexing_start(workspace, api8, start, member)()
    end
  end
  redis.call('ZREM', name_of.purge_queue(workspace), digest)
  removed = removed + 1
  if work > WORK_MAX or counters > COUNTERS_MAX then
    removed = count
    break
  end
end

for _, due_record in ipairs(deleted_records.due(workspace, now, count - removed)) do
  local kind, member = string.sub(due_record, 1, 1), string.sub(due_record, 2)
  removed = removed + 1
  if relinking.is_queued(kind) then
    -- It may be refused while Redis is full, and must not stop the removal of others.
    local id16, external_id = string.sub(member, 1, 16), string.sub(member, 17)
    if pcall(relinking.continue, workspace, id16, external_id, usage_retention_ms, now) then removed = count end
  elseif kind == 'a' then
    deleted_records.remove(workspace, kind, member)
    redis.call('RPUSH', name_of.dead_apis(workspace), string.sub(member, 9))
  else
    local id16 = string.sub(member, 1, 16)
    counters = counters + erase_identity(workspace, name_of.deleted_identity(workspace, id16), id16, usage_retention_ms)
    deleted_records.remove(workspace, kind, member)
  end
  if counters > COUNTERS_MAX then removed = count end
  if removed == count then break end
end

local api8 = redis.call('LINDEX', name_of.dead_apis(workspace), 0)
if api8 and removed < count then
  local ids, digests = keys_after(workspace, api8, '', count - removed)
  for index, digest in ipairs(digests) do
    local state = state_of(digest) or { link = '', holds_due = NEVER, limits = {} }
    if not end_holds(digest, state) then
      removed = count
      break
    end
    -- The id in the list, even if the record has another or cannot be read.
    state.id = ids[index]
    local counters_of_key, erased_now = erase_key(workspace, digest, state)
    counters, erased, removed = counters + counters_of_key, erased + erased_now, removed + 1
    -- The next call removes the rest: return that there may be more.
    if (counters > COUNTERS_MAX or work > WORK_MAX) and removed < count then
      removed = count
      break
    end
  end
  if redis.call('EXISTS', name_of.key_list(workspace, api8)) == 0 then
    local is_last = redis.call('LLEN', name_of.dead_apis(workspace)) == 1
    -- Its keys that were deleted before are removed by the next call, as an import may create them again.
    local deleted = name_of.deleted_keys(workspace, api8)
    local members = redis.call('ZRANGE', deleted, 0, count - 1)
    for _, member in ipairs(members) do
      redis.call('ZADD', name_of.purge_queue(workspace), int(now), string.sub(member, PACKED_ID_BYTES + 1))
      redis.call('ZREM', deleted, member)
    end
    local is_done = #members == 0 and remove_starts(workspace, api8, count)
    if is_done then
      redis.call('LPOP', name_of.dead_apis(workspace))
      remove_expiries(workspace, api8)
      redis.call('UNLINK', name_of.former_keys(workspace, api8), name_of.tag_names(workspace, api8))
    end
    -- The next call continues with the rest of the index, or the next API: return that there may be more.
    if not is_done or not is_last then removed = count end
  end
end
add_records(workspace, 'key_records', -erased)
return { removed, late }
