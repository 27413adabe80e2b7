-- The charges of a verification to limits, as the packed windows and slots of a hold.

-- Limits are read in order. Used again by every hold:
--   place, packed, position   the place of the last limit (see VERIFIED_LIMIT), the state that has it, and the position
--                             after it
--   windows, slots            packed ones
local reading = { windows = {}, slots = {} }
local packed_charges = {}

-- Returns limit, duration, switches and name of the limit at a place after the last one.
function packed_charges.limit_at(place)
  if place > PLACES_OF_IDENTITY and reading.place < PLACES_OF_IDENTITY then
    reading.place, reading.packed, reading.position = PLACES_OF_IDENTITY, key_identity, IDENTITY_LIMITS_AT + 1
  end
  local packed, position, passed = reading.packed, reading.position, reading.place
  local limit, duration, switches, name_bytes, name_at
  repeat
    limit, duration, switches, name_bytes = struct.unpack(LIMIT_START, packed, position)
    name_at = position + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH)
    position, passed = name_at + name_bytes, passed + 1
  until passed == place
  reading.place, reading.position = place, position
  return limit, duration, switches, string.sub(packed, name_at, position - 1)
end

-- The charge of a limit that applies, by its place: name, cost, limit, duration, and the bits of a HELD_WINDOW.
function packed_charges.charged_at(place, requested)
  if place > PLACES_OF_REQUEST then
    local name, _, limit, duration = unpack(requested[place - PLACES_OF_REQUEST])
    return name, charge_costs[place], limit, duration, limit <= FINE_LIMIT and hold_format.FINE or 0
  end
  local limit, duration, switches, name = packed_charges.limit_at(place)
  local bits = place > PLACES_OF_IDENTITY and hold_format.OF_IDENTITY or 0
  if switches % (2 * CONCURRENCY) >= CONCURRENCY then
    bits = bits + hold_format.SLOTS
  elseif limit <= FINE_LIMIT then
    bits = bits + hold_format.FINE
  end
  return name, charge_costs[place], limit, duration, bits
end

-- Packs the charges of the last check of limits, real or possible ones, as windows of a hold that ends at `expires`,
-- and the slots after them. They may name texts of `h`. Also returns their number, and whether one is of the identity.
function packed_charges.pack(h, requested, expires)
  if charge_count == 0 then return '', 0, false end
  local windows, slots, of_identity = 0, 0, false
  local packed_windows, packed_slots = reading.windows, reading.slots
  reading.place, reading.packed, reading.position = PLACES_OF_KEY, key_packed, key_limits_at + 1
  for index = 0, charge_count - 1 do
    local place = charge_results[RESULT_FIELDS * index + RESULT_PLACE]
    local name, cost, limit, duration, bits = packed_charges.charged_at(place, requested)
    if bits < hold_format.SLOTS then
      -- Even at a cost of 0: the settlement may charge more.
      windows = windows + 1
      packed_windows[windows] = hold_format.pack_window(h, bits, duration, cost, name)
    elseif cost > 0 then
      slots = slots + 1
      duration = slot_end(expires, limit, duration)
      packed_slots[slots] = hold_format.pack_window(h, bits, duration, cost, name)
    end
    if bits < hold_format.SLOTS or cost > 0 then of_identity = of_identity or bits % 2 == hold_format.OF_IDENTITY end
  end
  local packed = windows == 1 and packed_windows[1] or table.concat(packed_windows, '', 1, windows)
  if slots > 0 then packed = packed .. table.concat(packed_slots, '', 1, slots) end
  return packed, windows + slots, of_identity
end
