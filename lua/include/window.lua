-- The sliding window of DESIGN.md, "Window". A counter holds units by slices of time, oldest first. A slice is 1 ms while
-- the limit is at most 64, else a 64th of the duration; an entry leaves when the end of its slice is `duration` old: never
-- early, and at most one slice late. No entry is ever put before another, so a clock that steps back opens nothing: what is
-- charged then joins the newest entry.
--
-- A counter is one string: kind (1 byte), units in all (7), base (6), step (6), then entries of (end of slice, as steps from
-- base; units). The kind is the narrowest whose entries can say it, as every charge writes the whole of it.

local WINDOW_KINDS = {
  { entry = '>I2I2', head = '>BI7I6I6I2I2', bytes = 4, steps_max = 2 ^ 16 - 1, units_max = 2 ^ 16 - 1 },
  { entry = '>I4I4', head = '>BI7I6I6I4I4', bytes = 8, steps_max = 2 ^ 32 - 1, units_max = 2 ^ 32 - 1 },
  { entry = '>I6I7', head = '>BI7I6I6I6I7', bytes = 13, steps_max = 2 ^ 48 - 1, units_max = 2 ^ 53 },
}
local WINDOW_HEAD, WINDOW_HEAD_BYTES, WINDOW_TOTAL_BYTES = '>BI7I6I6', 20, 8
-- What is answered is a JSON-safe integer, also where a duration of the greatest length ends.
local WINDOW_LATEST = 2 ^ 53 - 1

-- What counts at `now`: the units, the counter without the entries that have left ('' when nothing counts), and the end
-- of its oldest entry's slice (`now - duration` when nothing counts, so that it leaves now).
local function window_at(window, now, duration)
  if window == '' then return 0, '', now - duration end
  local kind = WINDOW_KINDS[string.byte(window)]
  local _, total, base, step, steps, units = struct.unpack(kind.head, window)
  local slice_end = base + steps * step
  if slice_end + duration > now then return total, window, slice_end end
  local position, bytes = WINDOW_HEAD_BYTES + 1, #window
  repeat
    total, position = total - units, position + kind.bytes
    if position > bytes then return 0, '', now - duration end
    steps, units = struct.unpack(kind.entry, window, position)
    slice_end = base + steps * step
  until slice_end + duration > now
  return total, string.sub(window, 1, 1) .. struct.pack('>I7', total)
    .. string.sub(window, WINDOW_TOTAL_BYTES + 1, WINDOW_HEAD_BYTES) .. string.sub(window, position), slice_end
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
  local parts = { struct.pack(WINDOW_HEAD, number, total, base, step) }
  for index, slice_end in ipairs(ends) do
    parts[index + 1] = struct.pack(WINDOW_KINDS[number].entry, (slice_end - base) / step, units[index])
  end
  return table.concat(parts)
end

-- The counter after `cost` units were taken at `now`, and the end of its oldest entry's slice. `window`, `total` and
-- `oldest` come from window_at; cost is at least 1.
local function window_charged(window, total, oldest, now, limit, duration, cost)
  local slice = limit <= 64 and 1 or math.floor(duration / 64)
  local slice_end = now - now % slice + slice
  if window == '' then return new_window({ slice_end }, { cost }, slice), slice_end end
  local kind = WINDOW_KINDS[string.byte(window)]
  local number, _, base, step = struct.unpack(WINDOW_HEAD, window)
  local newest = #window - kind.bytes + 1
  local steps, units = struct.unpack(kind.entry, window, newest)
  local joins = base + steps * step >= slice_end
  if joins then
    units = units + cost
  else
    steps, units, newest = (slice_end - base) / step, cost, newest + kind.bytes
  end
  if units <= kind.units_max and steps <= kind.steps_max and steps % 1 == 0 then
    return struct.pack('>BI7', number, total + cost) .. string.sub(window, WINDOW_TOTAL_BYTES + 1, newest - 1)
      .. struct.pack(kind.entry, steps, units), oldest
  end

  -- This kind of entry cannot say it: write all of them anew.
  local ends, all_units = {}, {}
  for position = WINDOW_HEAD_BYTES + 1, newest - 1, kind.bytes do
    local entry_steps, entry_units = struct.unpack(kind.entry, window, position)
    ends[#ends + 1], all_units[#all_units + 1] = base + entry_steps * step, entry_units
  end
  ends[#ends + 1], all_units[#all_units + 1] = base + steps * step, units
  return new_window(ends, all_units, slice), oldest
end

-- When the oldest counted unit leaves; `now` when nothing counts, see window_at.
local function window_reset(oldest, duration) return math.min(oldest + duration, WINDOW_LATEST) end

-- The earliest moment at which `cost` fits if nothing else is charged; a cost above the limit, or a limit of 0, never fits,
-- which is answered as one duration from now (CONTRACT §8).
local function window_free_at(window, total, now, limit, duration, cost)
  if cost > limit or limit == 0 then return math.min(now + duration, WINDOW_LATEST) end
  if total + cost <= limit then return math.min(now, WINDOW_LATEST) end
  local kind = WINDOW_KINDS[string.byte(window)]
  local _, _, base, step = struct.unpack(WINDOW_HEAD, window)
  local position = WINDOW_HEAD_BYTES + 1
  while total + cost > limit do
    local steps, units = struct.unpack(kind.entry, window, position)
    total, position, now = total - units, position + kind.bytes, base + steps * step + duration
  end
  return math.min(now, WINDOW_LATEST)
end

-- How long Redis keeps a counter of its own: well past the moment its last entry leaves. Frees memory, never decides.
local function window_ttl(duration) return int(2 * duration + 60000) end
