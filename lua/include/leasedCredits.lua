-- Credits of a key that leases charged (include/leaseList).

-- A balance that is set has nothing of what leases took from the old one, and gets nothing back. Returns a function
-- that notes this in the leases of a key: those that charged the balance with the number `kept` (nil for none) have
-- `number` from then on, all others have none. It reads, so it must run before the first write of a script.
local function renumbering_leased_credits(record, kept, number)
  local stored = redis.call('HGET', record, 'leased')
  return function()
    if not stored then return end
    local leases = lease_list.with_charged(stored, function(charged)
      local balance = struct.unpack(LEASED_CREDITS, charged)
      local changed = balance == kept and number or NEVER
      return struct.pack(LEASED_CREDITS, changed) .. string.sub(charged, LEASED_CREDITS_LENGTH + 1)
    end)
    redis.call('HSET', record, 'leased', leases)
  end
end

-- The longest term that a session of the workspace has or ever had, in milliseconds.
local function longest_term_of_credits(workspace)
  local entries, longest = redis.call('HGETALL', name_of.registry(workspace)), 0
  for index = 2, #entries, 2 do
    local term, _, _ = struct.unpack(REGISTERED, entries[index])
    longest = math.max(longest, term)
  end
  return longest
end

-- Whether servers may return credits of the balance with this number. If so, no more leases of the key are granted for
-- a while, in which the script that asks is run again.
local function awaits_leased_credits(workspace, record, number, now)
  local stored = redis.call('HGET', record, 'leased') or ''
  local recent, _, _, others = lease_list.recent(stored, now)
  local is_awaited, position = false, 1
  while position <= #recent do
    local charged, _
    _, _, _, _, _, charged, position = struct.unpack(NOTED_LEASE, recent, position)
    local balance = struct.unpack(LEASED_CREDITS, charged)
    is_awaited = is_awaited or balance == number
  end
  if not is_awaited then return false end
  local paused_until = lease_list.pause_until(now, longest_term_of_credits(workspace))
  lease_list.write(record, lease_list.with_pause(others .. recent, paused_until))
  return true
end
