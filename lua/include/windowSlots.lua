-- The slots of a concurrency limit are a counter whose entries end when their slots do, so that a slot is free at that
-- time even if no call gives it back.

local window_slots = {}

-- The slots in the counter from `first` to `last` of a packed value that are taken at `now`: the ends and units of its
-- entries, the sum of the units, and its step. An entry later than any hold ends was made while the clock was ahead,
-- and its hold ends immediately. Without `now` all entries are read.
function window_slots.read(text, first, last, now)
  local ends, units, total, step = {}, {}, 0, 1
  if last < first then return ends, units, total, step end
  local kind, base = WINDOW_KINDS[string.byte(text, first)], nil
  local _
  _, base, step = struct.unpack(WINDOW_HEAD, text, first)
  for position = first + WINDOW_HEAD_BYTES, last - kind.newest_bytes + 1, kind.bytes do
    local steps, taken = struct.unpack(kind.entry, text, position)
    local slot_end = base + steps * step
    if not now or slot_end > now and slot_end <= now + HOLDS_DUE_WITHIN then
      ends[#ends + 1], units[#units + 1], total = slot_end, taken, total + taken
    end
  end
  return ends, units, total, step
end

-- The number of slots that are taken at `now`, when the next one frees itself (nil if none is taken), and the number of
-- different ends: as window_slots.read, which reads all entries.
function window_slots.taken(text, first, last, now)
  if last < first then return 0, nil, 0 end
  local kind = WINDOW_KINDS[string.byte(text, first)]
  local newest_at = last - kind.newest_bytes + 1
  local steps, _, total = struct.unpack(kind.newest, text, newest_at)
  local _, base, step = struct.unpack(WINDOW_HEAD, text, first)
  if base + steps * step > now + HOLDS_DUE_WITHIN then
    local ends, _, live = window_slots.read(text, first, last, now)
    return live, ends[1], #ends
  end
  for position = first + WINDOW_HEAD_BYTES, newest_at, kind.bytes do
    local entry_steps, units = struct.unpack(kind.entry, text, position)
    local slot_end = base + entry_steps * step
    if slot_end > now then return total, slot_end, (newest_at - position) / kind.bytes + 1 end
    total = total - units
  end
  return 0, nil, 0
end

-- Packs slots, as window_slots.read returns them, with `count` more that end at this time.
function window_slots.with(ends, units, step, slot_end, count)
  local at = #ends + 1
  while at > 1 and ends[at - 1] >= slot_end do
    at = at - 1
  end
  if ends[at] == slot_end then
    units[at] = units[at] + count
  else
    table.insert(ends, at, slot_end)
    table.insert(units, at, count)
  end
  return new_window(ends, units, step)
end

-- Takes `count` slots that end at this time out of a counter of slots, or moves them to another end, which is rounded
-- up to a `slice` where there are too many ends. Returns the counter and this end; nil when they are not there: the
-- slots that another hold took may end at the same time, but then all of them are there. Also of those that have
-- expired: after the clock stepped back they would count again.
function window_slots.without(text, slot_end, count, moved_to, slice)
  local ends, units, _, step = window_slots.read(text, 1, #text, nil)
  for at, each in ipairs(ends) do
    if each == slot_end and units[at] >= count then
      units[at] = units[at] - count
      if units[at] == 0 then
        table.remove(ends, at)
        table.remove(units, at)
      end
      if moved_to then
        if #ends >= SLOT_ENDS_MAX then moved_to = math.ceil(moved_to / slice) * slice end
        return window_slots.with(ends, units, step, moved_to, count), moved_to
      end
      return #ends > 0 and new_window(ends, units, step) or ''
    end
  end
  return nil
end
