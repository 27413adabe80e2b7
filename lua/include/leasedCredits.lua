-- Leased credits of a key: a LEASE_OF_KEY each in field `leases` of its record (lua/decide/leased.lua).

-- A balance that is set has nothing of what leases took from the old one. A lease gives back credits only while the
-- key's next refill is that of its entry. So this returns a function that sets the refills of the entries to one that
-- no key has. It reads, so it must run before the first write of a script.
local function forgetting_leased_credits(record)
  local stored, entries = redis.call('HGET', record, 'leases') or '', {}
  for position = 1, #stored, LEASE_OF_KEY_LENGTH do
    local session, number, at, overdue, units, _, limits = struct.unpack(LEASE_OF_KEY, stored, position)
    entries[#entries + 1] = struct.pack(LEASE_OF_KEY, session, number, at, overdue, units, NEVER, limits)
  end
  return function()
    if #entries > 0 then redis.call('HSET', record, 'leases', table.concat(entries)) end
  end
end
