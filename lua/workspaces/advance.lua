-- Let ids and versions of a workspace continue after a time: that of the latest imported id (include/ids).
--
-- ARGV[1]  last_ms
-- returns  nothing

local workspace, last_ms = KEYS[1], tonumber(ARGV[1])
if (tonumber(redis.call('HGET', workspace, 'last')) or 0) < last_ms then
  redis.call('HSET', workspace, 'last', int(last_ms))
end
