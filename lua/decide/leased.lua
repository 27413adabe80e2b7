-- Where leases of units are noted: those of a key or an identity in field `leases` of its record, a LEASE_OF_KEY each.
-- Those of a window of a namespace in a record of its own, a LEASE_OF_WINDOW each, so that a check that passes reads
-- nothing of leases.

-- @include "decide/call"
-- @include "decide/verification/key"
-- @include "decide/session"
-- @include "include/names"
-- @include "include/window"

local noted_leases = {}

-- A lease this old has ended, unless Redis's clock was set: no refusal waits for it. Its session may still return it,
-- so it stays noted while there is room.
local ENDED_MS = 10000
-- Limit of the leases that a refusal names: the others are named when it is decided again.
local NAMED_MAX = 256

-- While leases are recalled no others are granted, or the request that waits would have to recall these as well.
-- It waits for one and a half terms at most (src/decide/leases/leasing.ts); the rest of the pause is for the way.
local PAUSE_TERMS, PAUSE_MORE_MS = 2, 100
-- LEASE_MS is at most this.
local TERM_MAX = 2000

-- The leases in `stored`, each of `length` bytes, that may not have ended; until when no others are granted, 0 if
-- they are; and the other leases, as many as there is room for.
function noted_leases.recent(stored, length)
  local recent, others, paused_until = {}, {}, 0
  for position = 1, #stored, length do
    local _, number, at, _, _ = struct.unpack(LEASE_HEAD, stored, position)
    local is_recent = math.abs(call_now - at) < ENDED_MS
    if number ~= LEASE_PAUSE then
      local leases = is_recent and recent or others
      leases[#leases + 1] = string.sub(stored, position, position + length - 1)
    elseif is_recent and at > call_now then
      paused_until = at
    end
  end
  local has_room = #recent + #others < LEASES_MAX
  return table.concat(recent), paused_until, has_room and table.concat(others) or ''
end

-- `leases`, each of `length` bytes, with an entry that pauses grants until this time; 0 for none.
local function with_pause(leases, length, paused_until)
  if paused_until == 0 then return leases end
  local head = struct.pack(LEASE_HEAD, NO_SESSION, LEASE_PAUSE, paused_until, 1, 0)
  return leases .. head .. string.rep('\0', length - LEASE_HEAD_LENGTH)
end

-- The position of a lease in `stored`, and `stored` without it; nothing when it is not there.
function noted_leases.find(stored, length, session, number)
  local name = struct.pack(LEASE_NAME, session, number)
  for position = 1, #stored, length do
    if string.sub(stored, position, position + LEASE_NAME_LENGTH - 1) == name then
      return position, string.sub(stored, 1, position - 1) .. string.sub(stored, position + length)
    end
  end
end

-- Appends the names of the leases in `stored` whose units may be returned to `names`. Returns `stored` with the leases
-- that were recalled as overdue, and until when no others are granted.
local function await_leases(stored, length, names)
  local paused_until, others
  stored, paused_until, others = noted_leases.recent(stored, length)
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
  return stored .. others, paused_until
end

-- The longest term of the leases that may be out, in milliseconds: of the sessions that may hold some, or of all that
-- ever did. TERM_MAX if the registry cannot be read.
local function longest_term()
  if not pcall(this_session.register) then return TERM_MAX end
  local held, ever = this_session.held_term, this_session.longest
  return held > 0 and held or ever > 0 and ever or TERM_MAX
end

-- Marks leases that were recalled as overdue. Returns the item error of a request that units would change that may be
-- returned; nil when there are none, or when it `has_passed`. `places` are where leases are noted, `length` bytes for
-- each: {leases, write(leases)}.
function noted_leases.error_of(places, length, has_passed)
  local names, problem, pauses_until = {}, nil, nil
  for _, place in ipairs(places) do
    place.awaited, place.paused_until = await_leases(place.leases, length, names)
  end
  if #names > 0 and not has_passed then
    local term = longest_term()
    problem = item_error('leased', string.format('%d,', term) .. table.concat(names, ','))
    pauses_until = call_now + PAUSE_TERMS * term + PAUSE_MORE_MS
  end
  for _, place in ipairs(places) do
    local leases = with_pause(place.awaited, length, pauses_until or place.paused_until)
    if leases ~= place.leases then place.write(leases) end
  end
  return problem
end

function noted_leases.write(record, leases)
  if leases == '' then
    redis.call('HDEL', record, 'leases')
  else
    redis.call('HSET', record, 'leases', leases)
  end
end

-- The leases of the key of this verification, and those of its identity; '' for none.
function noted_leases.of_key() return redis.call('HGET', key_name, 'leases') or '' end
function noted_leases.of_identity()
  if not key_identity then return '' end
  return redis.call('HGET', name_of.identity_record(call_workspace, key_external_id), 'leases') or ''
end

-- Leases of the key give nothing back to windows from now on: they do so in the slice in which they were charged,
-- which has moved.
function noted_leases.forget_slices()
  local stored, leases = noted_leases.of_key(), {}
  for position = 1, #stored, LEASE_OF_KEY_LENGTH do
    local kept = string.sub(stored, position, position + LEASE_OF_KEY_LIMITS_AT - 2)
    leases[#leases + 1] = kept .. string.rep('\0', LEASE_OF_KEY_LENGTH - #kept)
  end
  if #leases > 0 then noted_leases.write(key_name, table.concat(leases)) end
end

-- noted_leases.error_of of a verification: with the leases of its key and identity.
function noted_leases.refuse_key(has_passed)
  local of_key, of_identity = noted_leases.of_key(), noted_leases.of_identity()
  if of_key == '' and of_identity == '' then return nil end
  local function place_in(record, leases)
    return { leases = leases, write = function(changed) noted_leases.write(record, changed) end }
  end
  local places = { place_in(key_name, of_key) }
  if key_identity then places[2] = place_in(name_of.identity_record(call_workspace, key_external_id), of_identity) end
  return noted_leases.error_of(places, LEASE_OF_KEY_LENGTH, has_passed)
end

-- The leases of the window of a check ({namespace, duration, identifier}); '' for none.
local function record_of(check)
  return name_of.window_leases(
    call_workspace,
    check.namespace.id16,
    name_of.window_member(check.duration, check.identifier)
  )
end
function noted_leases.of_window(check) return redis.call('GET', record_of(check)) or '' end
function noted_leases.write_of_window(check, leases)
  local record = record_of(check)
  if leases == '' then
    redis.call('DEL', record)
  else
    redis.call('SET', record, leases, 'PX', window_ttl(check.duration))
  end
end
