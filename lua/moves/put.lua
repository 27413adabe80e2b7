-- Store keys that were taken out of another workspace (moves/take), with everything that moves/read returns. A key that
-- has arrived before is left as it is, so this may be repeated at any time, also after the key was changed or deleted.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the receipt, API, key and identity records and their lists, the indexes of starts, by expiry and of ends,
--          the queues of refills, purges and holds, windows and their lists, holds that were settled
-- ARGV[1]  api8
-- ARGV[2]  from     the other workspace (ws_…)
-- ARGV[3]  actor    JSON, see include/audit
-- ARGV[4]  now_ms   '' for Redis's clock
-- ARGV[5…] items    of each key: digest, key id (without `key_`), link; the number of its fields, then name and value
--                   of each; the number of its windows, then member, value and milliseconds to live of each; the same
--                   by hour of holds that were settled; 0 or 1 identities: externalId, id (16), fields and windows
-- returns  {'put', ''} | {'not_receiving', ''} | {'taken', id of the key here that has the digest}

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/expiries"
-- @include "include/fields"
-- @include "include/identities"
-- @include "include/ids"
-- @include "include/keyIds"
-- @include "include/keyRecords"
-- @include "include/limits"
-- @include "include/moves"
-- @include "include/names"
-- @include "include/records"
-- @include "include/starts"
-- @include "include/state"

local workspace, api8, from, actor, now, args = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4]), ARGV

local receipt, arrived = name_of.receipt(workspace, api8), name_of.arrived_keys(workspace, api8)
if redis.call('HGET', receipt, 'from') ~= from then return { 'not_receiving', '' } end
if not redis.call('HGET', name_of.api_record(workspace, api8), 'id') then return { 'not_receiving', '' } end

local function fields_of(list)
  local fields = {}
  for _, pair in ipairs(list) do
    fields[pair[1]] = pair[2]
  end
  return fields
end

-- Read.
local keys, identities, entries, at = {}, {}, {}, 5
while at <= #args do
  local key = { digest = args[at], id = args[at + 1], link = args[at + 2] }
  local fields, identity_count
  fields, at = moves.items(args, at + 3, 2)
  key.windows, at = moves.items(args, at, 3)
  key.settled, at = moves.items(args, at, 3)
  identity_count, at = tonumber(args[at]), at + 1
  key.fields = fields_of(fields)
  if identity_count == 1 then
    local identity = { external_id = args[at], id16 = args[at + 1] }
    fields, at = moves.items(args, at + 2, 2)
    identity.windows, at = moves.items(args, at, 3)
    identity.fields = fields_of(fields)
    local link = find_identity_link(workspace, identity.external_id)
    if not link and not identities[identity.external_id] then identities[identity.external_id] = identity end
    key.link = link or identity.id16 .. identity.external_id
  end
  key.is_linked = identity_count == 1
    or key.link ~= '' and find_identity_link(workspace, external_id_of(key.link)) == key.link
  local packed = redis.call('HGET', name_of.key_record(workspace, key.digest), 'state')
  local there = packed and read_state(packed)
  -- One that was moved away from here is back.
  if there and there.expires ~= MOVED and there.id ~= key.id then return { 'taken', 'key_' .. there.id } end
  local is_new = redis.call('SISMEMBER', arrived, pack_id(key.id)) == 0 and not (there and there.expires ~= MOVED)
  if is_new then
    key.member = member_of_api(key.id, key.digest)
    if (key.fields.start or '') ~= '' then entries[#entries + 1] = start_entry(key.fields.start, key.member) end
    keys[#keys + 1] = key
  end
end
if #keys == 0 then return { 'put', '' } end
local _, next_version, reserve_stamps = take_stamps(workspace, now, 2 * #keys, true)
local index_starts = indexing_starts(workspace, api8, entries)

local function put_windows(owner, windows)
  local list, longest = name_of.window_list(workspace, owner), 0
  for _, window in ipairs(windows) do
    local member, value, ttl = window[1], window[2], tonumber(window[3])
    redis.call('SET', name_of.window_at(workspace, owner, member), value, 'PX', int(ttl))
    redis.call('ZADD', list, int(now + ttl), member)
    longest = math.max(longest, ttl)
  end
  if longest > 0 then redis.call('PEXPIRE', list, int(longest + DAY_MS)) end
end

local function put_identity(identity)
  local record, fields = name_of.identity_record(workspace, identity.external_id), identity.fields
  local state = packed_identity.read(fields.state)
  state.version = next_version()
  fields.state, fields.leased, fields.key = packed_identity.pack(state), nil, nil
  set_fields(record, fields)
  redis.call('ZADD', name_of.identity_list(workspace), 0, identity.id16 .. identity.external_id)
  put_windows(identity.id16, identity.windows)
  limit_list.note_ends(workspace, identity.id16, {}, state.limits)
end

local function put_key(key)
  local fields, state, record = key.fields, read_state(key.fields.state), name_of.key_record(workspace, key.digest)
  local expires, restorable_until = moves.noted(fields.moved)
  state.version, state.link, state.expires, state.deleted = next_version(), key.link, expires, restorable_until ~= nil
  -- Of permissions and roles that no longer existed none is left.
  set_flag(state, 'direct', fields.direct)
  set_flag(state, 'roles', fields.roles)
  fields.state, fields.moved, fields.leased = pack_state(state), nil, nil
  redis.call('DEL', record)
  set_fields(record, fields)
  if state.deleted then
    redis.call('ZADD', name_of.deleted_keys(workspace, api8), 0, key.member)
    redis.call('ZADD', name_of.purge_queue(workspace), restorable_until, key.digest)
  else
    redis.call('ZADD', name_of.key_list(workspace, api8), 0, key.member)
    if key.is_linked then index_under_identity(workspace, key.link, state.id) end
    if state.expires < NEVER then index_expiry_of(workspace, state) end
    if state.refilled then queue_refill(workspace, key.digest, state) end
    limit_list.note_ends(workspace, state.id, {}, state.limits)
  end
  if state.holds_due ~= NEVER then
    redis.call('ZADD', name_of.hold_queue(workspace), int(state.holds_due), key.digest)
  end
  put_windows(state.id, key.windows)
  for _, hour in ipairs(key.settled) do
    redis.call('SET', name_of.settled_holds(workspace, state.id, hour[1]), hour[2], 'PX', hour[3])
  end
  redis.call('SADD', arrived, pack_id(state.id))
end

-- Write.
reserve_stamps()
for _, identity in pairs(identities) do
  put_identity(identity)
end
for _, key in ipairs(keys) do
  put_key(key)
end
index_starts()
add_records(workspace, 'key_records', #keys)
redis.call('HINCRBY', receipt, 'count', #keys)
audit(workspace, now, actor, 'api', api8, {})
return { 'put', '' }
