#!lua flags=no-writes
-- A part of a page of temporary limits and overrides, the first to end first, by the index of ends. Each is read from
-- its record, so what the index has of an earlier state is not returned. The part ends early if the owners have many
-- limits, so that Redis is not blocked.
--
-- derives  the index of ends, key, API and identity records and their lists, namespaces, overrides
-- ARGV[1]  kinds       first letters of the members to return: k for keys, i for identities, o for overrides
-- ARGV[2]  of          of keys the last 8 characters of the id of their API, of overrides the id of their namespace
--                      (without `rlns_`); '' for all
-- ARGV[3]  before      Unix milliseconds
-- ARGV[4]  after_ends  the end of the last member that was read, Unix milliseconds; '' for the first part
-- ARGV[5]  after       this member
-- ARGV[6]  count       limit of the members to read
-- ARGV[7]  wanted      limit of the limits and overrides to return
-- returns  {{TemporaryReply (src/records/temporary.ts)…}, the end of the last member that was read and this member,
--          both '' for none, 1 if there are more or 0}

local workspace, kinds, of, before = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local after_ends, after, count, wanted, now =
  tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), now_ms(ARGV[8])
local index = name_of.ends(workspace)

local parts = 0

-- By kind: the limits of an owner and its fields in a reply; nil if it is gone.
local OWNERS = {
  k = function(key24)
    -- The states of very many keys of a deleted API are not read.
    if redis.call('EXISTS', name_of.api_record(workspace, string.sub(key24, 17))) == 0 then return nil end
    local record, state, api_id = load_key(workspace, digest_of(workspace, 'key_' .. key24), now)
    if not record then return nil end
    local name = redis.call('HGET', record, 'name')
    return state.limits, { kind = 'k', keyId = 'key_' .. key24, apiId = api_id, keyName = name }
  end,
  i = function(id16)
    local external_id = rest_of_id(name_of.identity_list(workspace), '', id16)
    local identity = external_id and identity_of(workspace, id16 .. external_id)
    if not identity then return nil end
    return identity.limits, { kind = 'i', externalId = external_id }
  end,
}

-- Owners that were read, by the beginning of their members: their limits by name, and their fields in replies.
local owners = {}
local function owner_of(kind, id)
  if owners[kind .. id] then return owners[kind .. id] end
  local limits, shared = OWNERS[kind](id)
  local owner = { limits = {}, shared = shared }
  for _, l in ipairs(limits or {}) do
    owner.limits[l.name] = l
  end
  parts = parts + parts_of_limits(limits or {})
  owners[kind .. id] = owner
  return owner
end

local function temporary_limit(kind, id, name, ends)
  local owner = owner_of(kind, id)
  local l = owner.limits[name]
  if not l or l.ends ~= ends then return nil end
  local reply = {}
  for field, value in pairs(owner.shared) do
    reply[field] = value
  end
  return limit_reply(l, now, reply)
end

local function temporary_override(namespace16, id16, ends)
  local identifier = rest_of_id(name_of.override_list(workspace, namespace16), '', id16)
  local override = identifier and read_override(workspace, { id16 = namespace16 }, identifier, now)
  if not override or override.ends ~= ends then return nil end
  local namespace = redis.call('HGET', name_of.namespace_names(workspace), namespace16)
  return override_reply(override, identifier, now, { kind = 'o', namespace = namespace, namespaceId = namespace16 })
end

-- A member of the index that is wanted as a reply, or nil.
local function reply_of(member, ends)
  local kind = string.sub(member, 1, 1)
  if not string.find(kinds, kind, 1, true) then return nil end
  local id16, rest = string.sub(member, 2, 17), string.sub(member, 18)
  if kind == 'i' then return temporary_limit(kind, id16, rest, ends) end
  if of ~= '' and of ~= (kind == 'k' and string.sub(rest, 1, 8) or id16) then return nil end
  if kind == 'o' then return temporary_override(id16, rest, ends) end
  return temporary_limit(kind, id16 .. string.sub(rest, 1, 8), string.sub(rest, 9), ends)
end

local first = redis.call('ZCOUNT', index, '-inf', int(now))
if after_ends then
  local rank, is_there = rank_of(index, int(after_ends), after)
  first = math.max(first, is_there and rank + 1 or rank)
end
local members = redis.call('ZRANGE', index, first, first + count, 'WITHSCORES')
local rows, last_ends, last, has_more = {}, '', '', false
for at = 1, #members, 2 do
  local member, ends = members[at], tonumber(members[at + 1])
  if ends >= before then break end
  has_more = at > 2 * count or #rows == wanted or parts >= REPLY_PARTS_MAX
  if has_more then break end
  last_ends, last, parts = int(ends), member, parts + 1
  rows[#rows + 1] = reply_of(member, ends)
end
return { rows, last_ends, last, has_more and 1 or 0 }
