-- Times of refills (docs/contract.md §14) and months, in UTC.

-- The day (since 1970-01-01) on which a month begins. `month` is from 0 and may be above 11.
local function days_to_month(year, month)
  year, month = year + math.floor(month / 12), month % 12
  -- Years begin in March here, so that the leap day is the last day of a year.
  local march_year = month < 2 and year - 1 or year
  local march_month = (month + 10) % 12
  return 365 * march_year
    + math.floor(march_year / 4)
    - math.floor(march_year / 100)
    + math.floor(march_year / 400)
    + math.floor((153 * march_month + 2) / 5)
    - 719468
end

-- The year and the month (from 0) of a day (since 1970-01-01).
local function month_of(day)
  local months = math.floor((day + 15) / 30.436875) -- At most one too many, which the loop corrects.
  while days_to_month(1970, months) > day do
    months = months - 1
  end
  return 1970 + math.floor(months / 12), months % 12
end

-- The beginning of a day of a month, or of its last day if it is shorter.
local function day_in_month(year, month, day)
  local first, next_first = days_to_month(year, month), days_to_month(year, month + 1)
  return math.min(first + day - 1, next_first - 1) * DAY_MS
end

-- The time of the first refill after `now`. `refill_day` 0 is daily; 1 to 31 is that day of each month, or its last
-- day.
local function refill_after(now, refill_day)
  local today = math.floor(now / DAY_MS)
  if refill_day == 0 then return (today + 1) * DAY_MS end
  local year, month = month_of(today)
  local due = day_in_month(year, month, refill_day)
  if due <= now then due = day_in_month(year, month + 1, refill_day) end
  return due
end

-- A refill that is not due yet. A time more than two periods away was set while the clock was ahead: it is computed
-- again.
local function refill_due_of(due, now, refill_day)
  if due - now > (refill_day == 0 and 2 or 62) * DAY_MS then return refill_after(now, refill_day) end
  return due
end
