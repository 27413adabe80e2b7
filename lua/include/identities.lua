-- Identities and the keys that are linked to them.
--
-- The link of a key is the id of its identity (16), then its externalId; '' without an identity. When an identity is
-- deleted, its keys keep their links, to an id that no longer exists; so they are linked again if it is restored.
--
-- One key of an identity is stored in its record, field `key`, and all others in its list. A new key is stored in the
-- record if the record has none, and is not moved until it is unlinked. So an identity with one key, as most have, has
-- no list. Only the functions in this file know these two places.

-- The externalId of a link, '' without an identity.
local function external_id_of(link) return string.sub(link, LINK_EXTERNAL_ID_AT) end

-- The externalId of an identity by its id or externalId, or nil.
local function external_id_for(workspace, id_or_external_id)
  local external_id = rest_of_id(name_of.identity_list(workspace), 'id_', id_or_external_id)
  if external_id then return external_id end
  if redis.call('EXISTS', name_of.identity_record(workspace, id_or_external_id)) == 1 then return id_or_external_id end
end

-- `record` is the name of its record, here and below.
local function read_identity(record, packed)
  local identity = packed_identity.read(packed)
  identity.plan_id = identity.has_plan and redis.call('HGET', record, 'planId') or nil
  return identity
end

local function load_identity(record) return read_identity(record, redis.call('HGET', record, 'state')) end

-- The identity of a link: its state and externalId, or nil when there is none or it was deleted.
local function identity_of(workspace, link)
  if link == '' then return nil end
  local external_id = string.sub(link, 17)
  local record = name_of.identity_record(workspace, external_id)
  local packed = redis.call('HGET', record, 'state')
  if not packed or string.sub(packed, 1, 16) ~= string.sub(link, 1, 16) then return nil end
  return read_identity(record, packed), external_id
end

-- The metadata of an identity, or false.
local function identity_meta(record) return redis.call('HGET', record, 'meta') end

-- The balance of an identity as it is now; nil if it has none.
local function balance_of_identity(record, identity, now)
  return identity.has_balance and identity_balance.read(record, now) or nil
end

-- An identity as a named reply (IdentityReply in src/records/records.ts), and the number of its parts. `balance` is nil
-- if it has none; `key_count`, and `restorable_until` of a deleted one, are left out where they are nil. A reply for an
-- export has what an import needs of it, too.
local function identity_reply(identity, external_id, meta, balance, now, key_count, is_export, restorable_until)
  local limits = limit_replies(identity.limits, now)
  local reply = { id = identity.id16, externalId = external_id, meta = meta, limits = limits, keyCount = key_count }
  reply.restorableUntil, reply.planId = restorable_until, identity.plan_id
  if balance then
    -- An export has no holds: they have expired in it.
    reply.balance = int(is_export and math.min(balance.balance + balance.held, SAFE_INTEGER) or balance.balance)
    if balance.refill_due > 0 then
      reply.refillAmount, reply.refillDay = int(balance.refill_amount), balance.refill_day
      reply.refillDue = is_export and int(balance.refill_due)
    end
  end
  return named(reply), parts_of_limits(identity.limits) + parts_of_meta(meta)
end

-- The link to an identity that exists, or nil.
local function find_identity_link(workspace, external_id)
  local packed = redis.call('HGET', name_of.identity_record(workspace, external_id), 'state')
  return packed and string.sub(packed, 1, 16) .. external_id
end

-- Whether the identity of a link exists. If that of a key's field `formerLink` does, one of the next steps of
-- relinking.lua links the key again.
local function is_live_link(workspace, link)
  return link ~= '' and find_identity_link(workspace, external_id_of(link)) == link
end

local function create_identity(workspace, external_id, next_id, next_version)
  local id16 = next_id()
  local state = packed_identity.pack({ id16 = id16, version = next_version(), limits = {} })
  redis.call('HSET', name_of.identity_record(workspace, external_id), 'state', state)
  redis.call('ZADD', name_of.identity_list(workspace), 0, id16 .. external_id)
  return id16 .. external_id
end

-- A key (24) as it is stored under an identity: the last 8 characters of its id first, so that the keys of an API are
-- consecutive.
local function member_under_identity(key24) return string.sub(key24, 17) .. string.sub(key24, 1, 16) end

-- The reverse.
local function key_of_member(member) return string.sub(member, 9) .. string.sub(member, 1, 8) end

-- Whether the identity of a link was deleted and can be restored.
local function is_restorable_link(workspace, link)
  return link ~= '' and redis.call('EXISTS', name_of.deleted_identity(workspace, string.sub(link, 1, 16))) == 1
end

