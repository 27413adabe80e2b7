-- The sliding window of DESIGN.md, "Window". A counter holds units by slices of time, oldest first. A slice is 1 ms while
-- the limit is at most 64, else a 64th of the duration; an entry leaves when the end of its slice is `duration` old: never
-- early, and at most one slice late. No entry is ever put before another, so a clock that steps back opens nothing: what is
-- charged then joins the newest entry.
--
-- A counter is bytes: kind (1), base (6), step (6), then entries of (end of slice, as steps from base; units), then units
-- in all (7); none at all when nothing counts. The kind is the narrowest whose entries can say it. A charge mostly changes
-- the end of it only, so counters are read where they lie, `first` to `last` of some text, and answered as what is kept of
-- these bytes and what follows.

local WINDOW_KINDS = {
  { entry = '>BB', charged = '>BBI7', head = '>BI6I6BB', bytes = 2, steps_max = 2 ^ 8 - 1, units_max = 2 ^ 8 - 1 },
  { entry = '>I2I2', charged = '>I2I2I7', head = '>BI6I6I2I2', bytes = 4, steps_max = 2 ^ 16 - 1, units_max = 2 ^ 16 - 1 },
  { entry = '>I4I4', charged = '>I4I4I7', head = '>BI6I6I4I4', bytes = 8, steps_max = 2 ^ 32 - 1, units_max = 2 ^ 32 - 1 },
  { entry = '>I6I7', charged = '>I6I7I7', head = '>BI6I6I6I7', bytes = 13, steps_max = 2 ^ 48 - 1, units_max = 2 ^ 53 },
}
local WINDOW_HEAD, WINDOW_HEAD_BYTES, WINDOW_TOTAL, WINDOW_TOTAL_BYTES = '>BI6I6', 13, '>I7', 7
-- What is answered is a JSON-safe integer, also where a duration of the greatest length ends.
local WINDOW_LATEST = 2 ^ 53 - 1

-- What counts at `now`: the units, where the first entry that counts stands (nil when nothing does), and the end of that
-- entry's slice (`now - duration` when nothing counts, so that it leaves now).
local function window_at(text, first, last, now, duration)
  if last < first then return 0, nil, now - duration end
  local kind = WINDOW_KINDS[string.byte(text, first)]
  local total, position, entries_end = struct.unpack(WINDOW_TOTAL, text, last - WINDOW_TOTAL_BYTES + 1), first + WINDOW_HEAD_BYTES, last - WINDOW_TOTAL_BYTES
  local _, base, step, steps, units = struct.unpack(kind.head, text, first)
  local slice_end = base + steps * step
  while slice_end + duration <= now do
    total, position = total - units, position + kind.bytes
    if position > entries_end then return 0, nil, now - duration end
    steps, units = struct.unpack(kind.entry, text, position)
    slice_end = base + steps * step
  end
  return total, position, slice_end
end

-- A counter from scratch: of `ends` and `units` of its entries, with `step` between ends where that divides them all.
local function new_window(ends, units, step)
  local base, total, units_max = ends[1], 0, 0
  for index, slice_end in ipairs(ends) do
    if (slice_end - base) % step ~= 0 then step = 1 end
    total, units_max = total + units[index], math.max(units_max, units[index])
  end
  local number = 1
  local steps_max = (ends[#ends] - base) / step
  while steps_max > WINDOW_KINDS[number].steps_max or units_max > WINDOW_KINDS[number].units_max do number = number + 1 end
  local parts = { struct.pack(WINDOW_HEAD, number, base, step) }
  for index, slice_end in ipairs(ends) do
    parts[index + 1] = struct.pack(WINDOW_KINDS[number].entry, (slice_end - base) / step, units[index])
  end
  parts[#parts + 1] = struct.pack(WINDOW_TOTAL, total)
  return table.concat(parts)
end

-- Takes `cost` units, at least 1, at `now`. `total` and `live` (where the first entry that counts stands) come from
-- window_at. Answers the last of the old bytes that stay, what follows them, and when the oldest slice ends if that is new.
local function window_charged(text, first, last, total, live, now, limit, duration, cost)
  local slice = limit <= 64 and 1 or (duration - duration % 64) / 64
  local slice_end = now - now % slice + slice
  if not live then return first - 1, new_window({ slice_end }, { cost }, slice), slice_end end
  local kind = WINDOW_KINDS[string.byte(text, first)]
  local _, base, step = struct.unpack(WINDOW_HEAD, text, first)
  local kept = last - WINDOW_TOTAL_BYTES - kind.bytes
  local steps, units = struct.unpack(kind.entry, text, kept + 1)
  if base + steps * step >= slice_end then
    units = units + cost
  else
    steps, units, kept = (slice_end - base) / step, cost, kept + kind.bytes
  end
  if units <= kind.units_max and steps <= kind.steps_max and steps % 1 == 0 then
    local charged = struct.pack(kind.charged, steps, units, total + cost)
    if live == first + WINDOW_HEAD_BYTES then return kept, charged end
    return first + WINDOW_HEAD_BYTES - 1, string.sub(text, live, kept) .. charged
  end

  -- This kind of entry cannot say it: write all of them anew.
  local ends, all_units = {}, {}
  for position = live, kept, kind.bytes do
    local entry_steps, entry_units = struct.unpack(kind.entry, text, position)
    ends[#ends + 1], all_units[#all_units + 1] = base + entry_steps * step, entry_units
  end
  ends[#ends + 1], all_units[#all_units + 1] = base + steps * step, units
  return first - 1, new_window(ends, all_units, slice)
end

-- When the oldest counted unit leaves; `now` when nothing counts, see window_at.
local function window_reset(oldest, duration)
  local reset = oldest + duration
  return reset < WINDOW_LATEST and reset or WINDOW_LATEST
end

-- The earliest moment at which `cost` fits if nothing else is charged; a cost above the limit, or a limit of 0, never fits,
-- which is answered as one duration from now (CONTRACT §8).
local function window_free_at(text, first, total, live, now, limit, duration, cost)
  if cost > limit or limit == 0 then return math.min(now + duration, WINDOW_LATEST) end
  if total + cost > limit then
    local kind = WINDOW_KINDS[string.byte(text, first)]
    local _, base, step = struct.unpack(WINDOW_HEAD, text, first)
    repeat
      local steps, units = struct.unpack(kind.entry, text, live)
      total, live, now = total - units, live + kind.bytes, base + steps * step + duration
    until total + cost <= limit
  end
  return math.min(now, WINDOW_LATEST)
end

-- How long Redis keeps a counter of its own: well past the moment its last entry leaves. Frees memory, never decides.
local function window_ttl(duration) return int(2 * duration + 60000) end
