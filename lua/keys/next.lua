#!lua flags=no-writes
-- The next keys of several APIs, oldest or newest first: all keys, deleted ones, or those of an identity or a plan;
-- optionally only keys whose string begins with a text.
--
-- derives  lists of keys, of deleted keys and of keys of plans, key records, identity's record and key list
-- ARGV[1]  source       keys | deleted | identity | plan
-- ARGV[2]  owner        the externalId, or the planId, or ''
-- ARGV[3]  start        the beginning of the key string, more or less of it than is stored; '' for all keys
-- ARGV[4]  order        asc | desc
-- ARGV[5]  count        limit of the keys to read of each API
-- ARGV[6]  sources      JSON [[api8, the last key id that was read (without `key_`) or '', whether to begin with that
--                       key]…]
-- returns  {for each API {the keys, each 44 bytes as in its list, how many were read, the last of these or '', how many
--          there are}}

local workspace, source, owner, start, order, count, sources =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), cjson.decode(ARGV[6])

local function members_of_list(list, after, from_after)
  local id = after ~= '' and (pack_id(after) or '')
  -- After the id a member has 32 bytes, none of them above 255.
  local beyond = string.rep('\255', 33)
  if order == 'desc' then
    local from = id and '(' .. id .. (from_after and beyond or '') or '+'
    return redis.call('ZRANGE', list, from, '-', 'BYLEX', 'REV', 'LIMIT', 0, count)
  end
  local from = id and (from_after and '[' .. id or '(' .. id .. beyond) or '-'
  return redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, count)
end

-- The list of the keys of an identity or a plan, nil if there is no such identity.
local list_of_owner, in_record = source == 'plan' and name_of.plan_keys(workspace, owner) or nil, false
local link = source == 'identity' and find_identity_link(workspace, owner)
if link then
  list_of_owner, in_record = places_of_keys(workspace, link)
end
local function members_of_owner(api8, after, from_after)
  local members = {}
  for index, key24 in ipairs(owned_keys_after(list_of_owner, in_record, api8, after, count, order, from_after)) do
    -- Every key in the list exists. If one did not, its place must stay, as the caller counts the members.
    members[index] = member_of_api(key24, digest_of(workspace, 'key_' .. key24) or string.rep('\0', 32))
  end
  return members
end

local function reply_of(members, total)
  local found = members
  if start ~= '' then
    found = {}
    for _, member in ipairs(members) do
      local digest = string.sub(member, PACKED_ID_BYTES + 1)
      if key_begins_with(workspace, digest, start) then found[#found + 1] = member end
    end
  end
  return { table.concat(found), #members, members[#members] or '', total }
end

local replies = {}
for index, api in ipairs(sources) do
  local api8, after, from_after = api[1], api[2], api[3]
  if source ~= 'identity' and source ~= 'plan' then
    local list = source == 'deleted' and name_of.deleted_keys(workspace, api8) or name_of.key_list(workspace, api8)
    replies[index] = reply_of(members_of_list(list, after, from_after), redis.call('ZCARD', list))
  elseif list_of_owner then
    local total = count_owned_keys(list_of_owner, in_record, api8)
    replies[index] = reply_of(members_of_owner(api8, after, from_after), total)
  else
    replies[index] = { '', 0, '', 0 }
  end
end
return replies
