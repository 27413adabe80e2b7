-- Repairs windows of a verification that were charged while the clock was ahead.

-- After a check of limits that found such windows: writes them repaired to the key, its identity and its counters.
local function repair_windows(requested)
  -- A limit is exceeded then, so this charges nothing.
  check_limits(window_charge, requested)
  local tail = string.sub(key_packed, #key_packed - key_flags.tail_bytes + 1)
  local state = joined_state(key_packed, string.byte(key_packed, key_limits_at), PLACES_OF_KEY, charge_lengths, tail)
  if state then redis.call('HSET', key_name, 'state', state) end
  shifted_charges.note(key_name, call_now, charge_ahead)
  local repaired = key_identity and identity_state()
  if repaired then
    write_identity(repaired)
    shifted_charges.note(name_of.identity_record(call_workspace, key_external_id), call_now, charge_ahead)
  end
  adhoc_limits.write()
end
