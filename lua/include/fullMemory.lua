-- Changes that work while Redis is at maxmemory: a leaked key can be disabled then. A script that always takes
-- something away has the flag allow-oom. One that may do so begins with `#!lua full=allow-oom`: after Redis refused it,
-- the server calls it again with that flag, and it refuses by itself what takes memory. Such a change takes the memory
-- of an audit event, of which AUDIT_EVENTS_MAX are kept. A change that may be repeated without end, or whose input is
-- stored, must not be one of them.

-- `is_full`: the script was called again, because Redis refuses writes.
local full_memory = { is_full = false }

-- To be called after the last read, before the first write.
function full_memory.may_write(takes_away)
  if full_memory.is_full and not takes_away then error({ err = 'OOM it takes memory' }) end
end

-- Whether a request has none but these fields.
local function has_only(request, fields)
  for field in pairs(request) do
    if not fields[field] then return false end
  end
  return true
end
