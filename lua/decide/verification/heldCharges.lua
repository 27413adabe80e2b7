-- The charges of holds of the key that was loaded, and the amounts that settling them gives back or charges.

-- Settlements in memory. The table is used again by the next ones. Most need the first three fields only: the others
-- are false until they are needed (held_charges.list), because Lua may allocate a table again to add a field.
--   balance, refill_due   of the key, with a due refill applied
--   spent                 credits that the settlements spend
--   wanted                what windows get back, by owner
--   identities            states whose windows change, by record
--   accounts              balances of identities by id; false for one that is gone
--   records               windows with a record of their own
--   tags                  credits by field
--   moved                 notes of settlements without room in field `holds`: settled_holds.note
local settling_now = {}
local held_charges = {}

function held_charges.begin()
  local balance, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled then
    balance, refill_due = key_counts.refilled(hold_times.digest(), balance, refill_due)
  end
  local settling = settling_now
  settling.balance, settling.refill_due, settling.spent = balance, refill_due, 0
  settling.wanted, settling.identities, settling.accounts, settling.records = false, false, false, false
  settling.tags, settling.moved = false, false
  return settling
end

function held_charges.list(settling, name)
  local list = settling[name] or {}
  settling[name] = list
  return list
end

-- The list of windows and slots that an owner gets back.
local function wanted_of(settling, hold, of_identity)
  local lists, owner =
    held_charges.list(settling, 'wanted'), of_identity and hold.more.identity .. hold.more.externalId or ''
  lists[owner] = lists[owner] or { more = of_identity and hold.more }
  return lists[owner]
end

