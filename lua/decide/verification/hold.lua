-- Holds: a verification whose charges are held until its caller settles them, and the settlements.

-- @include "decide/call"
-- @include "decide/roots"
-- @include "decide/verification/charge"
-- @include "decide/verification/counts"
-- @include "decide/verification/due"
-- @include "decide/verification/identityCredits"
-- @include "decide/verification/key"
-- @include "decide/verification/restriction"
-- @include "decide/verification/snapshot"
-- @include "decide/verification/verify"
-- @include "include/clock"
-- @include "include/holds"
-- @include "include/identityBalance"
-- @include "include/state"
-- @include "include/window"

-- What decides items, see lua/decide/kinds.lua. `settled` is the last settlement; its table is used again by the next.
local hold_kinds = { settled = {} }

-- The hold that is made, in one table that is used again by every hold. What is missing is false: to add a nil to a
-- table, Lua may allocate it again.
--
--   ttl (false: as long as its slots allow), on_expiry, id   of HOLD_ITEM
--   stored, holds                                            field `holds` of the key before; the same as hold_list.of
--                                                            returns it, false while they are few
--   added                                                    field `holds` with the hold, if they are few
--   identity_until                                           key_holds.identity_until
--   answer, snapshot                                         if there is no new hold, see charge_hold.is_decided
--   place, packed, position                                  limits are read in order: the place of the last one (see
--                                                            VERIFIED_LIMIT), the state that has it, and the position
--                                                            after it
--   windows, slots                                           packed ones
--   due                                                      when the key has to be looked at already
--   queued, noted                                            to be written: times for key_holds.queue and note_identity
local making = { windows = {}, slots = {} }

-- Returns limit, duration, switches and name of the limit at a place after the last one.
function charge_hold.limit_at(place)
  if place > PLACES_OF_IDENTITY and making.place < PLACES_OF_IDENTITY then
    making.place, making.packed, making.position = PLACES_OF_IDENTITY, key_identity, IDENTITY_LIMITS_AT + 1
  end
  local packed, position, passed = making.packed, making.position, making.place
  local limit, duration, switches, name_bytes, name_at
  repeat
    limit, duration, switches, name_bytes = struct.unpack(LIMIT_HEAD, packed, position)
    name_at = position + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH)
    position, passed = name_at + name_bytes, passed + 1
  until passed == place
  making.place, making.position = place, position
  return limit, duration, switches, string.sub(packed, name_at, position - 1)
end

-- What a limit that applies is charged, by its place: name, cost, limit, duration, and the bits of a HELD_WINDOW.
function charge_hold.charged_at(place, requested)
  if place > PLACES_OF_REQUEST then
    local name, cost, limit, duration = unpack(requested[place - PLACES_OF_REQUEST])
    return name, cost, limit, duration, limit <= FINE_LIMIT and hold_list.FINE or 0
  end
  local limit, duration, switches, name = charge_hold.limit_at(place)
  local cost = requested and key_counts.requested_cost(requested, name) or 1
  local bits = place > PLACES_OF_IDENTITY and hold_list.OF_IDENTITY or 0
  if switches % (2 * CONCURRENCY) >= CONCURRENCY then
    bits = bits + hold_list.SLOTS
  elseif limit <= FINE_LIMIT then
    bits = bits + hold_list.FINE
  end
  return name, cost, limit, duration, bits
end

-- The packed window of the key's first limit, which is charged one unit; nil if it has slots.
function charge_hold.pack_first()
  local packed, name_at = key_packed, key_limits_at + 1 + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH)
  local limit, duration, switches, name_bytes = struct.unpack(LIMIT_HEAD, packed, key_limits_at + 1)
  if switches % (2 * CONCURRENCY) >= CONCURRENCY then return nil end
  local name, bits = string.sub(packed, name_at, name_at + name_bytes - 1), limit <= FINE_LIMIT and hold_list.FINE or 0
  return hold_list.pack_window(bits, duration, 1, name)
end

