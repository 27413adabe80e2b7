-- A sliding-window log with sub-windows, delta-encoded (docs/limits.md#algorithm). A counter has an entry per slice of
-- time in which units were charged, oldest first. A slice is 1 ms if the limit is at most 64, else a 64th of the
-- duration. An entry expires when the end of its slice is `duration` ago: never early, and at most one slice late.
-- Entries are only added at the end.
--
-- The clock may step. A step forward is time that has passed. After a step back, an entry that ends more than a slice
-- from now was charged while the clock was ahead. `window_log.repaired` sets its end to now plus a slice, once, and
-- that is stored. So it counts for one duration from the step on: the step neither admits units early nor blocks them
-- for longer.
--
-- The counter of a quota has the same form (include/quotaLog). Where functions take a duration, they take its code,
-- too: the slice of a quota is its period.
--
-- A counter is packed: kind (1), base (6), step (6), then for each entry the end of its slice (in steps from base) and
-- its units, then the sum of all units (7). It is empty when nothing counts. The kind is the width of the entries, the
-- narrowest that fits. For example 3 units in the millisecond that ends at 1763596805257, and no others:
--
--   01    01 9a 9e 8f a4 89  00 00 00 00 00 01  00 03  00 00 00 00 00 00 03
--   kind  base               step 1 ms          0, 3   sum
--
-- A charge usually changes only the end of a counter. So a counter is read within a packed value, from byte `first` to
-- `last`. A charge returns how many of these bytes stay, and the new bytes after them.

-- Returned in place of the units of a counter that was charged while the clock was ahead.
local AHEAD = -1

-- The functions of windows besides a charge.
local window_log = {}

-- The formats of a kind of counter: `entry`, two fields of `bytes`; `newest`, the newest entry and the sum.
local function kind_of(entry, bytes, steps_max, units_max)
  return {
    entry = '>' .. entry,
    newest = '>' .. entry .. 'I7',
    bytes = bytes,
    newest_bytes = bytes + 7,
    steps_max = steps_max,
    units_max = units_max,
  }
end
local WINDOW_KINDS = {
  kind_of('BB', 2, 2 ^ 8 - 1, 2 ^ 8 - 1),
  kind_of('I2I2', 4, 2 ^ 16 - 1, 2 ^ 16 - 1),
  kind_of('I4I4', 8, 2 ^ 32 - 1, 2 ^ 32 - 1),
  kind_of('I6I7', 13, 2 ^ 48 - 1, 2 ^ 53),
}
local WINDOW_HEAD = '>BI6I6'
local WINDOW_HEAD_BYTES = 13
-- With the oldest entry if the kind is the narrowest, as it mostly is: so that is not read by itself.
local WINDOW_START = '>BI6I6BB'
-- Times in responses are at most the largest safe integer of JSON, even after the longest duration.
local WINDOW_LATEST = 2 ^ 53 - 1

-- Packs a counter from the `ends` and `units` of its entries, in steps of `step` if that divides all distances, else of
-- 1 ms.
local function new_window(ends, units, step)
  local base, total, units_max = ends[1], 0, 0
  for index, slice_end in ipairs(ends) do
    if (slice_end - base) % step ~= 0 then step = 1 end
    total, units_max = total + units[index], math.max(units_max, units[index])
  end
  local number = 1
  local steps_max = (ends[#ends] - base) / step
  while steps_max > WINDOW_KINDS[number].steps_max or units_max > WINDOW_KINDS[number].units_max do
    number = number + 1
  end
  local parts = { struct.pack(WINDOW_HEAD, number, base, step) }
  for index, slice_end in ipairs(ends) do
    parts[index + 1] = struct.pack(WINDOW_KINDS[number].entry, (slice_end - base) / step, units[index])
  end
  parts[#parts + 1] = struct.pack('>I7', total)
  return table.concat(parts)
end

-- The length of a slice of a limit above FINE_LIMIT. Nothing else divides a duration (test/repo.test.ts).
function window_log.slice_of(duration) return (duration - duration % 64) / 64 end

-- The end of the slice at a time, as window_charge computes it too, without this call.
function window_log.slice_end(at, limit, duration)
  if duration >= QUOTA_CODES then
    local _, ends = quota_periods.at(duration, at)
    return ends
  end
  local slice = limit <= FINE_LIMIT and 1 or window_log.slice_of(duration)
  return at - at % slice + slice
end

-- The same for what a hold or a lease charged, with a limit of at most FINE_LIMIT (`is_fine`) or above.
function window_log.charged_end(at, is_fine, duration)
  return window_log.slice_end(at, is_fine and FINE_LIMIT or FINE_LIMIT + 1, duration)
end

-- Checks `cost` units at `now` on the counter from `first` to `last` of a packed value, and charges them if they fit
-- and `may_charge`. Returns AHEAD when the counter was charged while the clock was ahead: then the caller stores the
-- result of window_log.repaired and calls again. Otherwise returns
--   total       units that count, without `cost`
--   first_live  position of the first entry that counts, nil when none does
--   oldest      end of the oldest slice that counts; `now - duration` when none does, so that it expires now
-- and, when units were charged,
--   kept_until  position of the last old byte that stays
--   suffix      the bytes that follow it
-- One function checks and charges, because a charge needs the fields that a check reads.
local function window_charge(text, first, last, now, limit, duration, cost, may_charge)
  local total, first_live, oldest, slice = 0, nil, now - duration, window_log.slice_of(duration)
  local kind, base, step, steps, units, newest, kept
  if last >= first then
    local oldest_steps, oldest_units
    kind, base, step, oldest_steps, oldest_units = struct.unpack(WINDOW_START, text, first)
    first_live = first + WINDOW_HEAD_BYTES
    if kind > 1 then
      oldest_steps, oldest_units = struct.unpack(WINDOW_KINDS[kind].entry, text, first_live)
    end
    kind = WINDOW_KINDS[kind]
    kept = last - kind.newest_bytes
    steps, units, total = struct.unpack(kind.newest, text, kept + 1)
    newest = base + steps * step
    if newest - now > slice then return AHEAD end
    oldest = base + oldest_steps * step
    while oldest + duration <= now do
      total, first_live = total - oldest_units, first_live + kind.bytes
      if first_live > kept + 1 then
        total, first_live, oldest = 0, nil, now - duration
        break
      end
      oldest_steps, oldest_units = struct.unpack(kind.entry, text, first_live)
      oldest = base + oldest_steps * step
    end
  end
  if not may_charge or cost == 0 or total + cost > limit then return total, first_live, oldest end

  if limit <= FINE_LIMIT then slice = 1 end
  local slice_end = now - now % slice + slice
  if not first_live then return total, first_live, slice_end, first - 1, new_window({ slice_end }, { cost }, slice) end
  if newest >= slice_end then
    units = units + cost
  else
    steps, units, kept = (slice_end - base) / step, cost, kept + kind.bytes
  end
  if units <= kind.units_max and steps <= kind.steps_max and steps % 1 == 0 then
    local suffix = struct.pack(kind.newest, steps, units, total + cost)
    if first_live == first + WINDOW_HEAD_BYTES then return total, first_live, oldest, kept, suffix end
    return total, first_live, oldest, first + WINDOW_HEAD_BYTES - 1, string.sub(text, first_live, kept) .. suffix
  end

  -- The new entry does not fit in entries of this width: pack all entries again.
  local ends, all_units = {}, {}
  for position = first_live, kept, kind.bytes do
    local entry_steps, entry_units = struct.unpack(kind.entry, text, position)
    ends[#ends + 1], all_units[#all_units + 1] = base + entry_steps * step, entry_units
  end
  ends[#ends + 1], all_units[#all_units + 1] = base + steps * step, units
  return total, first_live, oldest, first - 1, new_window(ends, all_units, slice)
end

-- The end of the newest slice of a counter that is not empty.
function window_log.newest(text)
  local kind = WINDOW_KINDS[string.byte(text)]
  local _, base, step = struct.unpack(WINDOW_HEAD, text)
  local steps = struct.unpack(kind.newest, text, #text - kind.newest_bytes + 1)
  return base + steps * step
end

-- A counter in which entries that end more than a slice after `now` end at `now` plus a slice. Returns the same text
-- when there are none; '' is an empty counter.
function window_log.repaired(text, now, duration)
  if text == '' then return text end
  local kind = WINDOW_KINDS[string.byte(text)]
  local newest_at = #text - kind.newest_bytes + 1
  local _, base, step = struct.unpack(WINDOW_HEAD, text)
  local slice = window_log.slice_of(duration)
  local latest, ends, units = now + slice, {}, {}
  if base + struct.unpack(kind.newest, text, newest_at) * step <= latest then return text end
  for position = WINDOW_HEAD_BYTES + 1, newest_at, kind.bytes do
    local entry_steps, entry_units = struct.unpack(kind.entry, text, position)
    local slice_end, count = math.min(base + entry_steps * step, latest), #ends
    if ends[count] == slice_end then
      units[count] = units[count] + entry_units
    else
      ends[count + 1], units[count + 1] = slice_end, entry_units
    end
  end
  return new_window(ends, units, slice)
end

-- The time at which the oldest entry expires; `now` when nothing counts (see `oldest` of window_charge and
-- quota_charge).
function window_log.reset(oldest, duration)
  if duration >= QUOTA_CODES then return oldest end
  local reset = oldest + duration
  return reset < WINDOW_LATEST and reset or WINDOW_LATEST
end

-- The earliest time at which `cost` fits if nothing else is charged. If the cost is above the limit, or the limit is 0,
-- it never fits: then one duration from now (docs/contract.md §8).
function window_log.free_at(text, first, total, first_live, now, limit, duration, cost)
  if duration >= QUOTA_CODES then return window_log.slice_end(now, limit, duration) end
  if cost > limit or limit == 0 then return math.min(now + duration, WINDOW_LATEST) end
  if total + cost > limit then
    local kind = WINDOW_KINDS[string.byte(text, first)]
    local _, base, step = struct.unpack(WINDOW_HEAD, text, first)
    repeat
      local steps, units = struct.unpack(kind.entry, text, first_live)
      total, first_live, now = total - units, first_live + kind.bytes, base + steps * step + duration
    until total + cost <= limit
  end
  return math.min(now, WINDOW_LATEST)
end

-- Time to live in Redis of a counter with a record of its own, in milliseconds: at least a minute longer than its last
-- entry counts. It frees memory and never decides. A quota may have an entry of the next period (include/quotaLog),
-- which is at most an eighth longer than the present one: its exact end would take longer to compute.
function window_log.ttl(duration, now)
  if duration >= QUOTA_CODES then
    local starts, ends = quota_periods.at(duration, now)
    return math.ceil(ends + (ends - starts) * 9 / 8) - now + 60000
  end
  return duration + window_log.slice_of(duration) + 60000
end
