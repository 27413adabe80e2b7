-- The checks of a verification before those of limits and balance.

-- The outcome by the checks before those of limits and balance.
local function precheck(request, text, ip)
  if not key_flags.enabled then return DISABLED end
  if call_now >= key_expires then return EXPIRED end
  if key_flags.extended and restriction.refuses(ip) then return FORBIDDEN end
  if request and request.query and not is_permitted(request.query, text) then return INSUFFICIENT_PERMISSIONS end
  return VALID
end

-- When the outcome of precheck may change by itself, if that is before `ends`. A lease repeats it until then.
local function precheck_until(ends)
  if key_expires > call_now then ends = math.min(ends, key_expires) end
  return ends
end
