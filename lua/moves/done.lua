-- Remove what is stored of keys that have arrived in another workspace, except the states by which their verifications
-- are sent on; and identities that have no keys left.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key and identity records, lists of keys on their way and of former keys, identities and their key lists,
--          windows and their lists, the index of ends, usage of keys, holds that were settled
-- ARGV[1]  api8
-- ARGV[2]  digests    32 bytes each
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  the number of keys that were on their way

-- @include "include/clock"
-- @include "include/counters"
-- @include "include/identities"
-- @include "include/identityBalance"
-- @include "include/keyIds"
-- @include "include/limits"
-- @include "include/moves"
-- @include "include/names"
-- @include "include/records"
-- @include "include/state"

local workspace, api8, digests, now = KEYS[1], ARGV[1], moves.digests(ARGV[2]), now_ms(ARGV[3])

-- Read.
local keys, links = {}, {}
for _, digest in ipairs(digests) do
  local record = name_of.key_record(workspace, digest)
  local noted = redis.call('HGET', record, 'moved')
  if noted then
    local state = read_state(redis.call('HGET', record, 'state'))
    local _, restorable_until, with_all = moves.noted(noted)
    local key = { digest = digest, record = record, state = state }
    key.counters = counters_of(workspace, state.id)
    local identity = not restorable_until and identity_of(workspace, state.link)
    if identity then
      local of = links[state.link] or { count = 0, members = {} }
      links[state.link], of.count, of.with_all = of, of.count + 1, of.with_all or with_all
      of.limits = identity.limits
      of.members[member_under_identity(state.id)] = true
    end
    keys[#keys + 1] = key
  end
end
for link, of in pairs(links) do
  local external_id, id16 = external_id_of(link), string.sub(link, 1, 16)
  of.record, of.list = name_of.identity_record(workspace, external_id), name_of.identity_keys(workspace, id16)
  local first = redis.call('HGET', of.record, 'key')
  of.has_first = first and of.members[first]
  of.is_empty = redis.call('ZCARD', of.list) + (first and 1 or 0) == of.count
  if of.is_empty then
    of.counters = counters_of(workspace, id16)
  elseif of.with_all and identity_balance.is_flagged(redis.call('HGET', of.record, 'state')) then
    -- A key was added to it since. The balance is in the other workspace now.
    of.balance = identity_balance.read(of.record, now)
  end
end

-- Write.
for link, of in pairs(links) do
  local id16 = string.sub(link, 1, 16)
  if of.is_empty then
    redis.call('UNLINK', of.record, of.list)
    erase_counters(workspace, id16, of.counters)
    limit_list.note_ends(workspace, id16, of.limits, {})
    redis.call('ZREM', name_of.identity_list(workspace), id16 .. external_id_of(link))
  else
    if of.has_first then redis.call('HDEL', of.record, 'key') end
    if of.balance then
      of.balance.balance, of.balance.refill_due, of.balance.refill_amount = 0, 0, 0
      identity_balance.write(of.balance)
    end
  end
end
for _, key in ipairs(keys) do
  local state, hour = key.state, math.floor(now / HOUR_MS)
  erase_counters(workspace, state.id, key.counters)
  -- Also of an identity that was deleted and may be restored.
  if state.link ~= '' then
    local list = name_of.identity_keys(workspace, string.sub(state.link, 1, 16))
    redis.call('ZREM', list, member_under_identity(state.id))
  end
  redis.call('UNLINK', name_of.key_usage(workspace, state.id), name_of.key_days(workspace, state.id))
  for past = hour - 4, hour + 1 do
    redis.call('UNLINK', name_of.settled_holds(workspace, state.id, int(past)))
  end
  -- Of no use for anything but key_holds.moved (decide/verification/due).
  local rest = {
    id = state.id,
    version = state.version,
    expires = MOVED,
    deleted = true,
    refill_amount = 0,
    refill_day = 0,
    refill_due = 0,
    link = '',
    limits = {},
    balance = 0,
    last_used = 0,
    usage = NO_USAGE,
  }
  redis.call('DEL', key.record)
  redis.call('HSET', key.record, 'state', pack_state(rest))
  redis.call('ZREM', name_of.keys_on_the_way(workspace, api8), member_of_api(state.id, key.digest))
  redis.call('ZREM', name_of.former_keys(workspace, api8), state.id)
end
add_records(workspace, 'key_records', -#keys)
return #keys
