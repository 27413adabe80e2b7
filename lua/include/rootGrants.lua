-- The grants of a root key. `grants` is text: a line break, then each grant followed by a line break, in the canonical
-- spelling (`api.*.verify_key`). docs/contract.md §5 lists them.

local root_grants = {}

function root_grants.has(grants, grant) return string.find(grants, '\n' .. grant .. '\n', 1, true) ~= nil end

-- Whether the grants allow `action` on the `resource` with this id; '*' for one that has no id or does not exist yet.
function root_grants.holds(grants, resource, id, action)
  return root_grants.has(grants, '*')
    or root_grants.has(grants, resource .. '.*.' .. action)
    or root_grants.has(grants, resource .. '.' .. id .. '.' .. action)
end

-- Whether the grants allow `action` on at least one resource. The action must belong to one kind of resource only, as
-- verify_key does. It searches for plain text, because a pattern with a repetition would try every length of every id.
function root_grants.holds_any(grants, action)
  return root_grants.has(grants, '*') or string.find(grants, '.' .. action .. '\n', 1, true) ~= nil
end

-- The time of use of a root key is recorded at most this often, because a write for each batch would be a tenth of a
-- small one.
local USED_PRECISION_MS = 1000

-- 'unauthorized', 'root_key_disabled', 'root_key_expired' or 'ok'.
function root_grants.status(grants, enabled, expires, now)
  if not grants then return 'unauthorized' end
  if enabled ~= '1' then return 'root_key_disabled' end
  if expires and now >= expires then return 'root_key_expired' end
  return 'ok'
end

-- Whether a use now has to be recorded, if the last one was recorded at `used` (nil for none). A time after `now` was
-- recorded while the clock was ahead.
function root_grants.is_use_due(used, now) return not used or used > now or now - used >= USED_PRECISION_MS end

-- Reads a root key. Returns its status, grants, id, and the milliseconds until it expires ('' if it does not). Records
-- the time of use, if Redis accepts writes: otherwise a full Redis would refuse reads and deletions too.
local function authenticate(workspace, digest, now)
  local record = name_of.root_key_record(workspace, digest)
  local stored = redis.call('HMGET', record, 'grants', 'enabled', 'expires', 'id', 'used')
  local expires = tonumber(stored[3])
  local status = root_grants.status(stored[1], stored[2], expires, now)
  -- Redis formats a number with 17 digits, so `int` is not needed.
  local is_due = status == 'ok' and root_grants.is_use_due(tonumber(stored[5]), now)
  if is_due and not full_memory.is_full then redis.call('HSET', record, 'used', now) end
  return status, stored[1] or '', stored[4] or '', expires and int(expires - now) or ''
end
