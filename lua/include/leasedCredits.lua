-- Leased credits of a key: a LEASE_ENTRY each in field `leases` of its record (lua/include/decide/leased.lua).

-- Lets leases of a key give back no credits, because its balance was set: theirs are of the old one. A lease gives back credits only
-- while the key's next refill is that of its entry.
local function forget_leased_credits(record)
  local stored = redis.call('HGET', record, 'leases')
  if not stored then return end
  local entries = {}
  for position = 1, #stored, LEASE_ENTRY_LENGTH do
    local session, number, at, units, _, limits = struct.unpack(LEASE_ENTRY, stored, position)
    entries[#entries + 1] = struct.pack(LEASE_ENTRY, session, number, at, units, NEVER, limits)
  end
  redis.call('HSET', record, 'leases', table.concat(entries))
end
