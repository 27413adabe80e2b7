-- Holds: a verification whose charges are held until its caller settles them, and the settlements.

-- @include "decide/call"
-- @include "decide/roots"
-- @include "decide/verification/answer"
-- @include "decide/verification/charge"
-- @include "decide/verification/counts"
-- @include "decide/verification/due"
-- @include "decide/verification/identityCredits"
-- @include "decide/verification/key"
-- @include "decide/verification/newState"
-- @include "decide/verification/restriction"
-- @include "decide/verification/slotEnds"
-- @include "decide/verification/snapshot"
-- @include "decide/verification/undecided"
-- @include "decide/verification/verify"
-- @include "include/clock"
-- @include "include/holds"
-- @include "include/identityBalance"
-- @include "include/names"
-- @include "include/settledHolds"
-- @include "include/state"
-- @include "include/window"

-- What decides items, see lua/decide/kinds.lua. `settled` is the last settlement; its table is used again by the next.
local hold_kinds = { settled = {}, changed_and_rest = CHANGED_HOLD .. 'c0' }

-- The hold that is made. Variables and one table are used again by every hold, because a table for each would be much
-- of its cost. A field without a value is false: if it were nil, adding it later might make Lua allocate the table
-- again.
--
-- Of HOLD_ITEM; the ttl is false for as long as its slots allow.
local making_ttl, making_on_expiry, making_id = false, 0, ''
-- Field `holds` of the key before the hold. What hold_list.of returns for it; false where holds are few, and then the
-- values of HOLDS_END_KEPT.
local making_from, making_holds = '', false
local making_next, making_counts, making_notes = 1, 0, ''
-- Of the hold: its number and field `holds` with it where holds are few; its expiry, false once the answer has it.
local making_number, making_added, making_expires = 0, '', 0
-- When the key has to be looked at without the hold. Times to write: for key_holds.queue, and for note_identity.
local making_due, making_queued, making_noted_until = 0, false, false
-- In the table:
--   suffix                    of the hold, where holds are not few
--   identity_until            key_holds.identity_until
--   answer, snapshot          if there is no new hold, see charge_hold.is_decided
--   place, packed, position   limits are read in order: the place of the last one (see VERIFIED_LIMIT), the state that
--                             has it, and the position after it
--   windows, slots            packed ones
local making = { windows = {}, slots = {} }

-- Returns limit, duration, switches and name of the limit at a place after the last one.
function charge_hold.limit_at(place)
  if place > PLACES_OF_IDENTITY and making.place < PLACES_OF_IDENTITY then
    making.place, making.packed, making.position = PLACES_OF_IDENTITY, key_identity, IDENTITY_LIMITS_AT + 1
  end
  local packed, position, passed = making.packed, making.position, making.place
  local limit, duration, switches, name_bytes, name_at
  repeat
    limit, duration, switches, name_bytes = struct.unpack(LIMIT_START, packed, position)
    name_at = position + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH)
    position, passed = name_at + name_bytes, passed + 1
  until passed == place
  making.place, making.position = place, position
  return limit, duration, switches, string.sub(packed, name_at, position - 1)
end

-- What a limit that applies is charged, by its place: name, cost, limit, duration, and the bits of a HELD_WINDOW.
function charge_hold.charged_at(place, requested)
  if place > PLACES_OF_REQUEST then
    local name, _, limit, duration = unpack(requested[place - PLACES_OF_REQUEST])
    return name, charge_costs[place], limit, duration, limit <= FINE_LIMIT and hold_list.FINE or 0
  end
  local limit, duration, switches, name = charge_hold.limit_at(place)
  local bits = place > PLACES_OF_IDENTITY and hold_list.OF_IDENTITY or 0
  if switches % (2 * CONCURRENCY) >= CONCURRENCY then
    bits = bits + hold_list.SLOTS
  elseif limit <= FINE_LIMIT then
    bits = bits + hold_list.FINE
  end
  return name, charge_costs[place], limit, duration, bits
end

