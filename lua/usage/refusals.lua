-- Append rows of recent refusals of an hour, of an export, if the rows before them are all that is stored. So a part
-- that is repeated is skipped, and so is an hour of which this installation has rows of its own.
--
-- derives  rows of refusals
-- ARGV[1]  hour       since 1970
-- ARGV[2]  offset     bytes of the rows before these
-- ARGV[3]  rows       src/usage/refusalRows.ts
-- ARGV[4]  kept_ms    how long the rows are kept
-- ARGV[5]  dry_run    0 | 1
-- returns  1, or 0 when they were not stored

local workspace, hour, offset, rows, kept_ms, dry_run =
  KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5] == '1'
local record = name_of.refusal_rows(workspace, hour)
local length = redis.call('STRLEN', record)
if dry_run then return (length == 0 or length == offset) and 1 or 0 end
if length ~= offset then return 0 end
redis.call('APPEND', record, rows)
redis.call('PEXPIRE', record, kept_ms)
return 1
