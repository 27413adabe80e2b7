-- Rename an API.
--
-- derives  API record, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  name
-- returns  {'updated'} | {'api_not_found'}

local workspace, api_id, name, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])
local record = name_of.api_record(workspace, string.sub(api_id, -8))
local api = read_fields(record, 'id', 'name')
if api.id ~= api_id then return { 'api_not_found' } end
set_fields(record, { name = name })
audit(workspace, now, actor, 'api', api_id, { { 'name', api.name, name } })
return { 'updated' }
