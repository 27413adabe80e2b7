-- Begin to move an API to another workspace, or continue. Its keys stay where they are until they are taken.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record, the move, the receipt, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  to         the other workspace (ws_…)
-- ARGV[3]  root       for a new move: the digest of a root key of the other workspace, in hexadecimal digits
-- ARGV[4]  actor      JSON, see include/audit
-- ARGV[5]  now_ms     '' for Redis's clock
-- returns  {'begun', name of the API ('' if it was closed), its time of creation, digest of the root key} |
--          {'moved', '', '', digest of the root key} | {'api_not_found'} | {'other', the workspace it is moved to} |
--          {'receiving', the workspace from which it is still being moved here}

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/fields"
-- @include "include/names"

local workspace, api_id, to, root, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], now_ms(ARGV[5])

local api8 = string.sub(api_id, -8)
local record = name_of.move(workspace, api8)
local api = read_fields(name_of.api_record(workspace, api8), 'id', 'name', 'created')
local move = read_fields(record, 'api', 'to', 'root', 'state')
if api.id and api.id ~= api_id or move.api and move.api ~= api_id then return { 'api_not_found' } end
-- An API that came back may be moved again.
if move.state and not (move.state == 'moved' and api.id) then
  if move.to ~= to then return { 'other', move.to } end
  if move.state == 'moved' then return { 'moved', '', '', move.root } end
  return { 'begun', api.name or '', api.created or '', move.root }
end
if not api.id then return { 'api_not_found' } end
-- The first move would remove counts of the API that comes back before it has ended.
local receiving = redis.call('HGET', name_of.receipt(workspace, api8), 'from')
if receiving then return { 'receiving', receiving } end

redis.call('HSET', record, 'api', api_id, 'to', to, 'root', root, 'state', 'moving', 'part', 0)
audit(workspace, now, actor, 'api', api_id, { { 'movesTo', nil, to } })
return { 'begun', api.name, api.created, root }
