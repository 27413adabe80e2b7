-- Add counts of a day of an API that is moved here, if this part of them has not arrived before.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the receipt, totals and counts by tag of the API, its tags, the roll-up queue
-- ARGV[1]  api8
-- ARGV[2]  from       the other workspace (ws_…)
-- ARGV[3]  part       its number
-- ARGV[4]  kind       'a' totals, or 't' counts by tag
-- ARGV[5]  day        since 1970
-- ARGV[6]  tags       JSON: the distinct tags of this part
-- ARGV[7]  kept_ms    how long the records are kept; 0 if they are too old
-- ARGV[8]  now_ms     '' for Redis's clock
-- ARGV[9…] counts     field, count, …
-- returns  1, or 0 if it is not received here

-- @include "include/clock"
-- @include "include/names"

local workspace, api8, from, part, kind, day = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local tags, kept_ms, now, args = cjson.decode(ARGV[6]), ARGV[7], now_ms(ARGV[8]), ARGV

local receipt = name_of.receipt(workspace, api8)
local stored = redis.call('HMGET', receipt, 'from', 'part')
if stored[1] ~= from then return 0 end
if tonumber(stored[2]) >= part then return 1 end

redis.call('HSET', receipt, 'part', part)
if kept_ms == '0' then return 1 end
local record = kind == 'a' and name_of.api_usage(workspace, api8, day) or name_of.tag_usage(workspace, api8, day)
for at = 9, #args, 2 do
  -- `import` is the mark of an import, and '' counts the steps of the roll-up.
  if args[at] ~= 'import' and args[at] ~= '' then redis.call('HINCRBY', record, args[at], args[at + 1]) end
end
redis.call('PEXPIRE', record, kept_ms)
if kind == 't' then
  local queue, member = name_of.rollup_queue(workspace, 't', api8, day)
  redis.call('ZADD', queue, int(now), member)
  if #tags > 0 then
    redis.call('SADD', name_of.tag_names(workspace, api8), unpack(tags))
    redis.call('PEXPIRE', name_of.tag_names(workspace, api8), kept_ms)
  end
end
return 1
