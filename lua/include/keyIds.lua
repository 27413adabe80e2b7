-- The ids of keys. A key's id ends with the last 8 characters of its API's id, so that the list of an API's keys also
-- finds a key by its id, without another index.

-- A key (24) as a member of the list of its API's keys: the first 16 of its id, packed, and its digest.
local function member_of_api(id24, digest) return pack_id(string.sub(id24, 1, 16)) .. digest end

-- The digest of the member of a list of keys with this packed id, or nil.
local function digest_after(list, id)
  local member = redis.call('ZRANGE', list, '[' .. id, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if member and string.sub(member, 1, PACKED_ID_BYTES) == id then return string.sub(member, PACKED_ID_BYTES + 1) end
end

-- The digest of the key with this id in the list that `list_of_api` names, or nil.
local function digest_in(workspace, list_of_api, key_id)
  local id24 = string.sub(key_id, 5)
  if #id24 ~= 24 or string.sub(key_id, 1, 4) ~= 'key_' then return nil end
  local id = pack_id(string.sub(id24, 1, 16))
  return id and digest_after(list_of_api(workspace, string.sub(id24, 17)), id)
end

-- The digest of the key with this id, or nil. A deleted key has none.
local function digest_of(workspace, key_id) return digest_in(workspace, name_of.key_list, key_id) end

-- The digest of the deleted key with this id, or nil when there is none or its record was removed.
local function deleted_digest_of(workspace, key_id) return digest_in(workspace, name_of.deleted_keys, key_id) end

-- The next keys (24) of an API in order of creation, after a key id (without `key_`) or '', and their digests.
local function keys_after(workspace, api8, after, count)
  -- After the id a member has 32 bytes, none of them above 255.
  local from = after == '' and '-' or '(' .. (pack_id(after) or '') .. string.rep('\255', 33)
  local keys, digests = {}, {}
  for index, member in
    ipairs(redis.call('ZRANGE', name_of.key_list(workspace, api8), from, '+', 'BYLEX', 'LIMIT', 0, count))
  do
    keys[index], digests[index] =
      unpack_id(string.sub(member, 1, PACKED_ID_BYTES)) .. api8, string.sub(member, PACKED_ID_BYTES + 1)
  end
  return keys, digests
end
