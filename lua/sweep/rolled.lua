-- Write what sweep/rollup read and the caller packed: the days of some keys in place of their logs, and the same counts
-- in the sums by customer. After the last key of a list the list is kept until `drop_ms`, and then removed.
--
-- derives  the roll-up queue and its positions, lists of used keys, logs and days of keys, sums by customer
-- ARGV[1]  api8
-- ARGV[2]  day           of the list
-- ARGV[3]  position      after the last key, in the list
-- ARGV[4]  week          of the day
-- ARGV[5]  drop_ms       the time from which on the list may be removed
-- ARGV[6]  retention_ms
-- ARGV[7]  sums          1: the version of the data has sums, and they begin now if they have not yet
-- ARGV[8]  last_day      that the days of these keys may have
-- ARGV[10…] keys         of each: id16, read (bytes of the log that were read), kept (the hours of these that are not
--                        in the days), days ('' if they do not change), added (the hours that are in them now: some
--                        CUSTOMER_SUM), is_new_in_week (0 | 1)
-- returns  1 when the list is done, or 0

local workspace, api8, day, position, week, drop_ms =
  KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local retention_ms, sums, last_day, now, args =
  tonumber(ARGV[6]), ARGV[7] == '1', tonumber(ARGV[8]), now_ms(ARGV[9]), ARGV
local queue, member = name_of.rollup_queue(workspace, 'k', api8, day)
local list = name_of.used_on_day(workspace, api8, day)

-- Read. A key whose days were rewritten since, or whose log was taken, is left alone: another sweeper has rolled it up.
local writes, new_in_week, added = {}, {}, {}
for at = 10, #args, 6 do
  local id16, read, kept, days, is_new = args[at], tonumber(args[at + 1]), args[at + 2], args[at + 3], args[at + 5]
  local log_name, days_name = name_of.key_usage(workspace, id16 .. api8), name_of.key_days(workspace, id16 .. api8)
  local is_current = true
  if days ~= '' then
    local head, before = redis.call('GETRANGE', days_name, 0, KEY_DAYS_HEAD_LENGTH - 1), 0
    if head ~= '' then before = struct.unpack('>I2', head) end
    is_current = (before + 1) % 65536 == struct.unpack('>I2', days) and redis.call('STRLEN', log_name) >= tonumber(read)
    if is_current then
      local rest = kept .. redis.call('GETRANGE', log_name, read, -1)
      writes[#writes + 1] = { log_name = log_name, days_name = days_name, days = days, rest = rest }
      added[#added + 1] = args[at + 4]
    end
  end
  if is_new == '1' and is_current then new_in_week[#new_in_week + 1] = id16 end
end
local length = redis.call('LLEN', list)
local rolled = math.max(position, tonumber(redis.call('HGET', name_of.rollup_positions(workspace), member) or 0))
local summed, days_to = usage_sums.days_of(workspace, last_day, now, sums)
-- Days up to today may have been moved without sums, by a server of an earlier version or by an import, which may have
-- tomorrow, too.
local begins = sums and not summed and math.floor(now / DAY_MS) + 2
local add = usage_sums.adding(workspace, api8, added, summed, retention_ms)

-- Write.
local kept_ms = usage_kept_ms(retention_ms)
if begins then redis.call('HSET', workspace, 'summed', int(begins)) end
if days_to then redis.call('HSET', workspace, 'daysTo', int(days_to)) end
add()
for _, write in ipairs(writes) do
  redis.call('SET', write.days_name, write.days, 'PX', kept_ms)
  if write.rest == '' then
    redis.call('UNLINK', write.log_name)
  else
    redis.call('SET', write.log_name, write.rest, 'PX', kept_ms)
  end
end
if #new_in_week > 0 then
  local week_list = name_of.used_in_week(workspace, api8, week)
  redis.call('RPUSH', week_list, unpack(new_in_week))
  redis.call('PEXPIRE', week_list, int(retention_ms + 31 * DAY_MS))
end
if rolled < length then
  redis.call('HSET', name_of.rollup_positions(workspace), member, rolled)
  return 0
end
if now < drop_ms then
  redis.call('HSET', name_of.rollup_positions(workspace), member, rolled)
  redis.call('ZADD', queue, int(drop_ms), member)
else
  redis.call('UNLINK', list)
  redis.call('HDEL', name_of.rollup_positions(workspace), member)
  redis.call('ZREM', queue, member)
end
return 1