-- The bits of a HELD_WINDOW of the key's first limit, its duration and its name; nil if it has slots.
function charge_hold.first_window()
  local packed, name_at = key_packed, key_limits_at + 1 + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH)
  local limit, duration, switches, name_bytes = struct.unpack(LIMIT_START, packed, key_limits_at + 1)
  if switches % (2 * CONCURRENCY) >= CONCURRENCY then return nil end
  return limit <= FINE_LIMIT and hold_list.FINE or 0, duration, string.sub(packed, name_at, name_at + name_bytes - 1)
end

-- What the last check of limits has charged, or would charge, as the packed windows of a hold that ends at `expires`,
-- and the slots after them. They may name texts of `h`. Returns their number, too, and whether one is of the identity.
function charge_hold.pack_charged(h, requested, expires)
  if charge_count == 0 then return '', 0, false end
  local windows, slots, of_identity = 0, 0, false
  local packed_windows, packed_slots = making.windows, making.slots
  making.place, making.packed, making.position = PLACES_OF_KEY, key_packed, key_limits_at + 1
  for index = 1, charge_count do
    local name, cost, limit, duration, bits = charge_hold.charged_at(charge_results[4 * index - 3], requested)
    if bits < hold_list.SLOTS then
      -- Also at a cost of 0: the settlement may charge more.
      windows = windows + 1
      packed_windows[windows] = hold_list.pack_window(h, bits, duration, cost, name)
    elseif cost > 0 then
      slots = slots + 1
      duration = slot_end(expires, limit, duration)
      packed_slots[slots] = hold_list.pack_window(h, bits, duration, cost, name)
    end
    if bits < hold_list.SLOTS or cost > 0 then of_identity = of_identity or bits % 2 == hold_list.OF_IDENTITY end
  end
  local packed = windows == 1 and packed_windows[1] or table.concat(packed_windows, '', 1, windows)
  if slots > 0 then packed = packed .. table.concat(packed_slots, '', 1, slots) end
  return packed, windows + slots, of_identity
end

-- A digest of what a repeated request must have in common with the first one.
function charge_hold.shape_of(cost, requested)
  return string.sub(redis.sha1hex(int(cost) .. cjson.encode(requested or {})), 1, 8)
end

-- What only some holds have, packed; '' for a hold without.
function charge_hold.pack_more(h, cost, request, shared, of_identity)
  local tags = (key_flags.limited or shared) and request and request.tags or nil
  if not of_identity and not shared and not tags and making_id == '' then return '' end
  local more =
    { tags = tags, shape = making_id ~= '' and charge_hold.shape_of(cost, request and request.limits) or nil }
  if of_identity or shared then
    more.externalId, more.identity = key_external_id, string.sub(key_identity, 1, 16)
  end
  if shared then
    more.number, more.alone = identity_balance.number_of(shared), not key_flags.limited or nil
  end
  return hold_list.pack_more(h, more)
end

-- Of the hold that is made: its expiry, its credits, and the number of the balance. `shared` is the balance of the
-- identity, false or nil for none.
function charge_hold.terms(cost, shared)
  local expires, credits =
    charge_hold.expires or call_now + (making_ttl or 0), (key_flags.limited or shared) and cost or 0
  if not key_flags.extended then
    making_due = NEVER
    return expires, credits, 0
  end
  making_due = key_extension.due
  return expires, credits, key_extension.balances
end

-- The packed rest of a hold by the last check of limits, the number of windows and slots in it, and whether one is of
-- the identity.
function charge_hold.pack_rest(h, cost, request, shared, expires)
  local rest, windows, of_identity = charge_hold.pack_charged(h, request and request.limits, expires)
  return rest .. charge_hold.pack_more(h, cost, request, shared, of_identity), windows, of_identity
end

-- The packed hold; then its suffix, its expiry, its credits, and whether it charged the identity.
function charge_hold.new_hold(h, cost, request, shared)
  local suffix = making_id ~= '' and '_' .. making_id or hold_list.next_suffix(making_holds, call_now)
  local expires, credits, balances = charge_hold.terms(cost, shared)
  local rest, windows, of_identity = charge_hold.pack_rest(h, cost, request, shared, expires)
  local ttl = expires - call_now
  local hold = hold_list.pack(making_on_expiry, call_now, ttl, credits, balances, suffix, windows, rest)
  return hold, suffix, expires, credits, of_identity
