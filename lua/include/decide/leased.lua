-- Where leases of units are noted: those of a key or an identity in field `leases` of its record, a LEASE_OF_KEY each. Those of a
-- window of a namespace in a record of its own, a LEASE_OF_WINDOW each, so that a check that passes reads nothing of leases.

-- @include "include/decide/call"
-- @include "include/decide/key"
-- @include "include/decide/session"
-- @include "include/names"

-- A lease this old has ended, whatever the clocks of the servers and of Redis say: LEASE_MS is at most 2000.
local FORGOTTEN_MS = 10000
-- Limit of the leases that a refusal names: the others are named when it is decided again.
local NAMED_MAX = 256

-- The leases in `stored`, each of `length` bytes, that may not have ended.
local function recent_leases(stored, length)
  local recent = {}
  for position = 1, #stored, length do
    local _, _, at, _, _ = struct.unpack(LEASE_HEAD, stored, position)
    if math.abs(call_now - at) < FORGOTTEN_MS then
      recent[#recent + 1] = string.sub(stored, position, position + length - 1)
    end
  end
  return table.concat(recent)
end

-- The position of a lease in `stored`, or nil.
local function find_lease(stored, length, session, number)
  local name = struct.pack(LEASE_NAME, session, number)
  for position = 1, #stored, length do
    if string.sub(stored, position, position + LEASE_NAME_LENGTH - 1) == name then return position end
  end
end

-- `stored` without the lease at `position`.
local function without_lease(stored, length, position)
  return string.sub(stored, 1, position - 1) .. string.sub(stored, position + length)
end

-- Appends the names of the leases in `stored` whose units may be returned to `names`. Returns `stored` with the leases that were
-- recalled as overdue.
local function await_leases(stored, length, names)
  stored = recent_leases(stored, length)
  for position = 1, #stored, length do
    local session, number, _, overdue, _ = struct.unpack(LEASE_HEAD, stored, position)
    local name = string.format('%s.%.0f', session, number)
    if overdue == 0 and this_session.recalled[name] then
      local overdue_at = position + LEASE_HEAD_OVERDUE_AT - 1
      stored = string.sub(stored, 1, overdue_at - 1) .. '\1' .. string.sub(stored, overdue_at + 1)
    elseif overdue == 0 and not names[name] and #names < NAMED_MAX then
      names[name], names[#names + 1] = true, name
    end
  end
  return stored
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

-- Marks leases of the key and its identity that were recalled as overdue. Returns the refusal of a verification that units would
-- change that may be returned; nil when there are none.
local function refused_as_leased()
  local names, of_key, of_identity = {}, key_leases(), identity_leases()
  local awaited_of_key = await_leases(of_key, LEASE_OF_KEY_LENGTH, names)
  local awaited_of_identity = await_leases(of_identity, LEASE_OF_KEY_LENGTH, names)
  if awaited_of_key ~= of_key then write_leases(key_name, awaited_of_key) end
  if awaited_of_identity ~= of_identity then
    write_leases(identity_record(call_workspace, key_external_id), awaited_of_identity)
  end
  return #names > 0 and refuse('leased', table.concat(names, ',')) or nil
end

-- The leases of the window of a check ({namespace, duration, identifier}); '' for none.
local function record_of(check)
  return window_leases(call_workspace, check.namespace.id16, window_member(check.duration, check.identifier))
end
local function leases_of_window(check) return redis.call('GET', record_of(check)) or '' end
local function write_leases_of_window(check, leases)
  local record = record_of(check)
  if leases == '' then
    redis.call('DEL', record)
  else
    redis.call('SET', record, leases, 'PX', FORGOTTEN_MS)
  end
end
