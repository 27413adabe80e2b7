-- Takes units out of a counter that were charged and not used.

local window_returns = {}

-- Takes `units` out of the slices that end between `earliest` and `latest`, the oldest first: later ones are of charges
-- with a limit of at most 64 on the same window, or of a settlement. An entry without units is removed. Returns
-- `kept_until` and `suffix` as window_charge; nothing when there is no such slice.
function window_returns.taken(text, first, last, earliest, latest, units)
  local kind = WINDOW_KINDS[string.byte(text, first)]
  local _, base, step = struct.unpack(WINDOW_HEAD, text, first)
  local sum_at, position = last - 6, nil
  for at = sum_at - kind.bytes, first + WINDOW_HEAD_BYTES, -kind.bytes do
    local slice_end = base + struct.unpack(kind.entry, text, at) * step
    if slice_end < earliest then break end
    if slice_end <= latest then position = at end
  end
  if not position then return nil end
  local entries, at, left, sum = '', position, units, struct.unpack('>I7', text, sum_at)
  while at < sum_at do
    local steps, charged = struct.unpack(kind.entry, text, at)
    if left == 0 or base + steps * step > latest then break end
    local taken = math.min(left, charged)
    if charged > taken then entries = entries .. struct.pack(kind.entry, steps, charged - taken) end
    left, at = left - taken, at + kind.bytes
  end
  if IN_TESTS and left > 0 then error('no slice has ' .. left .. ' units that are given back') end
  entries = entries .. string.sub(text, at, sum_at - 1)
  if entries == '' and position == first + WINDOW_HEAD_BYTES then return first - 1, '' end
  return position - 1, entries .. struct.pack('>I7', sum - units + left)
end

-- A counter without `units` that were charged at `at`, see window_log.charged_end. nil when that slice no longer counts
-- at `now`: what later ones have was charged by others.
function window_returns.without(text, at, now, duration, is_fine, units)
  if text == '' then return nil end
  local slice_end = window_log.charged_end(at, is_fine, duration)
  if window_log.reset(slice_end, duration) <= now then return nil end
  -- After the clock stepped back, units are charged in a slice that ends up to a slice later (window_log.repaired).
  local latest = duration < QUOTA_CODES and at + window_log.slice_of(duration) or slice_end
  local kept, suffix = window_returns.taken(text, 1, #text, slice_end, latest, units)
  if IN_TESTS and not suffix then error('no slice has ' .. units .. ' units that are given back') end
  return suffix and string.sub(text, 1, kept) .. suffix
end
