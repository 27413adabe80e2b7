-- Store the usage of some keys of an API, of an export: their days, and the lists by which queries find them. A key
-- whose usage is stored is left as it is, so an import that is repeated counts nothing twice.
--
-- derives  logs and days of keys, lists of used keys, the roll-up queue and its positions, lists of former keys, sums
--          by customer
-- ARGV[1]  api8
-- ARGV[2]  request        JSON {keys: [{id16, part (from 1), week, weeks, days (lists of used keys that the sweeper has
--                         rolled up), recent (the same of days that it has not), deletedHour (of a deleted key),
--                         owners: [[externalId, hour]…]}], lastDay (of all days), dryRun}. Without owners these are []
-- ARGV[3]  hourly_days    days before today of which usage is kept by hour
-- ARGV[4]  retention_ms
-- ARGV[6…] days           of each key: its days, src/usage/days.ts, '' for none, and the same as some CUSTOMER_SUM
-- returns  {for each key 1, 0 when its usage is stored, or 2 when a part before it is not}. In a dry run that is 1

local workspace, api8, request = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
local hourly_days, retention_ms, now, args = tonumber(ARGV[3]), tonumber(ARGV[4]), now_ms(ARGV[5]), ARGV

-- Read.
local stored, by_week, by_day, added, seen = {}, {}, {}, {}, {}
local function add_to(lists, number, id16)
  lists[number] = lists[number] or {}
  table.insert(lists[number], id16)
end
for index, key in ipairs(request.keys) do
  local log, days = name_of.key_usage(workspace, key.id16 .. api8), name_of.key_days(workspace, key.id16 .. api8)
  local head = redis.call('GETRANGE', days, 0, KEY_DAYS_HEAD_LENGTH - 1)
  -- The number of rewrites is that of the parts, until the sweeper rolls up the key.
  local last = head ~= '' and struct.unpack('>I2', head) or 0
  local is_new = last == key.part - 1 and (key.part > 1 or redis.call('EXISTS', log) == 0)
  -- The hour in which a key was used last is in its state only.
  local digest = is_new and key.part == 1 and digest_of(workspace, 'key_' .. key.id16 .. api8)
  local state = digest and redis.call('HGET', name_of.key_record(workspace, digest), 'state')
  if state and string.sub(state, -USAGE_LENGTH) ~= NO_USAGE then is_new = false end
  local given = args[2 * index + 4]
  if given == '' then is_new = not redis.call('ZSCORE', name_of.former_keys(workspace, api8), key.id16 .. api8) end
  -- A line may be repeated, and must not be added to the sums twice.
  is_new = is_new and not seen[key.id16]
  seen[key.id16] = true
  local is_misplaced = given ~= '' and key.part > last + 1
  if is_misplaced and request.dryRun then
    is_new, is_misplaced = true, false
  end
  stored[index] = is_new and 1 or is_misplaced and 2 or 0
  if is_new then added[#added + 1] = args[2 * index + 5] end
  for _, week in ipairs(is_new and key.weeks or {}) do
    add_to(by_week, week, key.id16)
  end
  for _, day in ipairs(is_new and key.days or {}) do
    add_to(by_day, day, key.id16)
  end
end
if request.dryRun then return stored end
local rolled = {}
for day in pairs(by_day) do
  local list, _, member =
    name_of.used_on_day(workspace, api8, int(day)), name_of.rollup_queue(workspace, 'k', api8, day)
  local length = redis.call('LLEN', list)
  local position = tonumber(redis.call('HGET', name_of.rollup_positions(workspace), member)) or 0
  rolled[day] = { list = list, member = member, is_complete = position >= length, length = length }
end
local summed, days_to = usage_sums.days_of(workspace, request.lastDay, now)
local add = usage_sums.adding(workspace, api8, added, summed, retention_ms)

-- Write.
if days_to then redis.call('HSET', workspace, 'daysTo', int(days_to)) end
add()
local kept_ms, list_kept_ms = usage_kept_ms(retention_ms), int(retention_ms + 31 * DAY_MS)
for index, key in ipairs(request.keys) do
  local days, id24 = args[2 * index + 4], key.id16 .. api8
  if stored[index] == 1 then
    local name = name_of.key_days(workspace, id24)
    if days ~= '' then
      if key.part > 1 then
        redis.call('APPEND', name, string.sub(days, KEY_DAYS_HEAD_LENGTH + 1))
        redis.call('SETRANGE', name, 0, string.sub(days, 1, KEY_DAYS_HEAD_LENGTH))
      else
        redis.call('SET', name, days)
      end
      redis.call('PEXPIRE', name, kept_ms)
    end
    for _, day in ipairs(key.recent) do
      add_used(workspace, id24, day * 24, retention_ms)
    end
    for _, owner in ipairs(key.owners) do
      add_former(name_of.former_members(workspace, owner[1]), id24, owner[2] * HOUR_MS, retention_ms)
    end
    if key.deletedHour then
      add_former(name_of.former_keys(workspace, api8), id24, key.deletedHour * HOUR_MS, retention_ms)
    end
  end
end
for week, id16s in pairs(by_week) do
  local list = name_of.used_in_week(workspace, api8, int(week))
  redis.call('RPUSH', list, unpack(id16s))
  redis.call('PEXPIRE', list, list_kept_ms)
end
for day, id16s in pairs(by_day) do
  local of = rolled[day]
  redis.call('RPUSH', of.list, unpack(id16s))
  redis.call('PEXPIRE', of.list, list_kept_ms)
  -- The keys are in the list of the week: the sweeper only drops the list, when the hours of the day are dropped.
  if of.is_complete then
    redis.call('HSET', name_of.rollup_positions(workspace), of.member, of.length + #id16s)
    redis.call('ZADD', name_of.rollup_queue(workspace), int((day + hourly_days + 1) * DAY_MS), of.member)
  end
end
return stored