-- Collects the units that a hold gives back to windows (units below 0 are charged). Units of the same window and slice
-- are added up.
local function collect(settling, hold)
  local is_open, windows = hold.state ~= hold_format.RELEASED, hold.windows
  for index = 1, #windows do
    local w = windows[index]
    local returned = (is_open and w.cost or 0) - w.settled
    if returned ~= 0 then
      local wanted = wanted_of(settling, hold, w.of_identity)
      local slice = returned > 0 and window_log.charged_end(hold.at, w.is_fine, w.duration) or 'now'
      local name = string.format('%s %.0f %s %s', slice, w.duration, w.is_fine and 1 or 0, w.name)
      local same = wanted[name]
      if same then
        same.units, same.at = same.units + returned, math.max(same.at, hold.at)
      else
        same = { duration = w.duration, name = w.name, units = returned, is_fine = w.is_fine, at = hold.at }
        wanted[name], wanted[#wanted + 1] = same, same
      end
    end
  end
end

-- Collects the slots that a hold gives back, whatever it charges, and returns them.
function held_charges.collect_slots(settling, hold)
  local slots = {}
  for index, slot in ipairs(hold.slots) do
    local wanted = wanted_of(settling, hold, slot.of_identity)
    slots[index] = { duration = 0, name = slot.name, units = slot.cost, slot_end = slot.slot_end }
    wanted[#wanted + 1] = slots[index]
  end
  return slots
end

-- The record of the identity that a hold charged, its state and its field `shifted`; nil if there is none, or it was
-- deleted for good.
function held_charges.charged_identity(more)
  if not more or not more.identity then return nil end
  local name, stored = identity_balance.stored(call_workspace, more.identity, more.externalId, 'shifted')
  if name then return name, stored[1], stored[2] end
end

-- Changes the windows of an identity, in memory.
local function give_back_to_identity(settling, wanted)
  local name, state, shifted = held_charges.charged_identity(wanted.more)
  if not name then return end
  wanted.shifted = shifted
  local id16, records = wanted.more.identity, held_charges.list(settling, 'records')
  held_charges.list(settling, 'identities')[name] =
    owned_windows.returning(state, IDENTITY_LIMITS_AT, 0, id16, wanted, records)
end

-- Changes all windows of which units were collected, in memory.
function held_charges.return_collected(settling)
  if not settling.wanted then return end
  for owner, wanted in pairs(settling.wanted) do
    if owner == '' then
      local tail_bytes, records = key_flags.tail_bytes, held_charges.list(settling, 'records')
      wanted.shifted = redis.call('HGET', key_name, 'shifted')
      key_written(owned_windows.returning(key_packed, key_limits_at, tail_bytes, key24(), wanted, records))
    else
      give_back_to_identity(settling, wanted)
    end
  end
end

-- The balance of an identity that a hold charged; nil if it charged none, or that is gone.
function held_charges.account_of(hold)
  local more = hold.more
  if not more or not more.number then return nil end
  return identity_balance.of_hold(call_workspace, more.identity, more.externalId, call_now)
end

-- As held_charges.account_of, but each balance is read once.
local function settled_account(settling, hold)
  if not hold.more or not hold.more.number then return nil end
  local accounts, id16 = held_charges.list(settling, 'accounts'), hold.more.identity
  if accounts[id16] == nil then accounts[id16] = held_charges.account_of(hold) or false end
  return accounts[id16] or nil
end

-- The credits that the balance of the key gets back, if a hold had `held` of the balance with this number, and `cost`
-- of them are charged. A result below 0 is charged.
function held_charges.returned(held, cost, number)
  if cost >= held then return held - cost end
  local _, _, _, balances = loaded_key.extension()
  local payer = loaded_key.payer
  -- The balance was set or refilled since, or its payer removed: it has none of these credits.
  return number == balances and (not payer or payer.record) and held - cost or 0
end

-- Settles a hold in memory: charges `cost` credits and the `settled` units of each of its windows, in place of the held
-- ones. Returns the balance of the identity that it charged, or nil.
function held_charges.settle_one(settling, hold, cost)
  local is_open, more = hold.state ~= hold_format.RELEASED, hold.more
  collect(settling, hold)
  if #hold.slots > 0 then held_charges.collect_slots(settling, hold) end
  local account = settled_account(settling, hold)
  if account then identity_balance.settle(account, hold, cost, is_open, hold.state == hold_format.RELEASES) end
  if key_flags.limited then
    -- `alone`: only the identity was charged.
    local held = is_open and not (more and more.alone) and hold.cost or 0
    local balance = settling.balance + held_charges.returned(held, cost, hold.balance)
    settling.balance = math.max(-SAFE_INTEGER, math.min(balance, SAFE_INTEGER))
  elseif not account then
    return nil
  end
  settling.spent = settling.spent + cost
  if more and more.tags and cost > 0 then usage_by_tag.spend(held_charges.list(settling, 'tags'), more.tags, cost) end
  return account
end

-- Writes the windows that were changed, except those in the state of the key.
function held_charges.write_windows(settling)
  for name, state in pairs(settling.identities or hold_format.EMPTY) do
    redis.call('HSET', name, 'state', state)
  end
  for _, account in pairs(settling.accounts or hold_format.EMPTY) do
    if account then identity_balance.write(account) end
  end
  if settling.records then after_charge(owned_windows.write, settling.records) end
end

-- Counts the spent credits by tag.
local function count_tags(settling)
  for field, cost in pairs(settling.tags) do
    increase(name_of.tag_usage(call_workspace, key_api8, call_day), field, cost)
  end
end

-- Writes the holds, and the changes of settling some of them. `due`: when the key has to be examined; nil for no
-- change. Everything is read before the first write.
function held_charges.write(settling, h, due)
  local has_windows = settling.wanted or settling.accounts
  if has_windows then held_charges.return_collected(settling) end
  local is_moved = due and loaded_key.set_due(due)
  if has_windows then held_charges.write_windows(settling) end
  -- Nothing reads or moves the counts in the state of a deleted key.
  local late, retention = key_flags.deleted and settling.spent or 0, call_settings.retention
  key_counts.write(settling.balance, 0, VALID, settling.spent - late, 0, settling.refill_due, hold_list.fields(h))
  if late > 0 then
    after_charge(count_late, call_workspace, key24(), key_external_id, call_hour, 0, VALID, late, retention)
  end
  if is_moved then hold_times.queue(due) end
  if settling.moved then after_charge(settled_holds.move, call_workspace, key24(), call_hour, settling.moved) end
  if settling.tags then after_charge(count_tags, settling) end
  key_api.spent = key_api.spent + settling.spent
end

-- Sets the units that a settlement charges to the windows of a hold: all that were held, or none.
function held_charges.settle_windows(hold, is_charged)
  for _, w in ipairs(hold.windows) do
    w.settled = is_charged and w.cost or 0
  end
end

-- Settles a hold that was found: `cost` credits, and the `settled` units of its windows. Sets the balances of the note
-- `settled`: that of the key, nil for an unlimited one, and that of the identity that the hold charged (`shared`).
function held_charges.settle(h, hold, cost, settled)
  local settling = held_charges.begin()
  local account = held_charges.settle_one(settling, hold, cost)
  hold_list.replace(h, hold)
  settled.balance, settled.shared = key_flags.limited and settling.balance or nil, account and account.balance or nil
  settled_holds.note(settling, h, call_hour, settled)
  held_charges.write(settling, h)
end

-- Gives all of a hold back. The hold may be settled until it is forgotten. Returns the balances as held_charges.settle.
function held_charges.release(h, hold)
  local settling, _, _, due = held_charges.begin(), loaded_key.extension()
  held_charges.settle_windows(hold, false)
  local account = held_charges.settle_one(settling, hold, 0)
  hold_list.replace(h, hold)
  due = math.min(due, hold_list.release(h, hold, call_now))
  held_charges.write(settling, h, due)
  return key_flags.limited and settling.balance or nil, account and account.balance or nil
end
