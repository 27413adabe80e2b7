-- End the forwarding of keys that were moved to another workspace, some keys at a time.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the move, key records, the list of taken keys, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  count      limit of the keys
-- ARGV[3]  actor      JSON, see include/audit
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  {'more' | 'ended' | 'moving' | 'none', the workspace that it was moved to or '', number of keys}

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/fields"
-- @include "include/ids"
-- @include "include/names"

local workspace, api_id, count, actor, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], now_ms(ARGV[4])

local api8 = string.sub(api_id, -8)
local record, list = name_of.move(workspace, api8), name_of.taken_keys(workspace, api8)
local move = read_fields(record, 'api', 'state', 'to')
if move.api ~= api_id then return { 'none', '', 0 } end
if move.state ~= 'moved' then return { 'moving', move.to, 0 } end

-- Read.
local members, removed = redis.call('ZRANGE', list, 0, count - 1), {}
for _, member in ipairs(members) do
  local key = name_of.key_record(workspace, string.sub(member, PACKED_ID_BYTES + 1))
  local packed = redis.call('HGET', key, 'state')
  -- A key that came back is no longer sent on.
  if packed and struct.unpack(KEY_EXPIRES, packed, KEY_FIXED_EXPIRES_AT) == MOVED then removed[#removed + 1] = key end
end
local is_last = redis.call('ZCARD', list) == #members

-- Write.
if #removed > 0 then redis.call('UNLINK', unpack(removed)) end
if #members > 0 then redis.call('ZREM', list, unpack(members)) end
if is_last then
  redis.call('UNLINK', record)
  audit(workspace, now, actor, 'api', api_id, { { 'movedTo', move.to } })
end
return { is_last and 'ended' or 'more', move.to, #members }
