#!lua flags=no-writes
-- List open holds of a key, the first to expire first. Those that have expired and are not settled yet are left out.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key and API records
-- ARGV[1]  key_id
-- ARGV[2]  after      the last hold of the page before: its expiry (ms), `_`, and its suffix; '' for the first page
-- ARGV[3]  count      limit of the holds
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  {holds as named replies, 1 if there are more else 0, number of open holds}, or false

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/holds"
-- @include "include/keyIds"
-- @include "include/keyRecords"

local workspace, key_id, after, count, now = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), now_ms(ARGV[4])
local record, state = load_key(workspace, digest_of(workspace, key_id), now)
if not record then return false end

local after_due, after_suffix = string.match(after, '^(%d+)_(.+)$')
after_due, after_suffix = tonumber(after_due) or 0, after_suffix and hold_list.parsed(after_suffix) or ''

local open, total = hold_list.first_open(hold_list.read(record), now, after_due, after_suffix, count + 1)

local replies = {}
for index = 1, math.min(count, #open) do
  local hold, windows, slots = open[index], {}, {}
  for number, w in ipairs(hold.windows) do
    windows[number] = { w.name, int(w.cost), w.of_identity and 1 or 0 }
  end
  for number, slot in ipairs(hold.slots) do
    slots[number] = { slot.name, int(slot.cost) }
  end
  replies[index] = named({
    suffix = hold_list.printed(hold.suffix),
    at = int(hold.at),
    due = int(hold.due),
    charges = hold.state == hold_list.CHARGES and 1,
    cost = (state.limited or hold.more and hold.more.number) and int(hold.cost),
    windows = windows,
    slots = #slots > 0 and slots,
  })
end
return { replies, #open > count and 1 or 0, total }
