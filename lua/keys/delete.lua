#!lua flags=allow-oom
-- Delete a key; it is invalid immediately. Unless `permanent`, its record is kept for the retention time, so that the
-- key can be restored and the same secret cannot be imported again; then the sweeper removes it. If a key has very many
-- holds, the sweeper ends the rest, in a record that no request finds.
--
-- derives  key, API and identity records, lists of keys and deleted keys, the indexes of starts and by expiry,
--          identity's key list, refill and purge queues, usage history, the audit stream
-- ARGV[1]  key_id
-- ARGV[2]  permanent     0 | 1
-- ARGV[3]  retention_ms  how long a deleted key's record is kept
-- ARGV[4]  usage_retention_ms
-- returns  {'deleted'} | {'key_not_found'}

local workspace, key_id, permanent, retention_ms = KEYS[1], ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local usage_retention_ms, actor, now = tonumber(ARGV[4]), ARGV[5], now_ms(ARGV[6])

local digest = digest_of(workspace, key_id)
local record, state = load_key(workspace, digest, now)
if not record then return { 'key_not_found' } end

local fields = read_fields(record, 'name', 'start')
local api8, member = string.sub(state.id, 17), member_of_api(state.id, digest)
local unindex_start = unindexing_start(workspace, api8, permanent and fields.start, member)
-- The window of a former limit is kept with the key, those of others are erased.
local stored_limits = state.limits
local limits, has_ended = limit_ends.in_force(stored_limits, now)
if has_ended then state.limits = limit_list.replace(workspace, state.id, stored_limits, limits, now) end
local end_holds, have_ended
if permanent then
  end_holds, have_ended = ending_holds(workspace, record, state, now)
end
unlist_key(workspace, digest, state)
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
    digest, retention_ms = state.id .. '\0\0\0\0\0\0\0\0', 0
    redis.call('RENAME', record, name_of.key_record(workspace, digest))
  else
    redis.call('ZADD', name_of.deleted_keys(workspace, api8), 0, member)
  end
  redis.call('ZADD', name_of.purge_queue(workspace), int(now + retention_ms), digest)
end
audit(workspace, now, actor, 'key', key_id, {
  { 'name', fields.name or nil },
  { 'start', fields.start or nil },
  { 'externalId', external_id_of(state.link) },
  { 'permanent', nil, permanent or nil },
})
return { 'deleted' }
