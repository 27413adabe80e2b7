-- Lengths of time, in milliseconds.
local HOUR_MS = 3600000
local DAY_MS = 86400000

-- The time in milliseconds: Redis's own clock, so that every server agrees.
-- Tests pass `override` instead; '' means Redis's clock.
local function now_ms(override)
  if override ~= '' then return tonumber(override) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A whole number as text. Lua's own conversion keeps 14 digits only.
local function int(number) return string.format('%.0f', number) end