-- What the last check of limits has charged, or would charge, as the packed windows of a hold that ends at `expires`,
-- and the slots after them. Also returns their number, and whether one of them is of the identity.
function charge_hold.pack_charged(requested, expires)
  if charge_count == 0 then return '', 0, false end
  -- Most keys have one limit.
  local is_first = charge_count == 1 and not requested and charge_results[1] == PLACES_OF_KEY + 1
  local first = is_first and charge_hold.pack_first()
  if first then return first, 1, false end
  local windows, slots, of_identity = 0, 0, false
  local packed_windows, packed_slots = making.windows, making.slots
  making.place, making.packed, making.position = PLACES_OF_KEY, key_packed, key_limits_at + 1
  for index = 1, charge_count do
    local name, cost, limit, duration, bits = charge_hold.charged_at(charge_results[4 * index - 3], requested)
    if bits < hold_list.SLOTS then
      -- Also at a cost of 0: the settlement may charge more.
      windows = windows + 1
      packed_windows[windows] = hold_list.pack_window(bits, duration, cost, name)
    elseif cost > 0 then
      slots = slots + 1
      packed_slots[slots] = hold_list.pack_window(bits, charge_hold.slot_end(expires, limit, duration), cost, name)
    end
    if bits < hold_list.SLOTS or cost > 0 then of_identity = of_identity or bits % 2 == hold_list.OF_IDENTITY end
  end
  local packed = windows == 1 and packed_windows[1] or table.concat(packed_windows, '', 1, windows)
  if slots > 0 then packed = packed .. table.concat(packed_slots, '', 1, slots) end
  return packed, windows + slots, of_identity
end

-- What a repeated request must have in common with the first one.
function charge_hold.shape_of(cost, requested)
  return string.sub(redis.sha1hex(int(cost) .. cjson.encode(requested or {})), 1, 8)
end

-- What a hold has in few cases, as JSON; '' for none.
function charge_hold.pack_more(cost, request, shared, of_identity)
  local tags = (key_flags.limited or shared) and request and request.tags or nil
  if not of_identity and not shared and not tags and making.id == '' then return '' end
  local more = { tags = tags }
  if of_identity or shared then
    more.externalId, more.identity = key_external_id, string.sub(key_identity, 1, 16)
  end
  if shared then
    more.number, more.alone = identity_balance.number_of(shared), not key_flags.limited or nil
  end
  if making.id ~= '' then more.shape = charge_hold.shape_of(cost, request and request.limits) end
  return cjson.encode(more)
end

-- A hold of what the last check of limits has charged, or would charge: its expiry, its credits, the number of the
-- balance, its windows and slots, the packed rest of it, and whether one of these is of the identity. `shared` is the
-- balance of the identity, false or nil for none.
function charge_hold.planned_hold(cost, request, shared)
  local expires, rest, windows, of_identity = charge_hold.expires or call_now + (making.ttl or 0), '', 0, false
  if charge_count > 0 then
    rest, windows, of_identity = charge_hold.pack_charged(request and request.limits, expires)
  end
  if request or shared or of_identity or making.id ~= '' then
    rest = rest .. charge_hold.pack_more(cost, request, shared, of_identity)
  end
  local credits, _, _, due, balances = (key_flags.limited or shared) and cost or 0, key_extension.read()
  making.due = due
  return expires, credits, balances, windows, rest, of_identity
end

-- The same packed; then its suffix, its expiry, its credits, and whether it charged the identity.
function charge_hold.new_hold(cost, request, shared)
  local suffix = making.id ~= '' and '_' .. making.id or hold_list.next_suffix(making.holds, call_now)
  local expires, credits, balances, windows, rest, of_identity = charge_hold.planned_hold(cost, request, shared)
  local ttl = expires - call_now
  local hold = hold_list.pack(making.on_expiry, call_now, ttl, credits, balances, suffix, windows, rest)
  return hold, suffix, expires, credits, of_identity
end

