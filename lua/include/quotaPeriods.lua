-- The periods of quotas, in UTC (src/domain/quota.ts). Where a window has a duration, a quota has a code: a number
-- above all durations with its period and its anchor.

local quota_periods = {
  NAMES = QUOTA_PERIODS,
  -- Of the periods that have one.
  LENGTHS = { hour = HOUR_MS, day = DAY_MS, week = 7 * DAY_MS },
  -- The last period of codes, of so many at most.
  KNOWN_MAX = 1000,
  known = 0,
  starts = {},
  ends = {},
}

-- The code of a quota. Without an anchor, a week begins on Monday, others at the beginning of 1970.
function quota_periods.code(period, anchor)
  for index, name in ipairs(quota_periods.NAMES) do
    if name == period then
      anchor = anchor or (period == 'week' and 4 * DAY_MS or 0)
      return QUOTA_CODES + CODE_UNIT * (CODE_UNIT * anchor + index - 1)
    end
  end
end

-- The period of a quota, and its anchor, by its code.
function quota_periods.of(code)
  local number = (code - QUOTA_CODES) / CODE_UNIT
  local period = number % CODE_UNIT
  return quota_periods.NAMES[period + 1], (number - period) / CODE_UNIT
end

-- A duration as a value in the audit log: milliseconds, or of a quota its period and anchor as text.
function quota_periods.audited(duration)
  return duration < QUOTA_CODES and duration or string.format('%s from %.0f', quota_periods.of(duration))
end

-- Where the period that a time is in starts and ends. Computed for each code once in a period.
function quota_periods.at(code, time)
  local starts, ends = quota_periods.starts[code], quota_periods.ends[code]
  if starts and time >= starts and time < ends then return starts, ends end
  local period, anchor = quota_periods.of(code)
  local length = quota_periods.LENGTHS[period]
  if length then
    starts = time - (time - anchor) % length
    ends = starts + length
  else
    local day = math.floor(anchor / DAY_MS)
    local year, month = month_of(day)
    local step, in_day, day_of_month =
      period == 'year' and 12 or 1, anchor % DAY_MS, day - days_to_month(year, month) + 1
    local now_year, now_month = month_of(math.floor(time / DAY_MS))
    local function start_of(months) return day_in_month(now_year, months, day_of_month) + in_day end
    local first = now_month - (12 * (now_year - year) + now_month - month) % step
    if start_of(first) > time then first = first - step end
    starts, ends = start_of(first), start_of(first + step)
  end
  if not quota_periods.ends[code] then
    if quota_periods.known == quota_periods.KNOWN_MAX then
      quota_periods.starts, quota_periods.ends, quota_periods.known = {}, {}, 0
    end
    quota_periods.known = quota_periods.known + 1
  end
  quota_periods.starts[code], quota_periods.ends[code] = starts, ends
  return starts, ends
end

-- Whether a period may have this length.
function quota_periods.has_length(code, length)
  local period = quota_periods.of(code)
  local days = length / DAY_MS
  if period == 'month' then return days % 1 == 0 and days >= 28 and days <= 31 end
  if period == 'year' then return days == 365 or days == 366 end
  return length == quota_periods.LENGTHS[period]
end
