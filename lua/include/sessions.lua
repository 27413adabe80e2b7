-- The sessions in the registry of a workspace: at most some tens, see lua/decide/thisSession.lua.

-- How many may hold leases, and how many did not return theirs when they were recalled. LONGEST_TERM is no session.
local function count_sessions(workspace)
  local entries, active, silent = redis.call('HGETALL', name_of.registry(workspace)), 0, 0
  for index = 1, #entries, 2 do
    local term, _, _ = struct.unpack(REGISTERED, entries[index + 1])
    if entries[index] ~= LONGEST_TERM then
      active = active + (term > 0 and 1 or 0)
      silent = silent + (term > 0 and 0 or 1)
    end
  end
  return active, silent
end
