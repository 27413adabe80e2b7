#!lua flags=no-writes
-- List open holds of a key, the first to expire first. Holds that have expired and are not settled yet are left out.
--
-- derives  key and API records
-- ARGV[1]  key_id
-- ARGV[2]  after      the last hold of the page before: its expiry (ms), `_`, and its suffix; '' for the first page
-- ARGV[3]  count      limit of the holds
-- returns  {holds as named replies, 1 if there are more else 0, number of open holds}, or false

local workspace, key_id, after, count, now = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), now_ms(ARGV[4])
local record, state = load_key(workspace, digest_of(workspace, key_id), now)
if not record then return false end

-- A suffix as it is in an id, and back; nil if no id has it.
local function printed(suffix)
  if string.byte(suffix) ~= 46 then return suffix end
  return string.format('.%d', (struct.unpack('>I5', suffix, 2)))
end
local function parsed(suffix)
  if string.byte(suffix) ~= 46 then return suffix end
  local number = tonumber(string.sub(suffix, 2))
  return number and number < 2 ^ 40 and struct.pack(HOLD_NUMBER, 46, number) or nil
end

local after_due, after_suffix = string.match(after, '^(%d+)_(.+)$')
after_due, after_suffix = tonumber(after_due) or 0, after_suffix and parsed(after_suffix) or ''

local h, wanted = hold_list.read(record), count + 1
-- The first open holds after a place, the number of all that are open, and the last wanted one.
local open, total, last = {}, 0, { due = NEVER, suffix = '' }
local function cut()
  table.sort(open, hold_list.is_before)
  for index = #open, wanted + 1, -1 do
    open[index] = nil
  end
  last = open[wanted] or last
end
local place = { due = after_due, suffix = after_suffix }
hold_list.each_due(h, function(hold_state, due, first, _, part)
  if hold_state == hold_format.RELEASED or due <= now then return end
  total = total + 1
  if due < after_due or due > last.due then return end
  local suffix = struct.unpack('>Bc0', part, first + HOLD_SUFFIX_AT - 1)
  local hold = { due = due, suffix = suffix, part = part, first = first }
  if hold_list.is_before(place, hold) and hold_list.is_before(hold, last) then open[#open + 1] = hold end
  if #open > 8 * wanted then cut() end
end)
cut()

local replies = {}
for index = 1, math.min(count, #open) do
  local hold, windows, slots = hold_format.unpack(h, open[index].part, open[index].first), {}, {}
  for number, w in ipairs(hold.windows) do
    windows[number] = { w.name, int(w.cost), w.of_identity and 1 or 0 }
  end
  for number, slot in ipairs(hold.slots) do
    slots[number] = { slot.name, int(slot.cost) }
  end
  replies[index] = named({
    suffix = printed(hold.suffix),
    at = int(hold.at),
    due = int(hold.due),
    charges = hold.state == hold_format.CHARGES and 1,
    cost = (state.limited or hold.more and hold.more.number) and int(hold.cost),
    windows = windows,
    slots = #slots > 0 and slots,
  })
end
return { replies, #open > count and 1 or 0, total }
