-- Mark sessions that did not return their leases in time as inactive, so that changes no longer wait for them. A session that got a
-- lease since is left as it is.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the registry of sessions
-- ARGV     each session, followed by the number of its last lease as it was at the change
-- returns  nothing

-- @include "include/names"

local name = registry(KEYS[1])
for index = 1, #ARGV, 2 do
  local entry = redis.call('HGET', name, ARGV[index])
  if entry then
    local _, granted, settled = struct.unpack(REGISTERED, entry)
    if granted == tonumber(ARGV[index + 1]) then
      redis.call('HSET', name, ARGV[index], struct.pack(REGISTERED, 0, granted, settled))
    end
  end
end
