#!lua flags=no-writes
-- The totals of APIs or namespaces by day, or what one identifier has of those of namespaces. Most records that are asked for
-- do not exist, so many are asked for at once and only those that do are told.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  totals of APIs, namespaces and identifiers
-- ARGV[1]  kind        'api', 'namespace' or 'identifier'
-- ARGV[2]  ids         8 characters of an API, 16 of a namespace, one after the other
-- ARGV[3]  days        numbers since 1970, with a blank between them; with the ids some hundred records at most
-- ARGV[4]  identifier  of the last kind
-- returns  for each record that exists: number of its id in `ids`, from 1; its day; {field, count, …}, those of an identifier
--          named as the namespace's own are

-- @include "include/names"

local workspace, kind, ids, days, identifier = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function record_of(id, day)
  if kind == 'api' then return api_usage(workspace, id, day) end
  if kind == 'namespace' then return namespace_usage(workspace, id, day) end
  return identifier_usage(workspace, id, day)
end

-- Every field that such a record may have, and what it is answered as.
local fields, named = {}, {}
for hour = 0, 23 do
  local head = string.format('%02d', hour)
  if kind == 'api' then
    for outcome = 1, OUTCOMES_COUNTED do
      named[#named + 1], named[#named + 2] = head .. outcome, 's' .. head .. outcome
    end
  else
    named[#named + 1], named[#named + 2] = head .. 'p', head .. 'b'
  end
end
for index, name in ipairs(named) do
  fields[index] = kind == 'identifier' and name .. identifier or name
end

local answer, id_bytes = {}, kind == 'api' and 8 or 16
for number = 1, #ids / id_bytes do
  local id = string.sub(ids, (number - 1) * id_bytes + 1, number * id_bytes)
  for day in string.gmatch(days, '%d+') do
    local record = record_of(id, day)
    if redis.call('EXISTS', record) == 1 then
      local found = {}
      for index, count in ipairs(redis.call('HMGET', record, unpack(fields))) do
        if count then
          found[#found + 1], found[#found + 2] = named[index], count
        end
      end
      local at = #answer
      answer[at + 1], answer[at + 2], answer[at + 3] = number, day, found
    end
  end
end
return answer
