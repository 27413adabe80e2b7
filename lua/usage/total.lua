-- Store the usage of an API or namespace on a day, of an export. A record that exists is left as it is, so an import
-- that is repeated counts nothing twice.
--
-- derives  totals of APIs and namespaces
-- ARGV[1]  kind       'api' or 'namespace'
-- ARGV[2]  id         8 characters of an API, 16 of a namespace
-- ARGV[3]  day        since 1970
-- ARGV[4]  import_id  of the export
-- ARGV[5]  kept_ms    how long the record is kept
-- ARGV[6]  dry_run    0 | 1
-- ARGV[7…] counts     field, count, …
-- returns  1, or 0 when the record exists

local workspace, kind, id, day = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local import_id, kept_ms, dry_run, args = ARGV[4], ARGV[5], ARGV[6] == '1', ARGV
local record = kind == 'api' and name_of.api_usage(workspace, id, day) or name_of.namespace_usage(workspace, id, day)
if redis.call('EXISTS', record) == 1 then return 0 end
if dry_run then return 1 end
-- The mark for usage/part: which parts of the counts by tag or identifier of this day are stored.
redis.call('HSET', record, 'import', import_id .. '#0', unpack(args, 7))
redis.call('PEXPIRE', record, kept_ms)
return 1
