-- Register a server process: its release, and the data versions that it reads and writes. Each process repeats it; the
-- entry of one that does not is removed after a while.
--
-- KEYS[1]  servers     `tg:servers`
-- ARGV[1]  server      id of the process
-- ARGV[2]  versions    `<oldest> <newest> <release>`, and ` <life> <ms>` if it has seen a life of Redis for this time
--                      (src/redis/life.ts); '' removes the entry
-- ARGV[3]  life_ms     how long an entry is kept
-- ARGV[4]  count       limit of the entries
-- returns  {1 if it is registered or removed, 0 if there are too many others, id and versions of each process…}

local servers, process, versions, life_ms, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now = now_ms(ARGV[5])

local stored = redis.call('HGETALL', servers)
local old, others = {}, {}
for at = 1, #stored, 2 do
  local id, time, found = stored[at], string.match(stored[at + 1], '^(%d+) (.+)$')
  -- An entry of the future was written before the clock was set back: it would stay without end.
  local is_live = time and math.abs(now - tonumber(time)) < life_ms
  if id ~= process then
    if is_live then
      others[#others + 1] = id
      others[#others + 1] = found
    else
      old[#old + 1] = id
    end
  end
end

if #old > 0 then redis.call('HDEL', servers, unpack(old)) end
if versions == '' then
  redis.call('HDEL', servers, process)
elseif #others / 2 >= count then
  return { 0, unpack(others) }
else
  redis.call('HSET', servers, process, int(now) .. ' ' .. versions)
end
return { 1, unpack(others) }
