#!lua flags=no-writes
-- A page of an API's keys in order of creation, with all fields that an import needs. The page ends early if the keys
-- have many permissions or limits, or large metadata, so that Redis is not blocked.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key list, key, API and identity records, permissions, roles
-- ARGV[1]  api_id
-- ARGV[2]  after      the last key id of the page before (without `key_`), or ''
-- ARGV[3]  count      limit of the page
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  {{{digest, KeyReply (src/records/records.ts) with its own permissions only}…}, the last key id that was read
--          (without `key_`) if there are more, or ''}, or false when there is no such API

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/keyIds"
-- @include "include/keyRecords"
-- @include "include/permissions"
-- @include "include/reply"

local workspace, api_id, after, count, now = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), now_ms(ARGV[4])
if not live_api(workspace, api_id) then return false end

local ids, digests = keys_after(workspace, string.sub(api_id, -8), after, count + 1)
local keys, examined, parts = {}, 0, 0
while examined < math.min(count, #ids) and parts < REPLY_PARTS_MAX do
  examined = examined + 1
  local digest = digests[examined]
  local record, state = load_key(workspace, digest, now)
  if record then
    local key, key_parts = key_reply(workspace, record, state, api_id)
    key.slugs, key.permissionLists = effective_slugs(workspace, redis.call('HGET', record, 'direct') or '', '')
    keys[#keys + 1], parts = { digest, named(key) }, parts + key_parts
  end
end
return { keys, #ids > examined and ids[examined] or '' }
