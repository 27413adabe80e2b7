#!lua flags=no-writes
-- The next keys of an API that is to be moved, in order of creation, then its deleted keys; and what must be known of
-- their identities. A key whose identity has limits or a balance is moved with all keys of that identity, and keys that
-- draw on a balance with the key that has it.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record, lists of keys and deleted keys, key and identity records, identities' key lists
-- ARGV[1]  api8
-- ARGV[2]  deleted    0 | 1
-- ARGV[3]  after      the last key id of the page before (without `key_`), or ''
-- ARGV[4]  count      limit of the page
-- ARGV[5]  members_max  of an identity with more keys in the API, its keys are not named
-- returns  {{{digest, key id (without `key_`), externalId or '', id of the identity (16) or '', '' | 'limits' |
--          'balance' | 'spent' (what its keys share; 'spent' is a balance of 0 without a refill), number of its keys in
--          the API, 1 if it has keys of other APIs, {digests of keys with the same balance, that of the key that has it
--          first, and of these keys}}…}, last key id if there are more, or '',
--          {different lists of roles of these keys}}; none of an API that was deleted

-- @include "include/drawnBy"
-- @include "include/identities"
-- @include "include/ids"
-- @include "include/keyIds"
-- @include "include/names"

local workspace, api8, is_deleted, after, count, members_max =
  KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- What the keys of an identity share: {kind, number of its keys in the API, whether it has others, digests of these}.
local seen = {}
local function shared_of(link, identity)
  local external_id = external_id_of(link)
  if seen[external_id] then return seen[external_id][1], seen[external_id][2], seen[external_id][3], {} end
  local kind = #identity.limits > 0 and 'limits' or ''
  local record = name_of.identity_record(workspace, external_id)
  if identity.has_balance then
    local balance, _, _, refill_due, _, _ = struct.unpack(IDENTITY_BALANCE, redis.call('HGET', record, 'credits'))
    kind = (balance ~= 0 or refill_due > 0) and 'balance' or 'spent'
  end
  local list, first = name_of.identity_keys(workspace, string.sub(link, 1, 16)), redis.call('HGET', record, 'key')
  local own = count_identity_keys(workspace, link, api8)
  local has_others = redis.call('ZCARD', list) + (first and 1 or 0) > own
  local digests = {}
  if kind ~= '' and own <= members_max then
    for _, key24 in ipairs(identity_keys_after(workspace, link, api8, '', members_max, 'asc')) do
      digests[#digests + 1] = digest_of(workspace, 'key_' .. key24) or nil
    end
  end
  seen[external_id] = { kind, own, has_others and 1 or 0 }
  return kind, own, has_others and 1 or 0, digests
end

if not redis.call('HGET', name_of.api_record(workspace, api8), 'id') then return { {}, '', {} } end
local list = is_deleted and name_of.deleted_keys(workspace, api8) or name_of.key_list(workspace, api8)
-- After the id a member has 32 bytes, none of them above 255.
local from = after == '' and '-' or '(' .. (pack_id(after) or '') .. string.rep('\255', 33)
local members = redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local keys, members_named, role_lists, listed = {}, 0, {}, { [''] = true }
local examined = 0
while examined < math.min(count, #members) and members_named < 2 * members_max do
  examined = examined + 1
  local digest = string.sub(members[examined], PACKED_ID_BYTES + 1)
  local id24 = unpack_id(string.sub(members[examined], 1, PACKED_ID_BYTES)) .. api8
  local stored = redis.call('HMGET', name_of.key_record(workspace, digest), 'state', 'roles', 'drawsOn', 'drawnBy')
  local packed, roles = stored[1], stored[2] or ''
  if not listed[roles] then
    listed[roles], role_lists[#role_lists + 1] = true, roles
  end
  local link = packed and struct.unpack('>I2c0', packed, KEY_LINK_AT) or ''
  local identity, external_id = identity_of(workspace, link)
  if identity and not is_deleted then
    local kind, own, others, digests = shared_of(link, identity)
    keys[examined] = { digest, id24, external_id, string.sub(link, 1, 16), kind, own, others, digests }
  else
    keys[examined] = { digest, id24, external_id or '', identity and string.sub(link, 1, 16) or '', '', 0, 0, {} }
  end
  local members_of = keys[examined][8]
  for index, sharing in ipairs(drawn_by.sharing(workspace, stored[3], stored[4])) do
    table.insert(members_of, index, sharing)
  end
  members_named = members_named + #members_of
end
local last = #members > examined and unpack_id(string.sub(members[examined], 1, PACKED_ID_BYTES)) .. api8
return { keys, last or '', role_lists }
