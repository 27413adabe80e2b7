-- A verification that check_limits_and_balance could not decide.

-- @include "decide/verification/charge"
-- @include "decide/verification/newState"
-- @include "include/names"
-- @include "include/shiftedCharges"
-- @include "include/window"

-- Repairs the windows that were charged while the clock was ahead, and writes them to the key, its identity and its
-- counters.
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
  write_charged_counters()
end

-- A verification that could not be decided: returns its item error (`problem`), if it has one; nothing if it can be
-- decided now, as its windows were repaired. Otherwise it takes slots: charge_hold.instead (holdItems.lua) decides
-- it as a verification with a hold.
local function undecided(problem, position, last, root_index, request)
  local requested = request and request.limits
  if problem then return problem end
  if charge_ahead then return repair_windows(requested) end
  return charge_hold.instead(position, last, root_index, requested)
end
