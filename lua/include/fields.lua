-- Fields of hashes in the form of Redis's commands and replies: name, value, ….

-- A list name, value, … of a table of fields. Fields with the value nil or false are omitted. Scripts return records in
-- this form (named replies, read by fromNamed in src/records/records.ts).
local function named(fields)
  local list, last = {}, 0
  for name, value in pairs(fields) do
    if value then
      list[last + 1], list[last + 2] = name, value
      last = last + 2
    end
  end
  return list
end

-- The fields with these names as a table; false where the record has none.
local function read_fields(record, ...)
  local fields, names = {}, { ... }
  for index, value in ipairs(redis.call('HMGET', record, ...)) do
    fields[names[index]] = value
  end
  return fields
end

-- The values of any number of fields, false where the record has none; with `only_found` without these. It reads in
-- steps, as `unpack` has a bounded stack.
local function values_of(record, names, only_found)
  local values, last = {}, 0
  for first = 1, #names, 1000 do
    for _, value in ipairs(redis.call('HMGET', record, unpack(names, first, math.min(first + 999, #names)))) do
      if value or not only_found then
        last = last + 1
        values[last] = value
      end
    end
  end
  return values
end

-- Writes a table of fields, at least one of them with a value. Fields without a value are not changed.
local function set_fields(record, fields) redis.call('HSET', record, unpack(named(fields))) end

-- Writes a field, or removes it where the value is '' or false.
local function write_field(record, field, value)
  if value and value ~= '' then
    redis.call('HSET', record, field, value)
  else
    redis.call('HDEL', record, field)
  end
end
