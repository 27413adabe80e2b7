-- The counter of a quota: a log (include/windowLog) whose entries end with the period in which they were charged. It
-- has the present period, and the one before it: after a step back of the clock into that one, what was charged there
-- counts again, and what was charged since counts when its period comes again. An entry later than the next period was
-- charged while the clock was ahead: quota_log.repaired moves it to the present one.

local quota_log = {}

-- The entries of a counter that stay, and one of the present period, which ends at `ends`: their ends and units, the
-- index of that one, and whether an entry was later than the next period.
function quota_log.entries(text, first, last, ends, duration)
  local kind, _, base, step = WINDOW_KINDS[string.byte(text, first)], struct.unpack(WINDOW_HEAD, text, first)
  local _, next_ends = quota_periods.at(duration, ends)
  local before, present, after, moved = nil, 0, nil, nil
  for position = first + WINDOW_HEAD_BYTES, last - kind.newest_bytes + 1, kind.bytes do
    local steps, units = struct.unpack(kind.entry, text, position)
    local at = base + steps * step
    if at < ends then
      before = { at, units }
    elseif at == next_ends then
      after = { at, units }
    else
      present, moved = present + units, moved or at > ends
    end
  end
  local all_ends, all_units, index = {}, {}, before and 2 or 1
  if before then
    all_ends[1], all_units[1] = before[1], before[2]
  end
  all_ends[index], all_units[index] = ends, present
  if after then
    all_ends[index + 1], all_units[index + 1] = after[1], after[2]
  end
  return all_ends, all_units, index, moved
end

-- window_charge for a quota, whose `duration` is its code: `oldest` is the end of the present period, and `first_live`
-- is never nil.
local function quota_charge(text, first, last, now, limit, duration, cost, may_charge)
  local _, ends = quota_periods.at(duration, now)
  if last < first then
    if not may_charge or cost == 0 or cost > limit then return 0, first, ends end
    return 0, first, ends, first - 1, new_window({ ends }, { cost }, HOUR_MS)
  end
  local kind = WINDOW_KINDS[string.byte(text, first)]
  local newest_at = last - kind.newest_bytes + 1
  local steps, units, sum = struct.unpack(kind.newest, text, newest_at)
  local _, base, step = struct.unpack(WINDOW_HEAD, text, first)
  if base + steps * step == ends and units + cost <= kind.units_max then
    if not may_charge or cost == 0 or units + cost > limit then return units, first, ends end
    return units, first, ends, newest_at - 1, struct.pack(kind.newest, steps, units + cost, sum + cost)
  end
  local all_ends, all_units, index, moved = quota_log.entries(text, first, last, ends, duration)
  if moved then return AHEAD end
  local total = all_units[index]
  if not may_charge or cost == 0 or total + cost > limit then return total, first, ends end
  all_units[index] = total + cost
  return total, first, ends, first - 1, new_window(all_ends, all_units, HOUR_MS)
end

-- The function that checks and charges a counter with this duration or code.
function quota_log.charge_of(duration) return duration < QUOTA_CODES and window_charge or quota_charge end

-- window_log.repaired for a counter with this duration or code.
function quota_log.repaired(text, now, duration)
  if duration < QUOTA_CODES then return window_log.repaired(text, now, duration) end
  if text == '' then return text end
  local _, ends = quota_periods.at(duration, now)
  local all_ends, all_units, _, moved = quota_log.entries(text, 1, #text, ends, duration)
  return moved and new_window(all_ends, all_units, HOUR_MS) or text
end
