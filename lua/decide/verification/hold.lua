-- Holds: a verification whose charges are held until its caller settles them, and the settlements.

-- @include "decide/call"
-- @include "decide/roots"
-- @include "decide/verification/charge"
-- @include "decide/verification/counts"
-- @include "decide/verification/due"
-- @include "decide/verification/endedLimits"
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

-- What decides items, see lua/decide/kinds.lua.
local hold_kinds = {}

-- Whether the root key may verify the key that was loaded.
local function verifies_key(root) return root.verifies_all or allows(root, 'api', key_api.id, 'verify_key') end

-- What the verification that was just made charged to windows, as `windows` of a hold that ends at `expires`, the slots
-- that it took, and whether one of both is of the identity.
function charge_hold.windows_charged(requested, expires)
  local windows, slots, of_any_identity = {}, {}, false
  local key_limits = read_limits(key_packed, key_limits_at, key_flags.tail_bytes)
  local identity_limits = key_identity and read_limits(key_identity, IDENTITY_LIMITS_AT, 0)
  for index = 1, charge_count do
    local place, w = charge_results[4 * index - 3], nil
    if place > PLACES_OF_REQUEST then
      local name, cost, limit, duration = unpack(requested[place - PLACES_OF_REQUEST])
      w = { name = name, cost = cost, limit = limit, duration = duration, type = 0 }
    else
      local of_identity = place > PLACES_OF_IDENTITY
      local limit = of_identity and identity_limits[place - PLACES_OF_IDENTITY] or key_limits[place]
      local cost = key_counts.requested_cost(requested, limit.name)
      w = { name = limit.name, cost = cost, limit = limit.limit, duration = limit.duration, type = limit.type }
      w.of_identity = of_identity
    end
    if w.type == 0 then
      w.is_fine = w.limit <= FINE_LIMIT
      -- Also at a cost of 0: the settlement may charge more.
      windows[#windows + 1] = w
    elseif w.cost > 0 then
      w.slot_end = charge_hold.slot_end(expires, w.limit, w.duration)
      slots[#slots + 1] = w
    end
    if w.type == 0 or w.cost > 0 then of_any_identity = of_any_identity or w.of_identity end
  end
  return windows, slots, of_any_identity
end

-- What a repeated request must have in common with the first one.
function charge_hold.shape_of(cost, requested)
  return string.sub(redis.sha1hex(int(cost) .. cjson.encode(requested or {})), 1, 8)
end

-- A hold of what the last check of limits has charged, or would charge, and whether a window is of the identity.
-- `wanted` is {ttl, on_expiry, id} of HOLD_ITEM, with its expiry if that is known; `shared` the balance of the identity
-- or nil.
local function new_hold(h, wanted, cost, request, shared)
  local requested, more = request and request.limits, {}
  local expires = wanted.expires or call_now + (wanted.ttl or 0)
  local windows, slots, of_identity = charge_hold.windows_charged(requested, expires)
  local _, _, _, balances = key_extension.read()
  local hold = { state = wanted.on_expiry, at = call_now, ttl = expires - call_now, balance = balances }
  local has_credits = key_flags.limited or shared
  hold.windows, hold.slots = windows, slots
  hold.cost = has_credits and cost or 0
  hold.suffix = wanted.id ~= '' and '_' .. wanted.id or hold_list.next_suffix(h, call_now)
  if of_identity or shared then
    more.externalId, more.identity = key_external_id, string.sub(key_identity, 1, 16)
  end
  if shared then
    more.number, more.alone = identity_balance.number_of(shared), not key_flags.limited or nil
  end
  if wanted.id ~= '' then more.shape = charge_hold.shape_of(cost, requested) end
  more.tags = has_credits and request and request.tags or nil
  if next(more) then hold.more = more end
  return hold, of_identity
end

-- Whether the hold of a request would take too many bytes. The names of all limits and the tags are in the states and
-- in `text`: only where these are long, it is made to know its bytes.
local function is_too_large(h, wanted, cost, request, text)
  local shared = key_identity and identity_credits.of_key() or nil
  local bytes = #key_packed + (key_identity and #key_identity or 0) + 2 * (text and #text or 0)
  -- The number of the balance.
  if bytes + (shared and 64 or 0) <= HOLD_BYTES_MAX then return false end
  if charge_hold.look(request and request.limits) or charge_ahead then return false end
  return hold_list.bytes_of((new_hold(h, wanted, cost, request, shared))) > HOLD_BYTES_MAX
end

-- Holds what the verification that was just made charged. Returns the hold.
local function hold_charges(h, wanted, cost, request, identity_until)
  local shared = identity_credits.is_shared() and identity_credits.current or nil
  local hold, of_identity = new_hold(h, wanted, cost, request, shared)
  hold_list.add(h, hold)
  local fields, expires = hold_list.fields(h), call_now + hold.ttl
  key_holds.look_by(expires, fields)
  redis.call('HSET', key_name, unpack(fields))
  if of_identity then key_holds.note_identity(key_external_id, expires, identity_until) end
  if shared and hold.state == hold_list.RELEASES then
    shared.held = shared.held + hold.cost
    identity_credits.write()
  end
  return hold
end

function charge_hold.with_hold(answer, hold)
  local suffix, outcome = hold_list.printed(hold.suffix), string.byte(answer) + WITH_HOLD
  return string.char(outcome) .. string.sub(answer, 2) .. suffix .. struct.pack(HELD, hold.at + hold.ttl, #suffix)
end

-- The answer to a request whose hold is open: the verification as it is now, without a charge.
local function repeat_hold(hold, cost, request, text, ip)
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
  if outcome == VALID then answer = charge_hold.with_hold(answer, hold) end
  return answer, key_snapshot.pack(dependencies)
end

-- Why there can be no new hold with this id (`''` for none) of the key that was loaded, and its open hold of this id.
local function find_repeated(h, id)
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

-- Verifies the key that was loaded, and counts no credits as spent. Slots are taken until `expires`; returns nothing if
-- that is not known.
local function verify_held(position, last, root_index, expires)
  charge_hold.set(true, expires)
  local decided, answer, snapshot = pcall(verify, position, last, root_index)
  charge_hold.set(false, nil)
  if not decided then error(answer, 0) end
  return answer, snapshot
end

-- The expiry of a hold of a verification that takes slots.
function charge_hold.planned(wanted, requested)
  local slots = {}
  charge_hold.slots = slots
  local looked, problem = pcall(charge_hold.look, requested)
  charge_hold.slots = nil
  if not looked then error(problem, 0) end
  return charge_hold.expiry(wanted.ttl, slots)
end

-- Decides a verification whose VERIFY_ITEM is at `position`, and holds what it charges if it is VALID. As `verify`.
function charge_hold.decide(wanted, position, last, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  local digest, cost, cached_time, _, _, fields = struct.unpack(VERIFY_ITEM, call_items, position)
  if not root.may_verify or not key_holds.read_key(digest, cached_time > 0) or not verifies_key(root) then
    return verify(position, last, root_index)
  end
  local text = fields <= last and string.sub(call_items, fields, last)
  local ip = text and string.sub(text, 1, 1) ~= '{' and restriction.address_in(text)
  text = text and restriction.without_address(text)
  local request = text and request_of(text) or nil
  local h, identity_until = hold_list.read(key_name), key_holds.identity_until(key_external_id)
  local problem, repeated = find_repeated(h, wanted.id)
  if problem then return problem end
  add_work(hold_list.work())
  -- A repeated request has the limits of the identity in its answer, too.
  if key_identity and limit_ends.is_flagged(key_identity) then ended_limits.apply() end
  if repeated then return repeat_hold(repeated, cost, request, text, ip) end
  if is_too_large(h, wanted, cost, request, text) then return item_error('hold_too_large') end
  -- Without `ttl` it takes slots: that was seen by verify.
  local answer, snapshot
  if wanted.ttl then
    answer, snapshot = verify_held(position, last, root_index, nil)
  end
  if not answer and not charge_ahead then
    wanted.expires = charge_hold.planned(wanted, request and request.limits)
    answer, snapshot = verify_held(position, last, root_index, wanted.expires)
  end
  if not answer or string.byte(answer) % SNAPSHOT_BEFORE ~= VALID then return answer, snapshot end
  local hold = hold_charges(h, wanted, cost, request, identity_until)
  return charge_hold.with_hold(answer, hold), snapshot
end

-- Decides an item: a verification with a hold.
function hold_kinds.decide(position, last, root_index)
  local ttl, on_expiry, id, fields = struct.unpack(HOLD_ITEM, call_items, position)
  return charge_hold.decide({ ttl = ttl, on_expiry = on_expiry, id = id }, fields, last, root_index)
end

-- Decides a verification that takes slots and asks for no hold: it gets one that lasts as long as its limits allow.
function hold_kinds.decide_slots(position, last, root_index)
  return charge_hold.decide({ on_expiry = hold_list.RELEASES, id = '' }, position, last, root_index)
end

-- The answer to a change: {late, expires, balance (nil for an unlimited key), shared (the balance of the identity; nil
-- if it was not charged), windows: each {cost, name}}.
local function pack_changed(changed)
  local windows = {}
  for index, w in ipairs(changed.windows) do
    windows[index] = struct.pack(SETTLED_WINDOW, w.cost, #w.name, w.name)
  end
  local late, has_balance = changed.late and 1 or 0, changed.balance and 1 or 0
  local answer = struct.pack(
    CHANGED_HOLD,
    HOLD_CHANGED,
    late,
    changed.expires or 0,
    has_balance,
    changed.balance or 0,
    key_holds.digest(),
    #windows
  ) .. table.concat(windows)
  if not changed.shared then return answer end
  return identity_credits.added(answer, CHANGED_HOLD_HAS_BALANCE_AT, changed.shared)
end

-- The units of each window that a settlement charges: those of the request by name, or else `otherwise`. Also returns a
-- name of the request that no window has.
local function actual_units(windows, wanted, otherwise)
  local units, known = {}, {}
  for index, w in ipairs(windows) do
    units[index] = wanted[w.name] or otherwise[index]
    known[w.name] = true
  end
  for name in pairs(wanted) do
    if not known[name] then return units, name end
  end
  return units
end

-- Settles a hold that is open or was released.
local function settle_hold(h, hold, credits, wanted)
  local is_late = hold.state == hold_list.RELEASED
  local units, unknown = actual_units(hold.windows, wanted, key_holds.units(hold, true))
  if unknown then return item_error('hold_limit_not_found', unknown) end
  local cost = credits or hold.cost
  local balance, shared = key_holds.settle(h, hold, cost, units)
  local windows = {}
  for index, w in ipairs(hold.windows) do
    windows[index] = { name = w.name, cost = units[index] }
  end
  local settled = { suffix = hold.suffix, late = is_late, cost = cost, balance = balance, windows = windows }
  settled.shared = shared
  hold_list.note_settled(call_workspace, key24(), call_now, settled)
  return pack_changed(settled)
end

-- The answer to a settlement of a hold that was settled before.
local function settle_again(settled, credits, wanted)
  local held = {}
  for index, w in ipairs(settled.windows) do
    held[index] = w.cost
  end
  local units, unknown = actual_units(settled.windows, wanted, held)
  local is_same = not unknown and (not credits or credits == settled.cost)
  for index, w in ipairs(settled.windows) do
    is_same = is_same and units[index] == w.cost
  end
  if not is_same then return item_error('hold_differs', settled.suffix) end
  return pack_changed(settled)
end

-- Gives a hold back. Repeating it changes nothing.
local function release_hold(h, hold)
  local windows, balance, shared = {}, nil, nil
  if hold.state == hold_list.RELEASED then
    local account = key_holds.account_of(hold)
    balance, shared = key_counts.balance(), account and account.balance
  else
    balance, shared = key_holds.release(h, hold)
  end
  for index, w in ipairs(hold.windows) do
    windows[index] = { name = w.name, cost = 0 }
  end
  return pack_changed({ balance = balance, shared = shared, windows = windows })
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
  local limits, settling = {}, { wanted = {}, identities = {}, accounts = {}, records = {} }
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
  local fields = hold_list.fields(h)
  key_holds.look_by(expires, fields)
  redis.call('HSET', key_name, unpack(fields))
  write_slots()
  key_holds.note_identity(external_id, expires, identity_until)
  return pack_changed({ expires = expires, windows = {} })
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
  local wanted = {}
  for _ = 1, limits do
    local cost, name
    cost, name, position = struct.unpack(SETTLED_WINDOW, call_items, position)
    wanted[name] = cost
  end
  suffix = hold_list.parsed(suffix)
  if not suffix or not key_holds.read_key(digest, true) or key24() ~= id24 or not verifies_key(root) then
    return item_error('hold_not_found')
  end
  local h = hold_list.read(key_name)
  local hold = hold_list.find(h, suffix)
  local settled = not hold and hold_list.find_settled(call_workspace, key24(), call_now, suffix)
  add_work(hold_list.work())
  if hold then return change_by[action](h, hold, has_credits == 1 and credits or nil, wanted, ttl) end
  if not settled then return item_error('hold_not_found') end
  if action ~= 0 then return item_error('hold_ended', suffix) end
  return settle_again(settled, has_credits == 1 and credits or nil, wanted)
end
