#!lua flags=no-writes
-- A page of an API's keys, or of its deleted keys, in order of creation, with all fields that an import needs. The page
-- ends early if the keys have many permissions or limits, or large metadata, so that Redis is not blocked.
--
-- derives  lists of keys and deleted keys, key, API and identity records, permissions, roles, the purge queue
-- ARGV[1]  api_id
-- ARGV[2]  deleted    0 | 1
-- ARGV[3]  after      the last key id of the page before (without `key_`), or ''
-- ARGV[4]  count      limit of the page
-- returns  {{{digest, KeyReply (src/records/records.ts) with its own permissions only, and refillDue, formerLink (to an
--          identity that was deleted: id16, externalId), restorableUntil; used_units of include/exported; {of the
--          key, and of each that draws on its balance, if it has holds {digest, HeldUnits of include/heldUnits}};
--          planned_units of include/exported}…},
--          the last key id that was read (without `key_`) if there are more, or ''}, or false when there is no such API

local workspace, api_id, is_deleted, after, count, now =
  KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[4]), now_ms(ARGV[5])
if not live_api(workspace, api_id) then return false end

local api8 = string.sub(api_id, -8)
local list = is_deleted and name_of.deleted_keys(workspace, api8) or name_of.key_list(workspace, api8)
-- After the id a member has 32 bytes, none of them above 255.
local from = after == '' and '-' or '(' .. (pack_id(after) or '') .. string.rep('\255', 33)
local members = redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local keys, examined, parts = {}, 0, 0
while examined < math.min(count, #members) and parts < REPLY_PARTS_MAX do
  examined = examined + 1
  local digest = string.sub(members[examined], PACKED_ID_BYTES + 1)
  local record, state = load_key(workspace, digest, now, is_deleted)
  if record then
    -- An export has no holds: the caller gives back what they hold of the key, as at their expiry.
    local held, holders = {}, drawn_by.keys(workspace, 'key_' .. state.id, record, now)
    holders[#holders + 1] = { record = record, state = state }
    for _, holder in ipairs(holders) do
      if holder.state.holds_due ~= NEVER then
        local _, units = held_units(holder.record, state.balances, '', now)
        held[#held + 1], parts = { string.sub(holder.record, -#digest), units }, parts + 20 * hold_buckets.work()
      end
    end
    local key, key_parts = key_reply(workspace, record, state, api_id, now)
    key.slugs, key.permissionLists = effective_slugs(workspace, redis.call('HGET', record, 'direct') or '', '')
    key.refillDue = state.refilled and int(state.refill_due)
    key.formerLink = state.link ~= '' and not key.identity and state.link
    local used = used_units(limits_in_force(workspace, state.id, state.limits, now), now)
    keys[#keys + 1] = { digest, named(key), used, held, planned_units(state.limits, now) }
    parts = parts + key_parts
  end
end
local last = #members > examined and string.sub(members[examined], 1, PACKED_ID_BYTES)
return { keys, last and unpack_id(last) or '' }
