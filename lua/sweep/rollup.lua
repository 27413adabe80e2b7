#!lua flags=no-writes
-- What is to be rolled up next. Of used keys also the logs of some keys that were used on a day that has ended: the
-- caller packs them as days, and passes them to sweep/rolled. So that Redis computes nothing, this is two scripts.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the roll-up queue and its positions, lists of used keys, logs and days of keys, API records
-- ARGV[1]  count      limit of the keys
-- ARGV[2]  bytes_max  after this many bytes no further key is read
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  {} when nothing is due | {how long it has been due (ms), now, kind, id and day, see rollup_queue in
--          include/names}; of used keys then: {position in the list, its length, whether the API exists, {id16, log or
--          false, days or false, …}}

-- @include "include/clock"
-- @include "include/names"

local workspace, count, bytes_max, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), now_ms(ARGV[3])

local queue = name_of.rollup_queue(workspace)
local due = redis.call('ZRANGE', queue, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
if not due[1] then return {} end
local late = int(now - tonumber(due[2]))
local kind, id, day = string.match(due[1], '^(.)(%w+):(%d+)$')
if kind ~= 'k' then return { late, int(now), kind, id, day } end
local api8 = id
local list = name_of.used_on_day(workspace, api8, day)
local position = tonumber(redis.call('HGET', name_of.rollup_positions(workspace), due[1]) or 0)
local keys, bytes = {}, 0
for _, id16 in ipairs(redis.call('LRANGE', list, position, position + count - 1)) do
  local log = redis.call('GET', name_of.key_usage(workspace, id16 .. api8))
  local days = redis.call('GET', name_of.key_days(workspace, id16 .. api8))
  local at = #keys
  keys[at + 1], keys[at + 2], keys[at + 3] = id16, log, days
  bytes = bytes + #(log or '') + #(days or '')
  if bytes >= bytes_max then break end
end
local is_live = redis.call('EXISTS', name_of.api_record(workspace, api8))
return { late, int(now), kind, id, day, position, redis.call('LLEN', list), is_live, keys }