-- Links a key. `link` is that of a live identity, of one that can be restored (`is_deleted`), or ''.
local function index_under_identity(workspace, link, key24, is_deleted)
  if link == '' then return end
  local record, member = name_of.identity_record(workspace, string.sub(link, 17)), member_under_identity(key24)
  if is_deleted or redis.call('HSETNX', record, 'key', member) == 0 then
    redis.call('ZADD', name_of.identity_keys(workspace, string.sub(link, 1, 16)), 0, member)
  end
end

-- Finds where a key of an identity is stored, before the first write of a script. Returns a function that removes it
-- there.
local function unindexing_under_identity(workspace, link, key24)
  if link == '' then
    return function() end
  end
  local record, member = name_of.identity_record(workspace, string.sub(link, 17)), member_under_identity(key24)
  -- The record may be of a new identity with the same externalId, which does not have this key.
  if redis.call('HGET', record, 'key') == member then
    return function() redis.call('HDEL', record, 'key') end
  end
  return function() redis.call('ZREM', name_of.identity_keys(workspace, string.sub(link, 1, 16)), member) end
end

-- The two places of the keys of an identity: the name of their list, and the one in its record, or false.
local function places_of_keys(workspace, link)
  return name_of.identity_keys(workspace, string.sub(link, 1, 16)),
    redis.call('HGET', name_of.identity_record(workspace, string.sub(link, 17)), 'key')
end

-- The next keys (24) in an API of an identity, or of a plan (`in_record` is false), oldest or newest first (`order` asc
-- or desc), after a key id (without `key_`) or ''. With `from_after` that key is the first one.
local function owned_keys_after(list, in_record, api8, after, count, order, from_after)
  local is_newest_first = order == 'desc'
  local last = after ~= '' and api8 .. string.sub(after, 1, 16)
  local from = last and (from_after and '[' or '(') .. last or is_newest_first and '(' .. api8 .. '~' or '[' .. api8
  local members = is_newest_first and redis.call('ZRANGE', list, from, '[' .. api8, 'BYLEX', 'REV', 'LIMIT', 0, count)
    or redis.call('ZRANGE', list, from, '(' .. api8 .. '~', 'BYLEX', 'LIMIT', 0, count)
  local function is_after(one, other)
    return is_newest_first and comes_before(one, other) or not is_newest_first and comes_before(other, one)
  end
  local is_next = in_record and string.sub(in_record, 1, 8) == api8
  if is_next and (not last or is_after(in_record, last) or from_after and in_record == last) then
    local at = 1
    while members[at] and is_after(in_record, members[at]) do
      at = at + 1
    end
    table.insert(members, at, in_record)
  end
  local keys = {}
  for index = 1, math.min(count, #members) do
    keys[index] = string.sub(members[index], 9) .. api8
  end
  return keys
end

-- The number of these keys.
local function count_owned_keys(list, in_record, api8)
  local in_list = redis.call('ZLEXCOUNT', list, '[' .. api8, '(' .. api8 .. '~')
  return in_list + (in_record and string.sub(in_record, 1, 8) == api8 and 1 or 0)
end

-- The number of all keys of an identity.
local function count_all_identity_keys(workspace, record, identity)
  return redis.call('ZCARD', name_of.identity_keys(workspace, identity.id16)) + redis.call('HEXISTS', record, 'key')
end

-- A page of all keys (24) of an identity that exists (`id16` ''), or of a deleted one, and where the next page begins;
-- false after the last one. It reads `count` members of the list; the first page also has the key in the record.
local function identity_keys_page(workspace, external_id, id16, after, count)
  local keys = {}
  if id16 == '' then
    local stored = redis.call('HMGET', name_of.identity_record(workspace, external_id), 'state', 'key')
    if not stored[1] then return keys, false end
    id16 = string.sub(stored[1], 1, 16)
    if after == '' and stored[2] then keys[1] = key_of_member(stored[2]) end
  end
  local from = after == '' and '-' or '(' .. after
  local members = redis.call('ZRANGE', name_of.identity_keys(workspace, id16), from, '+', 'BYLEX', 'LIMIT', 0, count)
  for _, member in ipairs(members) do
    keys[#keys + 1] = key_of_member(member)
  end
  return keys, #members == count and members[count]
end

-- Removes the record of an identity and its counters. The list of its keys, then including the one in the record, is
-- kept for a month longer than their usage. Returns the number of the counters.
local function erase_identity(workspace, record, id16, usage_retention_ms)
  local list = name_of.identity_keys(workspace, id16)
  local in_record, counters = redis.call('HGET', record, 'key'), counters_of(workspace, id16)
  redis.call('UNLINK', record)
  erase_counters(workspace, id16, counters)
  if in_record then redis.call('ZADD', list, 0, in_record) end
  redis.call('PEXPIRE', list, int(usage_retention_ms + 31 * DAY_MS))
  return #counters
end
