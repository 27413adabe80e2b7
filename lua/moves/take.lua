-- Take keys of an API out of their workspace: none of them is valid here any more, and none can be found. All that is
-- stored of them stays until they have arrived in the other workspace (moves/done). Leases that were granted before are
-- taken back, as after any change, also of keys that were taken before: what they did not use comes back.
--
-- Keys that share limits or a balance are taken together, or none of them.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the move, API record, key and identity records, lists of keys, of deleted keys and of taken ones, the
--          indexes of starts, by expiry and of ends, identities' key lists, the queues of refills, purges and holds,
--          usage history
-- ARGV[1]  api8
-- ARGV[2]  digests             32 bytes each
-- ARGV[3]  may_copy            1: limits that keys of other APIs share are copied
-- ARGV[4]  usage_retention_ms
-- ARGV[5]  actor               JSON, see include/audit
-- ARGV[6]  now_ms              '' for Redis's clock
-- returns  the number of keys that were taken

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/drawnBy"
-- @include "include/expiries"
-- @include "include/identities"
-- @include "include/keyIds"
-- @include "include/limits"
-- @include "include/moves"
-- @include "include/names"
-- @include "include/starts"
-- @include "include/state"
-- @include "include/usage"

local workspace, api8, digests, may_copy = KEYS[1], ARGV[1], moves.digests(ARGV[2]), ARGV[3] == '1'
local usage_retention_ms, actor, now = tonumber(ARGV[4]), ARGV[5], now_ms(ARGV[6])

local is_live = redis.call('HGET', name_of.api_record(workspace, api8), 'id')
if not is_live or redis.call('HGET', name_of.move(workspace, api8), 'state') ~= 'moving' then return 0 end

-- Read and decide.
local keys, by_identity, by_digest = {}, {}, {}
for _, digest in ipairs(digests) do
  local record = name_of.key_record(workspace, digest)
  local packed = redis.call('HGET', record, 'state')
  local state = packed and read_state(packed)
  if state and state.expires ~= MOVED and string.sub(state.id, 17) == api8 then
    local member = member_of_api(state.id, digest)
    local list = state.deleted and name_of.deleted_keys(workspace, api8) or name_of.key_list(workspace, api8)
    if redis.call('ZSCORE', list, member) then
      local key = { digest = digest, record = record, state = state, member = member, list = list }
      keys[#keys + 1], by_digest[digest] = key, key
      key.sharing = drawn_by.sharing(workspace, unpack(redis.call('HMGET', record, 'drawsOn', 'drawnBy')))
      local identity = not state.deleted and identity_of(workspace, state.link)
      if identity and (identity.has_balance or #identity.limits > 0) then
        local group = by_identity[state.link] or { has_balance = identity.has_balance, count = 0 }
        by_identity[state.link], key.group, group.count = group, group, group.count + 1
      end
    end
  end
end
for link, group in pairs(by_identity) do
  local own, list =
    count_identity_keys(workspace, link, api8), name_of.identity_keys(workspace, string.sub(link, 1, 16))
  local first = redis.call('HGET', name_of.identity_record(workspace, external_id_of(link)), 'key')
  group.with_all = redis.call('ZCARD', list) + (first and 1 or 0) == own and group.count == own
  -- Another key was added to the identity since, or was its last one elsewhere: the next attempt finds it.
  group.stays = not group.with_all and (group.has_balance or not may_copy)
end
-- Keys that draw on a balance stay if one of them stays, or is not among the keys to take.
local function stays(key) return key.stays or key.group ~= nil and key.group.stays end
local function lacks(key)
  for _, digest in ipairs(key.sharing) do
    local other = by_digest[digest]
    if not other or stays(other) then return true end
  end
  return false
end
local is_done
repeat
  is_done = true
  for _, key in ipairs(keys) do
    if not stays(key) and lacks(key) then
      key.stays, is_done = true, false
      if key.group then key.group.stays = true end
    end
  end
until is_done

-- Write. Each key is whole by itself.
local taken = 0
for _, key in ipairs(keys) do
  local state, group = key.state, key.group
  if not stays(key) then
    local start = redis.call('HGET', key.record, 'start')
    local purge_at = state.deleted and redis.call('ZSCORE', name_of.purge_queue(workspace), key.digest)
    unindexing_start(workspace, api8, start, key.member)()
    redis.call('ZREM', key.list, key.member)
    unindex_expiry(workspace, state.id)
    if not state.deleted then limit_list.note_ends(workspace, state.id, state.limits, {}) end
    redis.call('ZREM', name_of.refill_queue(workspace), key.digest)
    redis.call('ZREM', name_of.purge_queue(workspace), key.digest)
    redis.call('ZREM', name_of.hold_queue(workspace), key.digest)
    redis.call('ZADD', name_of.keys_on_the_way(workspace, api8), 0, key.member)
    redis.call('ZADD', name_of.taken_keys(workspace, api8), 0, key.member)
    flush_usage(workspace, state.id, external_id_of(state.link), state.usage, state.forbidden, usage_retention_ms)
    local restorable_until = state.deleted and (purge_at or int(now)) or nil
    local note = moves.note(state.expires, restorable_until, group and group.with_all)
    state.usage, state.forbidden, state.expires, state.deleted = NO_USAGE, 0, MOVED, true
    redis.call('HSET', key.record, 'state', pack_state(state), 'moved', note)
    taken = taken + 1
  end
end
audit(workspace, now, actor, 'api', api8, {})
return taken
