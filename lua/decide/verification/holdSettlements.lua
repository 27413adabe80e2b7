-- Settles and releases holds of the key that was loaded.

-- @include "decide/call"
-- @include "decide/verification/counts"
-- @include "decide/verification/heldCharges"
-- @include "decide/verification/identityCredits"
-- @include "decide/verification/key"
-- @include "decide/verification/newState"
-- @include "include/holdFormat"
-- @include "include/holds"
-- @include "include/settledHolds"

-- `settled` is the last settlement; its table is used again by the next.
local hold_settlements = { settled = {}, changed_and_rest = CHANGED_HOLD .. 'c0' }

-- The answer to a change: {late, expires, balance (nil for an unlimited key), shared (the balance of the identity; nil
-- if it was not charged), windows, packed (settled_holds.pack of these), identity (the externalId of one whose
-- amounts changed, or nil)}.
function hold_settlements.pack(changed)
  local late, has_balance = changed.late and 1 or 0, changed.balance and 1 or 0
  local answer = struct.pack(
    hold_settlements.changed_and_rest,
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
function hold_settlements.windows_by_name(windows)
  local by_name = {}
  for _, w in ipairs(windows) do
    by_name[w.name] = w
  end
  return by_name
end

-- Settles a hold that is open or was released. `wanted` are the units by name.
function hold_settlements.settle(h, hold, credits, wanted)
  local windows, by_name = hold.windows, wanted and hold_settlements.windows_by_name(hold.windows)
  held_charges.settle_windows(hold, true)
  for name, cost in pairs(wanted or hold_format.EMPTY) do
    if not by_name[name] then return item_error('hold_limit_not_found', name) end
    by_name[name].settled = cost
  end
  local cost, packed = credits or hold.cost, settled_holds.pack(windows)
  local balance, shared = held_charges.settle(h, hold, cost)
  local settled = hold_settlements.settled
  settled.suffix, settled.late, settled.cost = hold.suffix, hold.state == hold_format.RELEASED, cost
  settled.balance, settled.shared, settled.windows, settled.packed = balance, shared, windows, packed
  settled.identity = hold.more and hold.more.externalId
  after_charge(settled_holds.note, call_workspace, key24(), call_hour, settled)
  return hold_settlements.pack(settled)
end

-- Packs the windows of an open hold, from a position on, as settled_holds.pack does for a settlement that changes
-- none of them. Returns nil if the hold has anything but windows of the key.
function hold_settlements.windows_as_held(stored, position, last, windows)
  local packed = ''
  for number = 1, windows do
    local bits, cost, name, _ = string.byte(stored, position), nil, nil, nil
    -- Slots, a large cost, or a window of the identity.
    if bits ~= 0 and bits ~= hold_format.FINE then return nil end
    _, _, cost, name, position = struct.unpack(HELD_WINDOW, stored, position)
    local window = struct.pack(SETTLED_WINDOW, cost, #name, name)
    packed = number == 1 and window or packed .. window
  end
  return position > last and packed or nil
end

-- Settles a hold as most are settled, in a part of the time of settle_hold: an open one of a key with few holds, whose
-- windows stay as they were charged. Returns nil if it is another one. Only what settling changes is read and written:
-- the balance, the credits of the hour, and the hold, which becomes the last one of the noted settlements.
function hold_settlements.as_held(stored, suffix, credits)
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
    local place = hold_format.place_in(part, suffix, 1)
    if not place then return nil end
    local next_place = place + 2 + struct.unpack(HOLD_BYTES, part, place)
    first, others = noted + place, string.sub(part, 1, place - 1) .. string.sub(part, next_place)
  end
  local bytes, held_state, _, _, held_cost, held_balance, held_suffix, windows, position =
    struct.unpack(HOLD, stored, first)
  if held_suffix ~= suffix then return nil end
  local last = first + bytes + 1
  local units = position > last and '' or hold_settlements.windows_as_held(stored, position, last, windows)
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  if not units or #units > NOTED_BYTES or held_state == hold_format.RELEASED or hour ~= hour_now then return nil end
  local cost, left, has_balance, state = credits or held_cost, 0, 0, nil
  if key_flags.limited then
    left, has_balance, spent = balance, 1, math.min(spent + cost, SAFE_INTEGER)
  end
  if key_flags.limited and cost ~= held_cost then
    left = balance + held_charges.returned(held_cost, cost, held_balance)
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
  return struct.pack(hold_settlements.changed_and_rest, HOLD_CHANGED, 0, 0, has_balance, left, windows, units)
end

-- The answer to a settlement of a hold that was settled before.
function hold_settlements.again(settled, credits, wanted)
  local is_same, by_name = not credits or credits == settled.cost, hold_settlements.windows_by_name(settled.windows)
  for name, cost in pairs(wanted or hold_format.EMPTY) do
    is_same = is_same and by_name[name] and by_name[name].cost == cost
  end
  if not is_same then return item_error('hold_differs', settled.suffix) end
  return hold_settlements.pack(settled)
end

-- Gives a hold back. Repeating it changes nothing.
function hold_settlements.release(h, hold)
  local balance, shared, identity
  held_charges.settle_windows(hold, false)
  if hold.state == hold_format.RELEASED then
    local account = held_charges.account_of(hold)
    balance, shared = key_counts.balance(), account and account.balance
  else
    balance, shared = held_charges.release(h, hold)
    identity = hold.more and hold.more.externalId
  end
  local windows, packed = hold.windows, settled_holds.pack(hold.windows)
  return hold_settlements.pack({
    balance = balance,
    shared = shared,
    windows = windows,
    packed = packed,
    identity = identity,
  })
end
