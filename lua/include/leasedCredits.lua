-- Leased credits of a key: a LEASE_ENTRY each in field `leases` of its record (lua/include/decide/leased.lua).

-- A balance that is set has nothing of what leases took from the old one. A lease gives back credits only while the key's next refill
-- is that of its entry. So this returns a function that sets the refills of the entries to one that no key has. It reads, so it must
-- run before the first write of a script.
local function forgetting_leased_credits(record)
  local stored, entries = redis.call('HGET', record, 'leases') or '', {}
  for position = 1, #stored, LEASE_ENTRY_LENGTH do
    local session, number, at, units, _, limits = struct.unpack(LEASE_ENTRY, stored, position)
    entries[#entries + 1] = struct.pack(LEASE_ENTRY, session, number, at, units, NEVER, limits)
  end
  return function()
    if #entries > 0 then redis.call('HSET', record, 'leases', table.concat(entries)) end
  end
end