end

-- Whether the hold of a request would take too many bytes, if it names no texts: the hold is made to know them.
function charge_hold.is_too_large(cost, request)
  local shared = key_identity and identity_credits.of_key() or nil
  if look_at_limits(request and request.limits) or charge_ahead then return false end
  return #charge_hold.new_hold(false, cost, request, shared) > HOLD_BYTES_MAX
end

-- The answer to a verification with a hold.
function charge_hold.answer_of(answer, suffix, expires)
  return struct.pack('>c0c0' .. HELD_FIELDS, answer, suffix, expires, #suffix)
end

-- Makes the hold of a verification that is VALID, in memory, and appends it to field `holds` as it is stored
-- (making_from). It has a number, so no string is made for its suffix. Returns its expiry, its credits, and whether it
-- charged the identity.
function charge_hold.add_to_few(cost, request, shared)
  local expires, credits, balances = charge_hold.terms(cost, shared)
  local now, stored, number = call_now, making_from, hold_list.next_number(making_next, call_now)
  local kept = #stored - HOLDS_END_LENGTH
  making_number = number
  if kept == 0 then stored = '' end
  -- Most keys have one limit.
  if charge_count == 1 and not request and not shared and charge_results[1] == PLACES_OF_KEY + 1 then
    local bits, duration, name = charge_hold.first_window()
    if bits then
      local formats = hold_list.window_formats
      local format = formats[kept]
        or new_format(formats, kept, NUMBERED_HOLD_FIELDS .. HELD_WINDOW_FIELDS .. HOLDS_END_KEPT_FIELDS)
      -- HELD_WINDOW_LENGTH lacks the 2 bytes of the name's length, and `bytes` does not count its own 2.
      -- stylua: ignore
      making_added = struct.pack(format, stored,
        NUMBERED_HOLD_LENGTH + HELD_WINDOW_LENGTH + #name, making_on_expiry, now, expires - now, credits, balances,
        HOLD_NUMBER_LENGTH, 46, number, 1, bits, duration, charge_costs[PLACES_OF_KEY + 1], #name, name,
        number + 1, making_counts + ONE_OPEN_HOLD, making_notes)
      return expires, credits, false
    end
  end
  local formats, rest, windows, of_identity = hold_list.added_formats, '', 0, false
  if charge_count > 0 or request or shared then
    rest, windows, of_identity = charge_hold.pack_rest(false, cost, request, shared, expires)
  end
  local format = formats[kept] or new_format(formats, kept, NUMBERED_HOLD_FIELDS .. 'c0' .. HOLDS_END_KEPT_FIELDS)
  -- stylua: ignore
  making_added = struct.pack(format, stored,
    NUMBERED_HOLD_LENGTH + #rest - 2, making_on_expiry, now, expires - now, credits, balances,
    HOLD_NUMBER_LENGTH, 46, number, windows, rest,
    number + 1, making_counts + ONE_OPEN_HOLD, making_notes)
  return expires, credits, of_identity
end

-- Makes the hold of a verification that is VALID, in memory. Returns what is added to its outcome. `shared` is the
-- balance of the identity, false or nil for none.
function charge_hold.make(cost, request, shared)
  local packed, suffix, expires, credits, of_identity
  if making_holds then
    if call_settings.data_version >= 7 then hold_list.sum_up(making_holds) end
    packed, suffix, expires, credits, of_identity = charge_hold.new_hold(making_holds, cost, request, shared)
    making.suffix = suffix
    hold_list.add(making_holds, suffix, packed)
  else
    expires, credits, of_identity = charge_hold.add_to_few(cost, request, shared)
  end
  making_expires, making_noted_until = expires, of_identity and expires
  making_queued = expires < making_due and key_holds.look_by(expires, making_due)
  if shared and making_on_expiry == hold_list.RELEASES then shared.held = shared.held + credits end
  return WITH_HOLD
end

-- As pack_verified, which it calls in rare cases. In all others it packs the hold that was made, too.
function charge_hold.pack_answer(outcome, has_balance, balance)
  local count, results, number, expires = charge_count, charge_results, making_number, making_expires
  if making_holds or count > 1 then return pack_verified(outcome, has_balance, balance, true) end
  making_expires = false
  has_balance = has_balance and 1 or 0
  -- stylua: ignore
  if count == 1 then
    return struct.pack(VERIFIED_ONE_HELD, outcome, has_balance, balance, 1,
      results[1], results[2], results[3], results[4], 46, number, expires, HOLD_NUMBER_LENGTH)
  end
  return struct.pack(VERIFIED_HELD, outcome, has_balance, balance, 0, 46, number, expires, HOLD_NUMBER_LENGTH)
end

-- Writes a key with the hold that was made. Returns the answer of the verification with it.
function charge_hold.write(state, answer)
  local h = making_holds
  if h then
    answer = charge_hold.answer_of(answer, making.suffix, making_expires)
    redis.call('HSET', key_name, 'state', state, hold_list.fields(h))
  else
    if making_expires then
      answer = struct.pack('>c0' .. NUMBERED_HELD_FIELDS, answer, 46, making_number, making_expires, HOLD_NUMBER_LENGTH)
    end
    redis.call('HSET', key_name, 'state', state, 'holds', making_added)
  end
  if making_queued then key_holds.queue(making_queued) end
  if making_noted_until then
    local identity = name_of.identity_record(call_workspace, key_external_id)
    key_holds.note_identity(identity, making_noted_until, making.identity_until)
  end
  return answer
end

-- The answer to a request whose hold is open: the verification as it is now, without a charge.
function charge_hold.repeat_hold(hold, cost, request, text, ip)
  local requested = request and request.limits
  if hold.more.shape ~= charge_hold.shape_of(cost, requested) then return item_error('hold_differs', hold.suffix) end
  local outcome = precheck(request, text, ip)
  if outcome == VALID then
    local problem = look_at_limits(requested)
    if problem then return problem end
    if charge_ahead then return repair_windows(requested) end
    -- A limit whose units the hold itself took is not exceeded.
    for index = 1, charge_count do
      charge_results[4 * index - 2] = 0
    end
  end
  local dependencies = (key_identity or key_flags.permissions) and key_snapshot.dependencies() or ''
  local answer = pack_verified(outcome, key_flags.limited, key_counts.balance() or 0, outcome == VALID)
  local shared = key_identity and identity_credits.of_key()
  if shared then answer = identity_credits.added(answer, VERIFIED_HAS_BALANCE_AT, shared.balance) end
  if outcome == VALID then
    local first = string.char(string.byte(answer) + WITH_HOLD)
    answer = charge_hold.answer_of(first .. string.sub(answer, 2), hold.suffix, hold.at + hold.ttl)
  end
  return answer, key_snapshot.pack(dependencies)
end

-- Looks for a hold of the key that was loaded with the id of the request (`''` for none). Returns the item error if no
-- hold can be made, else nil; and the open hold that has the id.
function charge_hold.find_repeated(h, id)
  if id ~= '' then
    local suffix = '_' .. id
    local hold = hold_list.find(h, suffix)
    if hold and hold.state ~= hold_list.RELEASED then return nil, hold end
    if hold or settled_holds.find(h, call_workspace, key24(), call_hour, suffix) then
      return item_error('hold_ended', suffix)
    end
  end
  if hold_list.is_full(h) then return item_error('too_many_holds') end
end

-- The expiry of a hold of a verification that takes slots.
function charge_hold.planned(requested)
  local slots = {}
  charge_hold.slots = slots
  local looked, problem = pcall(look_at_limits, requested)
  charge_hold.slots = nil
  if not looked then error(problem, 0) end
  return slots_expiry(making_ttl, slots)
end

-- As is_decided, in the rare cases: the request has an id for its hold, its hold may be too large (`may_be_large`), or
-- the key has many holds.
function charge_hold.is_decided_slowly(cost, fields, last, may_be_large)
  local text = fields <= last and string.sub(call_items, fields, last)
  local ip = text and string.sub(text, 1, 1) ~= '{' and restriction.address_in(text)
  text = text and restriction.without_address(text)
  local request, repeated = text and request_of(text) or nil, nil
  making_holds, making.snapshot = hold_list.of(key_name, key_extension.stored_holds), false
  making.answer, repeated = charge_hold.find_repeated(making_holds, making_id)
  add_work(hold_list.work())
  if making.answer then return true end
  if repeated then
    making.answer, making.snapshot = charge_hold.repeat_hold(repeated, cost, request, text, ip)
    return true
  end
  if not may_be_large or not charge_hold.is_too_large(cost, request) then return false end
  making.answer = item_error('hold_too_large')
  return true
end

-- Looks at the holds of the key that was loaded, for a verification with a hold, which an earlier request may have
-- made. Returns whether no new hold is made: then early_answer returns the answer, and a snapshot.
function charge_hold.is_decided(cost, fields, last)
  local stored = key_extension.stored_holds or hold_list.NO_HOLDS
  -- The hold has at most this many bytes: the names of limits and tags are in the states and in the text of the
  -- request, and the number of the balance of an identity takes less than 64.
  local bytes = #key_packed + 2 * (last + 1 - fields)
  if key_identity then
    bytes = bytes + #key_identity + 64
    making.identity_until = key_holds.identity_until(name_of.identity_record(call_workspace, key_external_id))
  end
  making_from, making_holds = stored, false
  local next, counts, notes = struct.unpack(HOLDS_END_KEPT, stored, #stored - (HOLDS_END_LENGTH - 1))
  making_next, making_counts, making_notes = next, counts, notes
  -- Few holds, all of them in one bucket.
  local are_few = counts % 2 ^ 32 < MANY_HOLDS and counts % ONE_HOLD == 1 and #stored <= FEW_HOLDS_BYTES
  local may_be_large = bytes > HOLD_BYTES_MAX
  if are_few and making_id == '' and not may_be_large then return false end
  return charge_hold.is_decided_slowly(cost, fields, last, may_be_large)
end

function charge_hold.early_answer() return making.answer, making.snapshot or nil end

-- Decides an item: a verification with a hold. It takes slots only after its limits were looked at. After an error,
-- lua/decide.lua resets `is_held`.
function hold_kinds.decide(position, last, root_index)
  local fields
  making_ttl, making_on_expiry, making_id, fields = struct.unpack(HOLD_ITEM, call_items, position)
  charge_hold.is_held = true
  local answer, snapshot = verify(fields, last, root_index)
  charge_hold.is_held = false
  return answer, snapshot
end

-- Before an item: one that failed, or a call that was killed, may have been making a hold.
function hold_kinds.begin()
  if charge_hold.is_held then charge_hold.set(false, false) end
end

-- Decides a verification that takes slots, whose key is loaded. If it asks for no hold, it gets one that lasts as long
-- as its limits allow.
function charge_hold.instead(position, last, root_index, requested)
  if not charge_hold.is_held then
    making_ttl, making_on_expiry, making_id = false, hold_list.RELEASES, ''
    key_extension.stored_holds = redis.call('HGET', key_name, 'holds')
  end
  charge_hold.set(true, charge_hold.planned(requested))
  local answer, snapshot = verify(position, last, root_index)
  charge_hold.set(false, false)
  return answer, snapshot
end

-- The answer to a change: {late, expires, balance (nil for an unlimited key), shared (the balance of the identity; nil
-- if it was not charged), windows, packed (settled_holds.pack of these), identity (the externalId of one whose
-- amounts changed, or nil)}.
local function pack_changed(changed)
  local late, has_balance = changed.late and 1 or 0, changed.balance and 1 or 0
  local answer = struct.pack(
    hold_kinds.changed_and_rest,
    HOLD_CHANGED,
    late,
    changed.expires or 0,
    has_balance,
    changed.balance or 0,
    #changed.windows,
    changed.packed
  )
  if changed.shared then answer = identity_credits.added(answer, CHANGED_HOLD_HAS_BALANCE_AT, changed.shared) end
  return answer .. (changed.identity or '')
end

-- The windows by name. The one of an ad hoc limit follows that of an identity's limit with the same name: a settlement
-- that names them means the ad hoc one.
function hold_kinds.windows_by_name(windows)
  local by_name = {}
  for _, w in ipairs(windows) do
    by_name[w.name] = w
  end
  return by_name
end

-- Settles a hold that is open or was released. `wanted` are the units by name.
function hold_kinds.settle_hold(h, hold, credits, wanted)
  local windows, by_name = hold.windows, wanted and hold_kinds.windows_by_name(hold.windows)
  key_holds.settle_windows(hold, true)
  for name, cost in pairs(wanted or hold_list.EMPTY) do
    if not by_name[name] then return item_error('hold_limit_not_found', name) end
    by_name[name].settled = cost
  end
  local cost, packed = credits or hold.cost, settled_holds.pack(windows)
  local balance, shared = key_holds.settle(h, hold, cost)
  local settled = hold_kinds.settled
  settled.suffix, settled.late, settled.cost = hold.suffix, hold.state == hold_list.RELEASED, cost
  settled.balance, settled.shared, settled.windows, settled.packed = balance, shared, windows, packed
  settled.identity = hold.more and hold.more.externalId
  after_charge(settled_holds.note, call_workspace, key24(), call_hour, settled)
  return pack_changed(settled)
end

-- Packs the windows of an open hold, from a position on, as settled_holds.pack does for a settlement that changes
-- none of them. Returns nil if the hold has anything but windows of the key.
function hold_kinds.windows_as_held(stored, position, last, windows)
  local packed = ''
  for number = 1, windows do
    local bits, cost, name, _ = string.byte(stored, position), nil, nil, nil
    -- Slots, a large cost, or a window of the identity.
    if bits ~= 0 and bits ~= hold_list.FINE then return nil end
    _, _, cost, name, position = struct.unpack(HELD_WINDOW, stored, position)
    local window = struct.pack(SETTLED_WINDOW, cost, #name, name)
    packed = number == 1 and window or packed .. window
  end
  return position > last and packed or nil
end

-- Settles a hold as most are settled, in a part of the time of settle_hold: an open one of a key with few holds, whose
-- windows stay as they were charged. Returns nil if it is another one. Only what settling changes is read and written:
-- the balance, the credits of the hour, and the hold, which becomes the last one of the noted settlements.
function hold_kinds.settle_as_held(stored, suffix, credits)
  if key_flags.refilled or key_external_id ~= key_linked_id or #stored > FEW_HOLDS_BYTES then return nil end
  if key_extension.payer then return nil end
  local end_at, hour_now = #stored - (HOLDS_END_LENGTH - 1), call_hour
  local next, counts, noted, noted_hour = struct.unpack(HOLDS_END_FEW, stored, end_at)
  -- There are holds, all of them in one bucket.
  local count = counts % 2 ^ 32
  if count < ONE_HOLD or counts % ONE_HOLD ~= 1 then return nil end
  local first, others = noted + 1, ''
  if count > 2 * ONE_HOLD then
    local part = string.sub(stored, first, end_at - 1)
    local place = hold_list.place_in(part, suffix, 1)
    if not place then return nil end
    local next_place = place + 2 + struct.unpack(HOLD_BYTES, part, place)
    first, others = noted + place, string.sub(part, 1, place - 1) .. string.sub(part, next_place)
  end
  local bytes, held_state, _, _, held_cost, held_balance, held_suffix, windows, position =
    struct.unpack(HOLD, stored, first)
  if held_suffix ~= suffix then return nil end
  local last = first + bytes + 1
  local units = position > last and '' or hold_kinds.windows_as_held(stored, position, last, windows)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  if not units or #units > NOTED_BYTES or held_state == hold_list.RELEASED or hour ~= hour_now then return nil end
  local cost, left, has_balance, state = credits or held_cost, 0, 0, nil
  if key_flags.limited then
    left, has_balance, spent = balance, 1, math.min(spent + cost, SAFE_INTEGER)
  end
  if key_flags.limited and cost ~= held_cost then
    left = balance + key_holds.returned(held_cost, cost, held_balance)
    if left > SAFE_INTEGER or left < -SAFE_INTEGER then return nil end
    state = key_state(false, left, refill_due, last_used, hour, valid, refusals, spent)
  else
    state = state_with_spent(spent)
  end
  local kept, formats = noted, hold_list.settled_formats
  if noted > NOTED_BYTES or noted_hour ~= hour_now then
    kept = 0
    after_charge(settled_holds.move, call_workspace, key24(), hour_now, noted_hour, string.sub(stored, 1, noted))
  end
  local format = formats[kept] or new_format(formats, kept, SETTLED_HOLD_FIELDS .. 'c0c0' .. HOLDS_END_FEW_FIELDS)
  bytes = SETTLED_HOLD_LENGTH + #suffix + #units
  -- stylua: ignore
  local holds = struct.pack(format, kept > 0 and stored or '',
    bytes, 0, cost, has_balance, left, #suffix, suffix, windows, units, others,
    next, counts - ONE_OPEN_HOLD, kept + bytes + 2, hour_now)
  redis.call('HSET', key_name, 'state', state, 'holds', holds)
  key_api.spent = key_api.spent + has_balance * cost
  return struct.pack(hold_kinds.changed_and_rest, HOLD_CHANGED, 0, 0, has_balance, left, windows, units)
end

-- The answer to a settlement of a hold that was settled before.
function hold_kinds.settle_again(settled, credits, wanted)
  local is_same, by_name = not credits or credits == settled.cost, hold_kinds.windows_by_name(settled.windows)
  for name, cost in pairs(wanted or hold_list.EMPTY) do
    is_same = is_same and by_name[name] and by_name[name].cost == cost
  end
  if not is_same then return item_error('hold_differs', settled.suffix) end
  return pack_changed(settled)
end

-- Gives a hold back. Repeating it changes nothing.
function hold_kinds.release_hold(h, hold)
  local balance, shared, identity
  key_holds.settle_windows(hold, false)
  if hold.state == hold_list.RELEASED then
    local account = key_holds.account_of(hold)
    balance, shared = key_counts.balance(), account and account.balance
  else
    balance, shared = key_holds.release(h, hold)
    identity = hold.more and hold.more.externalId
  end
  local windows, packed = hold.windows, settled_holds.pack(hold.windows)
  return pack_changed({ balance = balance, shared = shared, windows = windows, packed = packed, identity = identity })
end

-- The concurrency limits of a state by their names.
function key_holds.slot_limits(packed, limits_at, tail_bytes)
  local limits = {}
  for _, l in ipairs((limit_ends.in_force(packed and read_limits(packed, limits_at, tail_bytes) or {}, call_now))) do
    if l.type == 1 then limits[l.name] = l end
  end
  return limits
end

-- Moves the slots of an open hold to a new expiry, in memory: `ttl` from now, or as late as their limits allow. Returns
-- the expiry, and a function that writes the slots.
function key_holds.move_slots(hold, ttl)
  ttl = math.min(ttl, hold.at + hold_list.EXPIRES_WITHIN - call_now)
  if #hold.slots == 0 then
    return call_now + ttl, function() end
  end
  local _, identity = key_holds.charged_identity(hold.more)
  local of_key = key_holds.slot_limits(key_packed, key_limits_at, key_flags.tail_bytes)
  local of_identity = key_holds.slot_limits(identity, IDENTITY_LIMITS_AT, 0)
  local limits, settling = {}, {}
  for _, slot in ipairs(hold.slots) do
    -- Nil if the limit was removed.
    slot.limit = (slot.of_identity and of_identity or of_key)[slot.name]
    limits[#limits + 1] = slot.limit
  end
  local expires, moved = slots_expiry(ttl, limits), key_holds.collect_slots(settling, hold)
  for index, w in ipairs(moved) do
    local limit = hold.slots[index].limit
    w.moved_to = limit and slot_end(expires, limit.limit, limit.duration) or expires
    w.slice = window_log.slice_of(limit and limit.duration or DAY_MS)
  end
  key_holds.return_collected(settling)
  local slots = {}
  for index, w in ipairs(moved) do
    local slot = hold.slots[index]
    -- Slots that are no longer there are not those of this hold.
    if w.is_found then
      slot.slot_end, slots[#slots + 1] = w.moved_to, slot
    end
  end
  hold.slots = slots
  return expires,
    function()
      redis.call('HSET', key_name, 'state', key_packed)
      key_holds.write_windows(settling)
    end
end

-- Sets another expiry: `ttl` from now, or earlier if the limits whose slots it takes require that.
function hold_kinds.extend_hold(h, hold, _, _, ttl)
  if hold.state == hold_list.RELEASED then return item_error('hold_ended', hold.suffix) end
  local expires, write_slots = key_holds.move_slots(hold, ttl)
  -- The clock has stepped back since it was made. A hold with units keeps its time, as they are in the slice of that
  -- time: it ends then.
  if expires < hold.at and #hold.windows == 0 then hold.at = call_now end
  hold.ttl = math.max(0, math.min(expires - hold.at, hold_list.EXPIRES_WITHIN))
  local place = { state = hold.state, bucket = hold.bucket, first = hold.first, last = hold.last }
  hold_list.replace(h, place, hold)
  local identity = key_holds.charged_identity(hold.more)
  local identity_until = identity and key_holds.identity_until(identity)
  expires = hold.at + hold.ttl
  local _, _, due = key_extension.read()
  local queued = key_holds.look_by(expires, due)
  redis.call('HSET', key_name, 'state', key_packed, hold_list.fields(h))
  key_holds.queue(queued)
  write_slots()
  if identity then key_holds.note_identity(identity, expires, identity_until) end
  return pack_changed({ expires = expires, windows = {}, packed = '' })
end

-- By the action of an item.
local change_by = { [0] = hold_kinds.settle_hold, [1] = hold_kinds.release_hold, [2] = hold_kinds.extend_hold }

-- The units of a settlement by name, from the limits of an item.
function hold_kinds.wanted_units(limits, position)
  local wanted = {}
  for _ = 1, limits do
    local cost, name
    cost, name, position = struct.unpack(SETTLED_WINDOW, call_items, position)
    wanted[name] = cost
  end
  return wanted
end

-- Decides an item: settles, releases or extends a hold.
function hold_kinds.change(position, _, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  if not root.may_verify then return root_error(root, 'api.*.verify_key') end
  local action, ttl, has_credits, credits, digest, id16, api8, suffix, limits, fields =
    struct.unpack(HOLD_CHANGE_ITEM, call_items, position)
  local is_found = key_holds.read_key(digest, true, true)
    and key_api8 == api8
    and string.sub(key_packed, 1, 16) == id16
    and (root.verifies_all or allows(root, 'api', key_api.id, 'verify_key'))
  if not is_found then return item_error('hold_not_found') end
  local wanted = limits > 0 and hold_kinds.wanted_units(limits, fields) or nil
  if has_credits == 0 then credits = nil end
  local stored = key_extension.stored_holds
  if action == 0 and not wanted and stored then
    local answer = hold_kinds.settle_as_held(stored, suffix, credits)
    if answer then return answer end
  end
  local h = hold_list.of(key_name, stored)
  local hold = hold_list.find(h, suffix)
  local settled = not hold and settled_holds.find(h, call_workspace, key24(), call_hour, suffix)
  add_work(hold_list.work())
  if hold then return change_by[action](h, hold, credits, wanted, ttl) end
  if not settled then return item_error('hold_not_found') end
  if action ~= 0 then return item_error('hold_ended', suffix) end
  return hold_kinds.settle_again(settled, credits, wanted)
end
