-- Runs after every change, a script that writes to the audit log (lua/library.lua).

-- The sessions that may hold leases in a workspace, each `session.term.granted`, and LONGEST_TERM in the same form. A
-- change is answered when they have returned them, or when the term has passed (src/decide/leases/changes.ts).
local function leaseholders(workspace)
  local entries, holders = redis.call('HGETALL', name_of.registry(workspace)), {}
  for index = 1, #entries, 2 do
    local term, granted, _ = struct.unpack(REGISTERED, entries[index + 1])
    if term > 0 then holders[#holders + 1] = string.format('%s.%d.%.0f', entries[index], term, granted) end
  end
  return holders
end
