-- Close an API in the workspace that it was moved away from: no key can be created in it there any more.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the move, API record and list, lists of keys, deleted keys and keys on their way, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  actor      JSON, see include/audit
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  1, or 0 while it has keys

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/expiries"
-- @include "include/fields"
-- @include "include/names"

local workspace, api_id, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])

local api8 = string.sub(api_id, -8)
local move, record = read_fields(name_of.move(workspace, api8), 'state', 'to'), name_of.api_record(workspace, api8)
local has_keys = redis.call(
  'EXISTS',
  name_of.key_list(workspace, api8),
  name_of.deleted_keys(workspace, api8),
  name_of.keys_on_the_way(workspace, api8)
) > 0
if move.state ~= 'moving' then return 1 end
if has_keys then return 0 end
local name, key_count = redis.call('HGET', record, 'name'), redis.call('ZCARD', name_of.taken_keys(workspace, api8))
redis.call('HSET', name_of.move(workspace, api8), 'state', 'closed')
redis.call('UNLINK', record)
redis.call('ZREM', name_of.api_list(workspace), string.sub(api_id, 5))
remove_expiries(workspace, api8)
audit(
  workspace,
  now,
  actor,
  'api',
  api_id,
  { { 'name', name or nil }, { 'keyCount', key_count }, { 'movedTo', nil, move.to } }
)
return 1
