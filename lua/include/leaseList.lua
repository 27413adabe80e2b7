-- Lists of noted leases: each a NOTED_LEASE, in field `leased` of the record of a key and of an identity that a lease
-- charged, and in the record of leases of a window of a namespace (lua/decide/notedLeases.lua).

local lease_list = {}

-- A lease this old has ended, unless Redis's clock was set: no refusal waits for it. Its session may still return it,
-- so it stays noted while there is room.
local ENDED_MS = 10000
-- While leases are recalled no others are granted, or the request that waits would have to recall these as well.
-- It waits for one and a half terms at most (src/decide/leases/leasing.ts); the rest of the pause is for the way.
local PAUSE_TERMS, PAUSE_MORE_MS = 2, 100

-- The leases that may not have ended, and their number; until when no others are granted, 0 if they are; and the other
-- leases, '' if there is no room for them.
function lease_list.recent(stored, now)
  local recent, others, paused_until, position = {}, {}, 0, 1
  while position <= #stored do
    local first, number, at, _ = position, nil, nil, nil
    _, number, at, _, _, _, position = struct.unpack(NOTED_LEASE, stored, position)
    local is_recent = math.abs(now - at) < ENDED_MS
    if number ~= LEASE_PAUSE then
      local leases = is_recent and recent or others
      leases[#leases + 1] = string.sub(stored, first, position - 1)
    elseif is_recent and at > now then
      paused_until = at
    end
  end
  local has_room = #recent + #others < LEASES_MAX
  return table.concat(recent), #recent, paused_until, has_room and table.concat(others) or ''
end

-- The lease of a session with this number: when it was charged, its units, and what it charged; and `stored` without
-- it. Nothing when it is not there.
function lease_list.find(stored, session, number)
  local position = 1
  while position <= #stored do
    local first, of_session, of_number, at, units, charged, _ = position, nil, nil, nil, nil, nil, nil
    of_session, of_number, at, _, units, charged, position = struct.unpack(NOTED_LEASE, stored, position)
    if of_number == number and of_session == session then
      return at, units, charged, string.sub(stored, 1, first - 1) .. string.sub(stored, position)
    end
  end
end

-- When a pause of grants that begins now ends; `term` is the longest one of the leases that may be out.
function lease_list.pause_until(now, term) return now + PAUSE_TERMS * term + PAUSE_MORE_MS end

-- `leases` with an entry that pauses grants until this time; 0 for none.
function lease_list.with_pause(leases, paused_until)
  if paused_until == 0 then return leases end
  return leases .. struct.pack(NOTED_LEASE, NO_SESSION, LEASE_PAUSE, paused_until, 1, 0, 0, '')
end

-- `stored`, in which `change` has replaced what each lease charged.
function lease_list.with_charged(stored, change)
  local leases, position = {}, 1
  while position <= #stored do
    local session, number, at, overdue, units, charged
    session, number, at, overdue, units, charged, position = struct.unpack(NOTED_LEASE, stored, position)
    charged = number == LEASE_PAUSE and '' or change(charged)
    leases[#leases + 1] = struct.pack(NOTED_LEASE, session, number, at, overdue, units, #charged, charged)
  end
  return table.concat(leases)
end

function lease_list.write(record, leases)
  if leases == '' then
    redis.call('HDEL', record, 'leased')
  else
    redis.call('HSET', record, 'leased', leases)
  end
end
