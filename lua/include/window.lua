-- The sliding window of DESIGN.md, "Window". A counter is one string: the units it holds, then entries of (end of
-- slice, units), oldest first. A slice is 1 ms while the limit is at most 64, else a 64th of the duration. An entry
-- leaves when its end is `duration` old: never early, and at most one slice late. No entry is ever put before another,
-- so a clock that steps back opens nothing: what is charged then joins the newest entry.

local WINDOW_TOTAL, WINDOW_ENTRY, WINDOW_HEAD = '>I7', '>I6I7', '>I7I6I7'
local WINDOW_TOTAL_BYTES, WINDOW_ENTRY_BYTES = 7, 13
-- What is answered is a JSON-safe integer, also where a duration of the greatest length ends.
local WINDOW_LATEST = 2 ^ 53 - 1

-- What counts at `now`: the units, the counter without the entries that have left ('' when nothing counts), and the end
-- of its oldest entry's slice (`now - duration` when nothing counts, so that it leaves now).
local function window_at(window, now, duration)
  if window == '' then return 0, '', now - duration end
  local total, slice_end, units = struct.unpack(WINDOW_HEAD, window)
  if slice_end + duration > now then return total, window, slice_end end
  local position, bytes = WINDOW_TOTAL_BYTES + 1, #window
  repeat
    total, position = total - units, position + WINDOW_ENTRY_BYTES
    if position > bytes then return 0, '', now - duration end
    slice_end, units = struct.unpack(WINDOW_ENTRY, window, position)
  until slice_end + duration > now
  return total, struct.pack(WINDOW_TOTAL, total) .. string.sub(window, position), slice_end
end

-- The counter after `cost` units were taken at `now`, and the end of its oldest entry's slice. `window`, `total` and
-- `oldest` come from window_at; cost is at least 1.
local function window_charged(window, total, oldest, now, limit, duration, cost)
  local slice = limit <= 64 and 1 or math.floor(duration / 64)
  local slice_end = now - now % slice + slice
  if window == '' then return struct.pack(WINDOW_HEAD, cost, slice_end, cost), slice_end end
  local newest = #window - WINDOW_ENTRY_BYTES + 1
  local newest_end, units = struct.unpack(WINDOW_ENTRY, window, newest)
  if newest_end >= slice_end then
    slice_end, cost = newest_end, units + cost
    total = total - units
  else
    newest = newest + WINDOW_ENTRY_BYTES
  end
  return struct.pack(WINDOW_TOTAL, total + cost) .. string.sub(window, WINDOW_TOTAL_BYTES + 1, newest - 1)
    .. struct.pack(WINDOW_ENTRY, slice_end, cost), oldest
end

-- When the oldest counted unit leaves; `now` when nothing counts, see window_at.
local function window_reset(oldest, duration) return math.min(oldest + duration, WINDOW_LATEST) end

-- The earliest moment at which `cost` fits if nothing else is charged; a cost above the limit, or a limit of 0, never fits,
-- which is answered as one duration from now (CONTRACT §8).
local function window_free_at(window, total, now, limit, duration, cost)
  if cost > limit or limit == 0 then return math.min(now + duration, WINDOW_LATEST) end
  local position = WINDOW_TOTAL_BYTES + 1
  while total + cost > limit do
    local slice_end, units = struct.unpack(WINDOW_ENTRY, window, position)
    total, position, now = total - units, position + WINDOW_ENTRY_BYTES, slice_end + duration
  end
  return math.min(now, WINDOW_LATEST)
end

-- How long Redis keeps a counter of its own: well past the moment its last entry leaves. Frees memory, never decides.
local function window_ttl(duration) return int(2 * duration + 60000) end
