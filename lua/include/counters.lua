-- Counters of a key or an identity that are not in its state: of ad hoc limits, and of limits that were removed or got
-- another duration. A list names them, so that they are deleted with their owner and limited in number.
--
-- The score in the list is the time at which a counter may have expired. The list expires a day after the last counter.

local COUNTERS_MAX = 1000

-- The number of counters that the owner may still create. If the list is full, up to a hundred counters that have
-- expired are removed first.
local function counters_left(workspace, owner, now)
  local list = name_of.window_list(workspace, owner)
  local left = COUNTERS_MAX - redis.call('ZCARD', list)
  if left > 0 then return left end
  local members, ttls = redis.call('ZRANGE', list, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 100), {}
  for index, member in ipairs(members) do
    ttls[index] = redis.call('PTTL', name_of.window_at(workspace, owner, member))
  end
  for index, member in ipairs(members) do
    if ttls[index] < 0 then
      redis.call('ZREM', list, member)
      left = left + 1
    else
      redis.call('ZADD', list, int(now + ttls[index]), member)
    end
  end
  return left
end

-- Writes counters of an owner, each {member, packed window, duration, true if it is new}.
local function write_counters(workspace, owner, counters, now)
  local list, longest, has_new = name_of.window_list(workspace, owner), 0, false
  for _, counter in ipairs(counters) do
    local member, ttl = counter[1], window_log.ttl(counter[3], now)
    redis.call('SET', name_of.window_at(workspace, owner, member), counter[2], 'PX', ttl)
    if counter[4] then
      redis.call('ZADD', list, int(now + ttl), member)
      has_new = true
    end
    longest = math.max(longest, ttl)
  end
  if has_new then redis.call('PEXPIRE', list, int(longest + DAY_MS), 'NX') end
  redis.call('PEXPIRE', list, int(longest + DAY_MS), 'GT')
end

-- The members of an owner's list. A script reads them before its first write, and then erases them.
local function counters_of(workspace, owner) return redis.call('ZRANGE', name_of.window_list(workspace, owner), 0, -1) end

local function erase_counters(workspace, owner, members)
  for _, member in ipairs(members) do
    redis.call('UNLINK', name_of.window_at(workspace, owner, member))
  end
  if #members > 0 then redis.call('UNLINK', name_of.window_list(workspace, owner)) end
end
