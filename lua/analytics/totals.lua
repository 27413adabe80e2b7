#!lua flags=no-writes
-- The totals by day of APIs or namespaces, or of one identifier in namespaces. Most of the wanted records do not exist,
-- so one call reads many and returns those that exist.
--
-- derives  totals of APIs, namespaces and identifiers
-- ARGV[1]  kind        'api', 'namespace' or 'identifier'
-- ARGV[2]  ids         8 characters of an API, 16 of a namespace, one after the other
-- ARGV[3]  days        numbers since 1970, separated by spaces; the number of days times that of ids is at most some
--                      hundred
-- ARGV[4]  identifier  for the kind 'identifier'
-- returns  {for each record that exists: the index of its id in `ids`, from 1; its day; {field, count, …}}. The fields
--          of an identifier are those of a namespace, without the identifier

local workspace, kind, ids, days, identifier = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function record_of(id, day)
  if kind == 'api' then return name_of.api_usage(workspace, id, day) end
  if kind == 'namespace' then return name_of.namespace_usage(workspace, id, day) end
  return name_of.identifier_usage(workspace, id, day)
end

-- The fields that such a record may have, and their names in the reply.
local fields, reply_names = {}, {}
for hour = 0, 23 do
  local head = string.format('%02d', hour)
  if kind == 'api' then
    for _, outcome in ipairs(COUNTED_OUTCOMES) do
      reply_names[#reply_names + 1], reply_names[#reply_names + 2] = head .. outcome, 's' .. head .. outcome
    end
  else
    reply_names[#reply_names + 1], reply_names[#reply_names + 2] = head .. 'p', head .. 'b'
  end
end
if kind == 'identifier' then
  -- The total of the whole day, after it was rolled up.
  reply_names[#reply_names + 1], reply_names[#reply_names + 2] = WHOLE_DAY .. 'p', WHOLE_DAY .. 'b'
end
for index, name in ipairs(reply_names) do
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
          found[#found + 1], found[#found + 2] = reply_names[index], count
        end
      end
      local at = #answer
      answer[at + 1], answer[at + 2], answer[at + 3] = number, day, found
    end
  end
end
return answer
