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

-- Whether the root key may verify the key that was loaded.
local function verifies_key(root) return root.verifies_all or allows(root, 'api', key_api.id, 'verify_key') end

-- The hold that is made, in one table that is used again by every hold:
--
--   ttl (nil: as long as its slots allow), on_expiry, id   of HOLD_ITEM
--   holds, identity_until                                  of the key; key_holds.identity_until
--   expires                                                nil until it is known
--   place, packed, position                                limits are read in order: the place of the last one (see
--                                                          VERIFIED_LIMIT), the state that has it, and the position
--                                                          after it
--   windows, slots                                         packed ones
--   due                                                    when the key has to be looked at already
--   queued, noted                                          to be written: times for key_holds.queue and note_identity,
--                                                          nil for none
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

-- What the last check of limits has charged, or would charge, as the packed windows of a hold that ends at `expires`,
-- and the slots after them. Also returns their number, and whether one of them is of the identity.
function charge_hold.pack_charged(requested, expires)
  if charge_count == 0 then return '', 0, false end
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

-- A hold of what the last check of limits has charged, or would charge: packed, its expiry, its suffix, whether a
-- window or slot is of the identity, and its credits. `shared` is the balance of the identity or nil.
function charge_hold.new_hold(cost, request, shared)
  local expires = making.expires or call_now + (making.ttl or 0)
  local packed, count, of_identity = charge_hold.pack_charged(request and request.limits, expires)
  local rest = packed .. charge_hold.pack_more(cost, request, shared, of_identity)
  local suffix = making.id ~= '' and '_' .. making.id or hold_list.next_suffix(making.holds, call_now)
  local credits, _, _, due, balances = (key_flags.limited or shared) and cost or 0, key_extension.read()
  making.due = due
  local hold = hold_list.pack(making.on_expiry, call_now, expires - call_now, credits, balances, suffix, count, rest)
  return hold, expires, suffix, of_identity, credits
end

-- Whether the hold of a request would take too many bytes. The names of all limits and the tags are in the states and
-- in `text`: only where these are long, it is made to know its bytes.
function charge_hold.is_too_large(cost, request, text)
  local shared = key_identity and identity_credits.of_key() or nil
  local bytes = #key_packed + (key_identity and #key_identity or 0) + 2 * (text and #text or 0)
  -- The number of the balance.
  if bytes + (shared and 64 or 0) <= HOLD_BYTES_MAX then return false end
  if charge_hold.look(request and request.limits) or charge_ahead then return false end
  return #charge_hold.new_hold(cost, request, shared) > HOLD_BYTES_MAX
end

