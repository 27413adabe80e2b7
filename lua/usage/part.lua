-- Store a part of the counts by tag of an API, or by identifier of a namespace, on a day, of an export. The record of
-- the day's totals has a mark with the number of the last part, so each part is stored once: not if it is repeated, and
-- not if the totals are those of this installation.
--
-- derives  counts by tag and by identifier, totals, tags, identifiers that are counted, the roll-up queue
-- ARGV[1]  kind         't' tags, or 'i' identifiers
-- ARGV[2]  id           8 characters of an API, or 16 of a namespace
-- ARGV[3]  day          since 1970
-- ARGV[4]  part         from 1
-- ARGV[5]  import_id    of the export
-- ARGV[6]  names        JSON: the distinct tags or identifiers of this part
-- ARGV[7]  kept_ms      how long the records are kept
-- ARGV[8]  dry_run      0 | 1
-- ARGV[10…] counts      field, count, …
-- returns  1, 0 when it is stored or the totals are others, or 2 when the totals or a part before it are missing

local workspace, kind, id, day, part = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local import_id, names, kept_ms, dry_run = ARGV[5], cjson.decode(ARGV[6]), ARGV[7], ARGV[8] == '1'
local now, args = now_ms(ARGV[9]), ARGV

local is_tags = kind == 't'
local totals = is_tags and name_of.api_usage(workspace, id, day) or name_of.namespace_usage(workspace, id, day)
local record = is_tags and name_of.tag_usage(workspace, id, day) or name_of.identifier_usage(workspace, id, day)
local mark = redis.call('HGET', totals, 'import')
if dry_run then return (mark or redis.call('EXISTS', totals) == 0) and 1 or 0 end
local marked_id, last = string.match(mark or '', '^(.*)#(%d+)$')
if not mark then return redis.call('EXISTS', totals) == 1 and 0 or 2 end
if marked_id ~= import_id or tonumber(last) >= part then return 0 end
if tonumber(last) + 1 < part then return 2 end

redis.call('HSET', totals, 'import', import_id .. '#' .. int(part))
for at = 10, #args, 2 do
  redis.call('HSET', record, args[at], args[at + 1])
end
redis.call('PEXPIRE', record, kept_ms)
local queue, member = name_of.rollup_queue(workspace, kind, id, day)
redis.call('ZADD', queue, int(now), member)
if is_tags then
  if #names > 0 then redis.call('SADD', name_of.tag_names(workspace, id), unpack(names)) end
  redis.call('PEXPIRE', name_of.tag_names(workspace, id), kept_ms)
else
  local counted, new = name_of.identifiers_counted(workspace, id, day), 0
  for _, name in ipairs(names) do
    new = new + redis.call('HSETNX', counted, name, '')
  end
  redis.call('HINCRBY', counted, '', new)
  redis.call('PEXPIRE', counted, kept_ms)
end
return 1
