#!lua flags=no-writes
-- A part of a page of an API's keys in order of creation, of all keys or of one identity. The part ends early if the
-- keys have many permissions or limits, or large metadata, so that Redis is not blocked.
--
-- derives  key list, key, API and identity records, permissions, roles
-- ARGV[1]  api_id
-- ARGV[2]  external_id  '' for all keys
-- ARGV[3]  after        the last key id of the part before (without `key_`), or ''
-- ARGV[4]  count        limit of the part
-- returns  {{KeyReply (src/records/records.ts)…}, the last id that was read (without `key_`) or '', 1 if there are more
--          or 0}; false when there is no such API

local workspace, api_id, external_id, after, count, now =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), now_ms(ARGV[5])
if not live_api(workspace, api_id) then return false end
local api8 = string.sub(api_id, -8)

local ids, digests = {}, {}
if external_id == '' then
  ids, digests = keys_after(workspace, api8, after, count + 1)
else
  local link = find_identity_link(workspace, external_id)
  if link then
    local list, in_record = places_of_keys(workspace, link)
    ids = owned_keys_after(list, in_record, api8, after, count + 1)
    for index, id in ipairs(ids) do
      digests[index] = digest_of(workspace, 'key_' .. id)
    end
  end
end

local keys, examined, parts = {}, 0, 0
while examined < math.min(count, #ids) and parts < REPLY_PARTS_MAX do
  examined = examined + 1
  local record, state = load_key(workspace, digests[examined], now)
  if record then
    local key, key_parts = key_reply(workspace, record, state, api_id, now)
    keys[#keys + 1], parts = named(key), parts + key_parts
  end
end
return { keys, ids[examined] or '', #ids > examined and 1 or 0 }
