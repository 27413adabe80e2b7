-- When slots of concurrency limits are given back.

-- When a slot is given back whose hold ends at `expires`: above FINE_LIMIT at the end of a slice of the duration, so
-- that 10,000 slots have few ends.
local function slot_end(expires, limit, duration) return window_log.slice_end(expires - 1, limit, duration) end

-- The expiry of a hold that lasts for `ttl` (nil: as long as it may), and takes slots of the limits that apply: at most
-- as long as the shortest of them allows.
local function slots_expiry(ttl, slots)
  local expires = call_now + (ttl or DAY_MS)
  for _, slot in ipairs(slots) do
    expires = math.min(expires, call_now + slot.duration)
  end
  for _, slot in ipairs(slots) do
    local ends = slot_end(expires, slot.limit, slot.duration)
    -- The end of the slice is beyond what the limit allows: the hold ends at its beginning.
    if ends > call_now + slot.duration then expires = ends - window_log.slice_end(0, slot.limit, slot.duration) end
  end
  return expires
end
