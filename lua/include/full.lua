-- Changes that work while Redis is at maxmemory.
--
-- Redis refuses the first write of a script if its command may take memory. After a write that takes none, it carries
-- out all further ones, so that a script is not cut in half. So a change that only takes something away begins with
-- such a write: a leaked key can be disabled when Redis is full. What such a change may take is an audit event, of
-- which AUDIT_EVENTS_MAX are kept. A change that may be repeated without end, or whose input is stored, must not use
-- it.

-- @include "include/names"

-- To be called after the last read, before the first write.
local function write_even_if_full(workspace) redis.call('UNLINK', name_of.absent(workspace)) end

-- Whether a request has none but these fields.
local function has_only(request, fields)
  for field in pairs(request) do
    if not fields[field] then return false end
  end
  return true
end
