-- Mark sessions that did not return their leases in time as inactive, so that changes no longer wait for them. A
-- session that got a lease since is left as it is.
--
-- derives  the registry of sessions
-- ARGV[1]  holders    the sessions as the change got them (`session.term.granted`, see include/change), separated by
--                     commas
-- returns  nothing

local workspace, holders = KEYS[1], ARGV[1]

for session, number in string.gmatch(holders, '(%x+)%.%d+%.(%d+)') do
  local stored = redis.call('HGET', name_of.registry(workspace), session)
  if stored then
    local _, granted, settled = struct.unpack(REGISTERED, stored)
    if granted == tonumber(number) then
      redis.call('HSET', name_of.registry(workspace), session, struct.pack(REGISTERED, 0, granted, settled))
    end
  end
end
