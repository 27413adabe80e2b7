-- The sliding window of DESIGN.md, "Window". A counter is one string: the units it holds, then entries of (end of
-- slice, units), oldest first. A slice is 1 ms while the limit is at most 64, else a 64th of the duration. An entry
-- leaves when its end is `duration` old: never early, and at most one slice late. No entry is ever put before another,
-- so a clock that steps back opens nothing: what is charged then joins the newest entry.

local WINDOW_TOTAL, WINDOW_ENTRY, WINDOW_TOTAL_BYTES, WINDOW_ENTRY_BYTES = '>I7', '>I6I7', 7, 13

-- What counts at `now`: the units, and the counter without the entries that have left ('' when nothing counts).
local function window_at(window, now, duration)
  if window == '' then return 0, '' end
  local total = struct.unpack(WINDOW_TOTAL, window)
  local position, bytes = WINDOW_TOTAL_BYTES + 1, #window
  while position <= bytes do
    local slice_end, units = struct.unpack(WINDOW_ENTRY, window, position)
    if slice_end + duration > now then break end
    total, position = total - units, position + WINDOW_ENTRY_BYTES
  end
  if position > bytes then return 0, '' end
  if position == WINDOW_TOTAL_BYTES + 1 then return total, window end
  return total, struct.pack(WINDOW_TOTAL, total) .. string.sub(window, position)
end

-- The counter after `cost` units were taken at `now`. `window` comes from window_at; cost is at least 1.
local function window_charged(window, total, now, limit, duration, cost)
  local slice = limit <= 64 and 1 or math.floor(duration / 64)
  local slice_end = now - now % slice + slice
  local head = struct.pack(WINDOW_TOTAL, total + cost)
  if window ~= '' then
    local newest = #window - WINDOW_ENTRY_BYTES + 1
    local newest_end, units = struct.unpack(WINDOW_ENTRY, window, newest)
    if newest_end >= slice_end then
      return head .. string.sub(window, WINDOW_TOTAL_BYTES + 1, newest - 1) .. struct.pack(WINDOW_ENTRY, newest_end, units + cost)
    end
  end
  return head .. string.sub(window, WINDOW_TOTAL_BYTES + 1) .. struct.pack(WINDOW_ENTRY, slice_end, cost)
end

-- When the oldest counted unit leaves; `now` when nothing counts.
local function window_reset(window, now, duration)
  if window == '' then return now end
  return struct.unpack('>I6', window, WINDOW_TOTAL_BYTES + 1) + duration
end

-- The earliest moment at which `cost` fits if nothing else is charged; a cost above the limit, or a limit of 0, never fits,
-- which is answered as one duration from now (CONTRACT §8).
local function window_free_at(window, total, now, limit, duration, cost)
  if cost > limit or limit == 0 then return now + duration end
  local position = WINDOW_TOTAL_BYTES + 1
  while total + cost > limit do
    local slice_end, units = struct.unpack(WINDOW_ENTRY, window, position)
    total, position, now = total - units, position + WINDOW_ENTRY_BYTES, slice_end + duration
  end
  return now
end

-- How long Redis keeps a counter of its own: well past the moment its last entry leaves. Frees memory, never decides.
local function window_ttl(duration) return int(2 * duration + 60000) end
