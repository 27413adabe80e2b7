-- Set the time at which something is rolled up next, or remove it from the queue.
--
-- derives  the roll-up queue
-- ARGV[1]  member
-- ARGV[2]  due_ms     '' removes it
-- returns  nothing

local workspace, member, due_ms = KEYS[1], ARGV[1], ARGV[2]
local queue = name_of.rollup_queue(workspace)
if due_ms == '' then
  redis.call('ZREM', queue, member)
else
  redis.call('ZADD', queue, 'XX', due_ms, member)
end
