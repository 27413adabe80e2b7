-- Times, in milliseconds. HOUR_MS, DAY_MS and TIME_MAX (the latest time in a request) are those of src/domain/time.ts.

-- The Unix time by Redis's clock, so that all servers agree. Tests pass another time as `override`; '' is none.
local function now_ms(override)
  if override ~= '' then return tonumber(override) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A whole number as text. Lua's own conversion keeps 14 digits only.
local function int(number) return string.format('%.0f', number) end