-- Whether the hold of a request would take too many bytes: it is made to know them.
function charge_hold.is_too_large(cost, request)
  local shared = key_identity and identity_credits.of_key() or nil
  if charge_hold.look(request and request.limits) or charge_ahead then return false end
  return #charge_hold.new_hold(cost, request, shared) > HOLD_BYTES_MAX
end

-- The end of the answer to a verification with a hold.
local ANSWER_END = '>c0' .. HELD_FIELDS
function charge_hold.answer_end(suffix, expires) return struct.pack(ANSWER_END, suffix, expires, #suffix) end

-- Makes the hold of a verification that is VALID, in memory, and adds it to few holds as they are stored (see
-- making.stored). Returns its suffix, its expiry, its credits, and whether it charged the identity.
local WITH_HOLD_AND_REST = HOLDS_HEAD .. 'c0' .. HOLD_FIELDS .. 'c0'
function charge_hold.add_to_few(cost, request, shared)
  local expires, credits, balances, windows, rest, of_identity = charge_hold.planned_hold(cost, request, shared)
  local now, stored = call_now, making.stored
  local next, open, count, _ = struct.unpack(HOLDS_HEAD, stored)
  local number, suffix = hold_list.next_number(next, now)
  making.added = struct.pack(
    WITH_HOLD_AND_REST,
    number + 1,
    open + 1,
    count + 1,
    1,
    string.sub(stored, HOLDS_HEAD_LENGTH + 1),
    HOLD_LENGTH + #suffix + #rest,
    making.on_expiry,
    now,
    expires - now,
    credits,
    balances,
    #suffix,
    suffix,
    windows,
    rest
  )
  return suffix, expires, credits, of_identity
end

-- Makes the hold of a verification that is VALID, in memory. Returns the end of its answer. `shared` is the balance of
-- the identity, false or nil for none.
function charge_hold.make(cost, request, shared)
  local suffix, expires, credits, of_identity
  if making.holds then
    local packed
    packed, suffix, expires, credits, of_identity = charge_hold.new_hold(cost, request, shared)
    hold_list.add(making.holds, suffix, packed)
  else
    suffix, expires, credits, of_identity = charge_hold.add_to_few(cost, request, shared)
  end
  local due = making.due
  making.queued = expires < due and key_holds.look_by(expires, due)
  making.noted = of_identity and expires
  if shared and making.on_expiry == hold_list.RELEASES then shared.held = shared.held + credits end
  return charge_hold.answer_end(suffix, expires)
end

-- Writes a key with the hold that was made. Returns the answer of the verification.
function charge_hold.write(state, answer)
  local h = making.holds
  if h then
    redis.call('HSET', key_name, 'state', state, hold_list.fields(h))
  else
    redis.call('HSET', key_name, 'state', state, 'holds', making.added)
  end
  if making.queued then key_holds.queue(making.queued) end
  if making.noted then key_holds.note_identity(key_external_id, making.noted, making.identity_until) end
  return answer
end

-- The answer to a request whose hold is open: the verification as it is now, without a charge.
function charge_hold.repeat_hold(hold, cost, request, text, ip)
  local requested = request and request.limits
  if hold.more.shape ~= charge_hold.shape_of(cost, requested) then return item_error('hold_differs', hold.suffix) end
  local outcome = precheck(request, text, ip)
  if outcome == VALID then
    local problem = charge_hold.look(requested)
    if problem then return problem end
    if charge_ahead then return charge_hold.repair(requested) end
    -- What the hold itself took is not exceeded.
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
    answer = first .. string.sub(answer, 2) .. charge_hold.answer_end(hold.suffix, hold.at + hold.ttl)
  end
  return answer, key_snapshot.pack(dependencies)
end

-- Why there can be no new hold with this id (`''` for none) of the key that was loaded, and its open hold of this id.
function charge_hold.find_repeated(h, id)
  if id ~= '' then
    local suffix = '_' .. id
    local hold = hold_list.find(h, suffix)
    if hold and hold.state ~= hold_list.RELEASED then return nil, hold end
    if hold or hold_list.find_settled(call_workspace, key24(), call_hour, suffix) then
      return item_error('hold_ended', suffix)
    end
  end
  if h.open >= hold_list.MAX then return item_error('too_many_holds') end
end

-- The expiry of a hold of a verification that takes slots.
function charge_hold.planned(requested)
  local slots = {}
  charge_hold.slots = slots
  local looked, problem = pcall(charge_hold.look, requested)
  charge_hold.slots = nil
  if not looked then error(problem, 0) end
  return charge_hold.expiry(making.ttl, slots)
end

-- As is_decided, if the request has an id for its hold, or what it may hold (`may_be_large`) or what the key holds is
-- long.
function charge_hold.is_decided_slowly(cost, fields, last, may_be_large)
  local text = fields <= last and string.sub(call_items, fields, last)
  local ip = text and string.sub(text, 1, 1) ~= '{' and restriction.address_in(text)
  text = text and restriction.without_address(text)
  local request, repeated = text and request_of(text) or nil, nil
  making.holds, making.snapshot = hold_list.of(key_name, key_extension.stored_holds), false
  making.answer, repeated = charge_hold.find_repeated(making.holds, making.id)
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

-- Limit of field `holds` with few holds, as most keys have: they are changed as they are stored, because a table would
-- be most of the cost.
local FEW_BYTES = 1024

-- Looks at the holds of the key that was loaded for a verification with a hold, which it may have made before. Returns
-- whether it makes no new one: then early_answer returns the answer of the verification, and a snapshot.
function charge_hold.is_decided(cost, fields, last)
  local stored = key_extension.stored_holds or hold_list.NO_HOLDS
  -- The hold has no more bytes: the names of limits and tags are in the states and in the text of the request, and the
  -- number of the balance of an identity takes less than 64.
  local bytes = #key_packed + 2 * (last + 1 - fields)
  if key_identity then
    bytes = bytes + #key_identity + 64
    making.identity_until = key_holds.identity_until(key_external_id)
  end
  making.stored, making.holds = stored, false
  -- The high and the low bytes of both.
  local many, count, far, buckets = string.byte(stored, HOLDS_HEAD_COUNT_AT, HOLDS_HEAD_LENGTH)
  local are_few = #stored <= FEW_BYTES and many == 0 and count < hold_list.BUCKET_HOLDS and far == 0 and buckets == 1
  local may_be_large = bytes > HOLD_BYTES_MAX
  if are_few and making.id == '' and not may_be_large then return false end
  return charge_hold.is_decided_slowly(cost, fields, last, may_be_large)
end

function charge_hold.early_answer() return making.answer, making.snapshot or nil end

-- Decides an item: a verification with a hold. It takes no slots before its limits were seen. After an error,
-- lua/decide.lua ends it.
function hold_kinds.decide(position, last, root_index)
  local fields
  making.ttl, making.on_expiry, making.id, fields = struct.unpack(HOLD_ITEM, call_items, position)
  charge_hold.is_held = true
  local answer, snapshot = verify(fields, last, root_index)
  charge_hold.is_held = false
  return answer, snapshot
end

-- Decides a verification that takes slots, whose key is loaded. If it asks for no hold, it gets one that lasts as long
-- as its limits allow.
function hold_kinds.decide_slots(position, last, root_index, requested)
  if not charge_hold.is_held then
    making.ttl, making.on_expiry, making.id = false, hold_list.RELEASES, ''
    key_extension.stored_holds = redis.call('HGET', key_name, 'holds')
  end
  charge_hold.set(true, charge_hold.planned(requested))
  local answer, snapshot = verify(position, last, root_index)
  charge_hold.set(false, false)
  return answer, snapshot
end

-- The answer to a change: {late, expires, balance (nil for an unlimited key), shared (the balance of the identity; nil
-- if it was not charged), windows, packed (hold_list.pack_settled of these)}.
local function pack_changed(changed)
  local late, has_balance = changed.late and 1 or 0, changed.balance and 1 or 0
  local answer = struct.pack(
    CHANGED_HOLD,
    HOLD_CHANGED,
    late,
    changed.expires or 0,
    has_balance,
    changed.balance or 0,
    #changed.windows
  ) .. changed.packed
  if not changed.shared then return answer end
  return identity_credits.added(answer, CHANGED_HOLD_HAS_BALANCE_AT, changed.shared)
end

-- A name among the wanted units that no window has; nil if there is none. `wanted` are the units of a settlement by
-- name; nil for those that were held.
local function unknown_window(windows, wanted)
  local known = {}
  for _, w in ipairs(windows) do
    known[w.name] = true
  end
  for name in pairs(wanted) do
    if not known[name] then return name end
  end
end

-- Settles a hold that is open or was released.
local function settle_hold(h, hold, credits, wanted)
  local windows, unknown = hold.windows, wanted and unknown_window(hold.windows, wanted)
  if unknown then return item_error('hold_limit_not_found', unknown) end
  for index = 1, #windows do
    local w = windows[index]
    w.settled = wanted and wanted[w.name] or w.cost
  end
  local cost, packed = credits or hold.cost, hold_list.pack_settled(windows)
  local balance, shared = key_holds.settle(h, hold, cost)
  local settled = hold_kinds.settled
  settled.suffix, settled.late, settled.cost = hold.suffix, hold.state == hold_list.RELEASED, cost
  settled.balance, settled.shared, settled.windows, settled.packed = balance, shared, windows, packed
  hold_list.note_settled(call_workspace, key24(), call_hour, settled)
  return pack_changed(settled)
end

-- The windows of an open hold from a position on, as a settlement charges them that changes none, packed as by
-- hold_list.pack_settled; nil if there is more than windows of the key.
function hold_kinds.windows_as_held(stored, position, last, windows)
  local packed = ''
  for _ = 1, windows do
    local bits = string.byte(stored, position)
    -- Slots, a large cost, or a window of the identity.
    if bits ~= 0 and bits ~= hold_list.FINE then return nil end
    local cost, name
    _, _, cost, name, position = struct.unpack(HELD_WINDOW, stored, position)
    packed = packed .. struct.pack(SETTLED_WINDOW, cost, #name, name)
  end
  return position > last and packed or nil
end

-- Settles a hold as most are settled, in a part of the time of settle_hold: an open one of a key with few holds, whose
-- windows stay as they were charged. Returns nil if it is another one. Only what settling changes is read and written:
-- the balance, the credits of the hour, the hold and its note.
function hold_kinds.settle_as_held(stored, suffix, credits, id24)
  if key_flags.refilled or key_external_id ~= key_linked_id or #stored > FEW_BYTES then return nil end
  local next, open, count, buckets = struct.unpack(HOLDS_HEAD, stored)
  if buckets ~= 1 or count == 0 then return nil end
  local first = HOLDS_HEAD_LENGTH + 1
  if count > 1 then first = hold_list.place_in(stored, suffix, first) end
  if not first then return nil end
  local bytes, held_state, _, _, held_cost, held_balance, held_suffix, windows, position =
    struct.unpack(HOLD, stored, first)
  if held_suffix ~= suffix then return nil end
  local last = first + bytes + 1
  local units = position > last and '' or hold_kinds.windows_as_held(stored, position, last, windows)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  if not units or held_state == hold_list.RELEASED or hour ~= call_hour then return nil end
  local cost, left, has_balance = credits or held_cost, 0, 0
  if key_flags.limited then
    if cost ~= held_cost then balance = balance + key_holds.returned(held_cost, cost, held_balance) end
    if balance > SAFE_INTEGER or balance < -SAFE_INTEGER then return nil end
    spent, left, has_balance = spent + cost, balance, 1
  end
  local state = key_state(false, balance, refill_due, last_used, hour, valid, refusals, spent)
  local holds = struct.pack(HOLDS_HEAD, next, open - 1, count - 1, 1)
  if count > 1 then
    holds = holds .. string.sub(stored, HOLDS_HEAD_LENGTH + 1, first - 1) .. string.sub(stored, last + 1)
  end
  redis.call('HSET', key_name, 'state', state, 'holds', holds)
  hold_list.note_fields(call_workspace, id24, call_hour, suffix, 0, cost, has_balance, left, windows, units)
  key_api.spent = key_api.spent + has_balance * cost
  return struct.pack(CHANGED_HOLD, HOLD_CHANGED, 0, 0, has_balance, left, windows) .. units
end

-- The answer to a settlement of a hold that was settled before.
local function settle_again(settled, credits, wanted)
  local is_same = not credits or credits == settled.cost
  if wanted then
    is_same = is_same and not unknown_window(settled.windows, wanted)
    for _, w in ipairs(settled.windows) do
      is_same = is_same and (wanted[w.name] or w.cost) == w.cost
    end
  end
  if not is_same then return item_error('hold_differs', settled.suffix) end
  return pack_changed(settled)
end

-- Gives a hold back. Repeating it changes nothing.
local function release_hold(h, hold)
  local balance, shared
  key_holds.settle_windows(hold, false)
  if hold.state == hold_list.RELEASED then
    local account = key_holds.account_of(hold)
    balance, shared = key_counts.balance(), account and account.balance
  else
    balance, shared = key_holds.release(h, hold)
  end
  local packed = hold_list.pack_settled(hold.windows)
  return pack_changed({ balance = balance, shared = shared, windows = hold.windows, packed = packed })
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
    -- Nil if it was removed.
    slot.limit = (slot.of_identity and of_identity or of_key)[slot.name]
    limits[#limits + 1] = slot.limit
  end
  local expires, moved = charge_hold.expiry(ttl, limits), key_holds.collect_slots(settling, hold)
  for index, w in ipairs(moved) do
    local limit = hold.slots[index].limit
    w.moved_to = limit and charge_hold.slot_end(expires, limit.limit, limit.duration) or expires
    w.slice = window_log.slice_end(0, FINE_LIMIT + 1, limit and limit.duration or DAY_MS)
  end
  key_holds.return_collected(settling)
  local slots = {}
  for index, w in ipairs(moved) do
    local slot = hold.slots[index]
    -- One that is not there any more is none of this hold.
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

-- Sets another expiry, `ttl` from now; as long as the limits allow whose slots it takes.
local function extend_hold(h, hold, _, _, ttl)
  if hold.state == hold_list.RELEASED then return item_error('hold_ended', hold.suffix) end
  local expires, write_slots = key_holds.move_slots(hold, ttl)
  -- It was made before the clock stepped back: with units, which are of the slice of that time, it lasts until then.
  if expires < hold.at and #hold.windows == 0 then hold.at = call_now end
  hold.ttl = math.max(0, math.min(expires - hold.at, hold_list.EXPIRES_WITHIN))
  local place = { state = hold.state, bucket = hold.bucket, first = hold.first, last = hold.last }
  hold_list.replace(h, place, hold)
  local external_id = hold.more and hold.more.externalId or ''
  local identity_until = key_holds.identity_until(external_id)
  expires = hold.at + hold.ttl
  local _, _, due = key_extension.read()
  local queued = key_holds.look_by(expires, due)
  redis.call('HSET', key_name, 'state', key_packed, hold_list.fields(h))
  key_holds.queue(queued)
  write_slots()
  key_holds.note_identity(external_id, expires, identity_until)
  return pack_changed({ expires = expires, windows = {}, packed = '' })
end

-- By the action of an item.
local change_by = { [0] = settle_hold, [1] = release_hold, [2] = extend_hold }

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
    local answer = hold_kinds.settle_as_held(stored, suffix, credits, id16 .. api8)
    if answer then return answer end
  end
  local h = hold_list.of(key_name, stored)
  local hold = hold_list.find(h, suffix)
  local settled = not hold and hold_list.find_settled(call_workspace, key24(), call_hour, suffix)
  add_work(hold_list.work())
  if hold then return change_by[action](h, hold, credits, wanted, ttl) end
  if not settled then return item_error('hold_not_found') end
  if action ~= 0 then return item_error('hold_ended', suffix) end
  return settle_again(settled, credits, wanted)
end
