-- Add some counts by tag or identifier of a day to the counts of the whole day, and remove them. A count is moved in
-- one step, so the sums are exact at any time. A reader that reads the record in several steps compares the field ''
-- before and after.
--
-- derives  counts by tag and by identifier
-- ARGV[1]  kind          't' tags, or 'i' identifiers
-- ARGV[2]  id            8 characters of an API, or 16 of a namespace
-- ARGV[3]  day           since 1970
-- ARGV[4]  retention_ms
-- ARGV[5…] fields of the record, of some hour
-- returns  nothing

local workspace, kind, id, day, retention_ms, args = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV
local record = kind == 't' and name_of.tag_usage(workspace, id, day) or name_of.identifier_usage(workspace, id, day)

local fields = { unpack(args, 5) }
local amounts = redis.call('HMGET', record, unpack(fields))
for index, field in ipairs(fields) do
  -- Spent credits have a field with `s` before the name of the count. A field that is gone was moved by another
  -- sweeper.
  local head, rest = string.match(field, '^(s?)%d%d(.*)$')
  if amounts[index] and head then
    redis.call('HINCRBY', record, head .. WHOLE_DAY .. rest, amounts[index])
    redis.call('HDEL', record, field)
  end
end
redis.call('HINCRBY', record, '', 1)
redis.call('PEXPIRE', record, usage_kept_ms(retention_ms))
