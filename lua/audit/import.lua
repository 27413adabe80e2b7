-- Append events of an export to the audit stream with their ids. Events up to the last one of the stream are skipped:
-- ids ascend, so an import that is repeated appends the rest.
--
-- derives  the audit stream
-- ARGV[1]  events     JSON [[id, [field, value, …]]…] in ascending order
-- ARGV[2]  events_max limit of the events of the stream
-- ARGV[3]  dry_run    0 | 1
-- returns  number of new events

local workspace, events, events_max, dry_run = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], ARGV[3] == '1'
local stream = name_of.audit_stream(workspace)

-- The two numbers of an id.
local function numbers_of(id)
  local time, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(time), tonumber(number)
end

local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
local last_time, last_number = numbers_of(last and last[1] or '0-0')
local new = {}
for _, event in ipairs(events) do
  local time, number = numbers_of(event[1])
  if time > last_time or time == last_time and number > last_number then
    new[#new + 1], last_time, last_number = event, time, number
  end
end
for _, event in ipairs(dry_run and {} or new) do
  redis.call('XADD', stream, 'MAXLEN', '~', events_max, event[1], unpack(event[2]))
end
return #new