-- The end of the answer to a verification with a hold.
function charge_hold.answer_end(suffix, expires)
  local printed = hold_list.printed(suffix)
  return printed .. struct.pack(HELD, expires, #printed)
end

-- Makes the hold of a verification that is VALID, in memory. Returns the end of its answer. `shared` is the balance of
-- the identity, false or nil for none.
function charge_hold.make(cost, request, shared)
  local packed, expires, suffix, of_identity, credits = charge_hold.new_hold(cost, request, shared)
  hold_list.add(making.holds, suffix, packed)
  making.queued = key_holds.look_by(expires, making.due)
  making.noted = of_identity and expires
  if shared and making.on_expiry == hold_list.RELEASES then shared.held = shared.held + credits end
  return charge_hold.answer_end(suffix, expires)
end

-- Writes a key with the hold that was made. Returns the answer of the verification.
function charge_hold.write(state, answer)
  redis.call('HSET', key_name, 'state', state, hold_list.fields(making.holds))
  key_holds.queue(making.queued)
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
    if hold or hold_list.find_settled(call_workspace, key24(), call_now, suffix) then
      return item_error('hold_ended', suffix)
    end
  end
  if h.open >= hold_list.MAX then return item_error('too_many_holds') end
end

-- Verifies the key that was loaded, and holds what is charged: no credits are counted as spent. Slots are taken until
-- `expires`; returns nothing if that is not known. After an error, lua/decide.lua ends it.
local function verify_held(position, last, root_index)
  charge_hold.set(true, making.expires)
  local answer, snapshot = verify(position, last, root_index)
  charge_hold.set(false, nil)
  return answer, snapshot
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

-- Decides a verification whose VERIFY_ITEM is at `position`, and holds what it charges if it is VALID. As `verify`.
function charge_hold.decide(ttl, on_expiry, id, position, last, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  local digest, cost, cached_time, _, _, fields = struct.unpack(VERIFY_ITEM, call_items, position)
  if not root.may_verify or not key_holds.read_key(digest, cached_time > 0, true) or not verifies_key(root) then
    return verify(position, last, root_index)
  end
  local text = fields <= last and string.sub(call_items, fields, last)
  local ip = text and string.sub(text, 1, 1) ~= '{' and restriction.address_in(text)
  text = text and restriction.without_address(text)
  local request = text and request_of(text) or nil
  making.ttl, making.on_expiry, making.id, making.expires = ttl, on_expiry, id, nil
  making.holds = hold_list.of(key_name, key_extension.stored_holds)
  making.identity_until = key_holds.identity_until(key_external_id)
  local problem, repeated = charge_hold.find_repeated(making.holds, id)
  if problem then return problem end
  add_work(hold_list.work())
  if repeated then return charge_hold.repeat_hold(repeated, cost, request, text, ip) end
  if charge_hold.is_too_large(cost, request, text) then return item_error('hold_too_large') end
  -- Without `ttl` it takes slots: that was seen by verify.
  local answer, snapshot
  if ttl then
    answer, snapshot = verify_held(position, last, root_index)
  end
  if not answer and not charge_ahead then
    making.expires = charge_hold.planned(request and request.limits)
    answer, snapshot = verify_held(position, last, root_index)
  end
  return answer, snapshot
end

-- Decides an item: a verification with a hold.
function hold_kinds.decide(position, last, root_index)
  local ttl, on_expiry, id, fields = struct.unpack(HOLD_ITEM, call_items, position)
  return charge_hold.decide(ttl, on_expiry, id, fields, last, root_index)
end

-- Decides a verification that takes slots and asks for no hold: it gets one that lasts as long as its limits allow.
function hold_kinds.decide_slots(position, last, root_index)
  return charge_hold.decide(nil, hold_list.RELEASES, '', position, last, root_index)
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
  hold_list.note_settled(call_workspace, key24(), call_now, settled)
  return pack_changed(settled)
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

-- Decides an item: settles, releases or extends a hold.
function hold_kinds.change(position, _, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  if not root.may_verify then return root_error(root, 'api.*.verify_key') end
  local action, ttl, has_credits, credits, digest, id24, suffix, limits
  action, ttl, has_credits, credits, digest, id24, suffix, limits, position =
    struct.unpack(HOLD_CHANGE_ITEM, call_items, position)
  local wanted = limits > 0 and {} or nil
  for _ = 1, limits do
    local cost, name
    cost, name, position = struct.unpack(SETTLED_WINDOW, call_items, position)
    wanted[name] = cost
  end
  suffix = hold_list.parsed(suffix)
  local is_found = suffix and key_holds.read_key(digest, true, true)
  if not is_found or key24() ~= id24 or not verifies_key(root) then
    return suffix and is_found == false and key24() == id24 and key_holds.moved(root) or item_error('hold_not_found')
  end
  local h = hold_list.of(key_name, key_extension.stored_holds)
  local hold = hold_list.find(h, suffix)
  local settled = not hold and hold_list.find_settled(call_workspace, key24(), call_now, suffix)
  add_work(hold_list.work())
  if hold then return change_by[action](h, hold, has_credits == 1 and credits or nil, wanted, ttl) end
  if not settled then return item_error('hold_not_found') end
  if action ~= 0 then return item_error('hold_ended', suffix) end
  return settle_again(settled, has_credits == 1 and credits or nil, wanted)
end
