-- The leases of units of a key or an identity: field `leases` of its record, a LEASE_ENTRY each.

-- @include "include/decide/call"
-- @include "include/decide/key"
-- @include "include/names"

-- A lease this old has ended, whatever the clocks of the servers and of Redis say: LEASE_MS is at most 2000.
local FORGOTTEN_MS = 10000

-- The leases in `stored` (nil for none) that may not have ended.
local function recent_leases(stored)
  if not stored then return '' end
  local recent = {}
  for position = 1, #stored, LEASE_ENTRY_LENGTH do
    local _, _, at, _, _, _ = struct.unpack(LEASE_ENTRY, stored, position)
    if math.abs(call_now - at) < FORGOTTEN_MS then
      recent[#recent + 1] = string.sub(stored, position, position + LEASE_ENTRY_LENGTH - 1)
    end
  end
  return table.concat(recent)
end

-- The position of a lease in `stored`, or nil.
local function find_lease(stored, session, number)
  local name = struct.pack(LEASE_NAME, session, number)
  for position = 1, #stored, LEASE_ENTRY_LENGTH do
    if string.sub(stored, position, position + LEASE_NAME_LENGTH - 1) == name then return position end
  end
end

-- `stored` without the lease at `position`; unchanged without a position.
local function without_lease(stored, position)
  if not position then return stored end
  return string.sub(stored, 1, position - 1) .. string.sub(stored, position + LEASE_ENTRY_LENGTH)
end

local function write_leases(record, leases)
  if leases == '' then
    redis.call('HDEL', record, 'leases')
  else
    redis.call('HSET', record, 'leases', leases)
  end
end

-- The leases of the key of this verification, and those of its identity; '' for none.
local function key_leases() return redis.call('HGET', key_name, 'leases') or '' end
local function identity_leases()
  if not key_identity then return '' end
  return redis.call('HGET', identity_record(call_workspace, key_external_id), 'leases') or ''
end

-- The refusal of a verification that units would change that may be returned; nil when there are none.
local function refused_as_leased()
  local leases = recent_leases(key_leases()) .. recent_leases(identity_leases())
  if leases == '' then return nil end
  local names = {}
  for position = 1, #leases, LEASE_ENTRY_LENGTH do
    local session, number = struct.unpack(LEASE_NAME, leases, position)
    names[#names + 1] = string.format('%s.%.0f', session, number)
  end
  return refuse('leased', table.concat(names, ','))
end
