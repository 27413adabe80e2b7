-- Settles and releases holds of the key that was loaded.

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
  local settled = hold_settlements.settled
  settled.suffix, settled.late, settled.cost = hold.suffix, hold.state == hold_format.RELEASED, credits or hold.cost
  settled.windows, settled.packed = windows, settled_holds.pack(windows)
  settled.identity = hold.more and hold.more.externalId
  held_charges.settle(h, hold, settled.cost, settled)
  return hold_settlements.pack(settled)
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
