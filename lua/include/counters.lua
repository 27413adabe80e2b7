-- Counters of a key or an identity that its record does not carry: those of limits that requests bring, and of limits that were
-- taken off or got another duration. A list names them, so that they go with their owner and are bounded in number.
--
-- The list's scores say from when on a counter may have expired. The list itself expires a day after the last of them.

-- @include "include/clock"
-- @include "include/names"
-- @include "include/window"

local COUNTERS_MAX = 1000

-- How many more counters the owner may have. Of a full list, entries of counters that have expired are removed first, a
-- hundred at a time.
local function counters_room(workspace, owner, now)
  local list = window_list(workspace, owner)
  local room = COUNTERS_MAX - redis.call('ZCARD', list)
  if room > 0 then return room end
  local members, left = redis.call('ZRANGE', list, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 100), {}
  for index, member in ipairs(members) do
    left[index] = redis.call('PTTL', window_at(workspace, owner, member))
  end
  for index, member in ipairs(members) do
    if left[index] < 0 then
      redis.call('ZREM', list, member)
      room = room + 1
    else
      redis.call('ZADD', list, int(now + left[index]), member)
    end
  end
  return room
end

-- Writes counters of an owner: {member, text, duration, is new} each.
local function write_counters(workspace, owner, counters, now)
  local list, longest, has_new = window_list(workspace, owner), 0, false
  for _, counter in ipairs(counters) do
    local member, ttl = counter[1], window_ttl(counter[3])
    redis.call('SET', window_at(workspace, owner, member), counter[2], 'PX', ttl)
    if counter[4] then
      redis.call('ZADD', list, int(now + ttl), member)
      has_new = true
    end
    longest = math.max(longest, ttl)
  end
  if has_new then redis.call('PEXPIRE', list, int(longest + DAY_MS), 'NX') end
  redis.call('PEXPIRE', list, int(longest + DAY_MS), 'GT')
end

-- What the list of an owner names: read before the first write, and then removed.
local function counters_of(workspace, owner) return redis.call('ZRANGE', window_list(workspace, owner), 0, -1) end

local function erase_counters(workspace, owner, members)
  for _, member in ipairs(members) do
    redis.call('UNLINK', window_at(workspace, owner, member))
  end
  if #members > 0 then redis.call('UNLINK', window_list(workspace, owner)) end
end
