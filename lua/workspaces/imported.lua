-- End an import: remove the mark of the workspace, and write one event for all records.
--
-- derives  the audit stream
-- ARGV[1]  counts     JSON [[field of the event, number of records]…]
-- returns  1

local workspace, counts, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local changes = {}
for index, count in ipairs(counts) do
  changes[index] = { count[1], nil, count[2] }
end
redis.call('HDEL', workspace, 'import')
audit(workspace, now, actor, 'workspace', string.match(workspace, '{(.+)}'), changes)
return 1
