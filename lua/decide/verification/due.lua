-- Settles holds of the key that was loaded: those that expired before anything else is decided about it, and those that
-- a caller settles.

-- @include "decide/call"
-- @include "decide/totals"
-- @include "decide/verification/charge"
-- @include "decide/verification/counts"
-- @include "decide/verification/key"
-- @include "decide/verification/returns"
-- @include "include/clock"
-- @include "include/holds"
-- @include "include/identityBalance"
-- @include "include/names"

local key_holds = {}

-- The digest of the key that was loaded.
function key_holds.digest() return string.sub(key_name, #call_key_records + 1) end

-- The sweeper looks at the key at this time.
local function queue_until(due) redis.call('ZADD', name_of.hold_queue(call_workspace), int(due), key_holds.digest()) end

-- Looks at the key by `expires`, if that is earlier than before. `fields` are those of the key that the caller writes.
function key_holds.look_by(expires, fields)
  local _, _, due = key_extension.read()
  if expires >= due then return end
  key_extension.set_due(expires)
  fields[#fields + 1], fields[#fields + 2] = 'state', key_packed
  queue_until(expires)
end

-- Until when holds of any key may have charged an identity: a refusal by its limits is not leased until then, as a
-- settlement may return units. 0 for none; nil if there is no such identity.
function key_holds.identity_until(external_id)
  if external_id == '' then return nil end
  local stored = redis.call('HMGET', name_of.identity_record(call_workspace, external_id), 'state', 'held')
  return stored[1] and tonumber(stored[2] or 0)
end

-- Writes it, if `expires` is later than `before`.
function key_holds.note_identity(external_id, expires, before)
  if not before or expires <= before then return end
  redis.call('HSET', name_of.identity_record(call_workspace, external_id), 'held', int(expires))
end

-- Limit of the expired holds that one look settles: some milliseconds.
local SETTLED_AT_ONCE = 250

-- The balance of the key with a due refill applied, and the time of the next one; credits that settlements spend; what
-- windows get back, by owner; the states of identities whose windows change, by record; the balances of identities, by
-- id (false for one that is gone); windows with a record of their own; settlements to note.
local function begin_settling()
  local balance, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled then
    balance, refill_due = key_counts.refilled(key_holds.digest(), balance, refill_due)
  end
  local settling = { balance = balance, refill_due = refill_due, spent = 0, wanted = {}, identities = {}, records = {} }
  settling.tags, settling.notes, settling.accounts = {}, {}, {}
  return settling
end

-- Collects what a hold gives back to windows (units below 0 are charged): units of the same window and slice are one.
local function collect(settling, hold, units)
  local is_open = hold.state ~= hold_list.RELEASED
  for index, w in ipairs(hold.windows) do
    local returned = (is_open and w.cost or 0) - units[index]
    if returned ~= 0 then
      local owner = w.of_identity and hold.more.identity .. hold.more.externalId or ''
      local wanted = settling.wanted[owner] or { more = w.of_identity and hold.more }
      settling.wanted[owner] = wanted
      local slice = returned > 0 and math.floor(hold.at / (w.is_fine and 1 or w.duration / 64)) or 'now'
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
function key_holds.collect_slots(settling, hold)
  local slots = {}
  for index, slot in ipairs(hold.slots) do
    local owner = slot.of_identity and hold.more.identity .. hold.more.externalId or ''
    local wanted = settling.wanted[owner] or { more = slot.of_identity and hold.more }
    slots[index] = { duration = 0, name = slot.name, units = slot.cost, slot_end = slot.slot_end }
    settling.wanted[owner], wanted[#wanted + 1] = wanted, slots[index]
  end
  return slots
end

-- The record and the state of the identity that a hold charged; nil if there is none, it was deleted, or is another one
-- of that name.
function key_holds.charged_identity(more)
  if not more or not more.identity then return nil end
  local name = name_of.identity_record(call_workspace, more.externalId)
  local state = redis.call('HGET', name, 'state')
  if state and string.sub(state, 1, 16) == more.identity then return name, state end
end

-- Changes the windows of an identity, in memory.
local function give_back_to_identity(settling, wanted)
  local name, state = key_holds.charged_identity(wanted.more)
  if not name then return end
  local id16 = wanted.more.identity
  settling.identities[name] = owned_windows.returning(state, IDENTITY_LIMITS_AT, 0, id16, wanted, settling.records)
end

-- Changes all windows of which units were collected, in memory.
function key_holds.return_collected(settling)
  for owner, wanted in pairs(settling.wanted) do
    if owner == '' then
      local tail_bytes, records = key_flags.tail_bytes, settling.records
      key_written(owned_windows.returning(key_packed, key_limits_at, tail_bytes, key24(), wanted, records))
    else
      give_back_to_identity(settling, wanted)
    end
  end
end

-- Adds spent credits to the counts of tags, as far as these are counted in this hour.
local function spend_by_tag(settling, tags, cost)
  local record = name_of.tag_usage(call_workspace, key_api8, call_day)
  local head = call_hour_of_day .. VALID .. key24() .. struct.pack('>Bc0', #key_external_id, key_external_id)
  for _, tag in ipairs(tags) do
    if redis.call('HEXISTS', record, head .. tag) == 1 then
      local field = 's' .. head .. tag
      settling.tags[field] = (settling.tags[field] or 0) + cost
    end
  end
end

-- The balance of an identity that a hold charged; nil if it charged none, or that is gone.
function key_holds.account_of(hold)
  local more = hold.more
  if not more or not more.number then return nil end
  local record = name_of.identity_record(call_workspace, more.externalId)
  return identity_balance.of_hold(record, more.identity, call_now)
end

-- Settles a hold in memory: charges `cost` credits and the units of each of its windows, in their order, in the place
-- of what it held. Returns the balance of the identity that it charged, or false.
local function settle_one(settling, hold, cost, units)
  local is_open, _, _, _, balances = hold.state ~= hold_list.RELEASED, key_extension.read()
  collect(settling, hold, units)
  key_holds.collect_slots(settling, hold)
  local more, accounts = hold.more or {}, settling.accounts
  local id16 = more.number and more.identity
  if id16 and accounts[id16] == nil then accounts[id16] = key_holds.account_of(hold) or false end
  local account = id16 and accounts[id16]
  if account then identity_balance.settle(account, hold, cost, is_open, hold.state == hold_list.RELEASES) end
  if key_flags.limited then
    -- `alone`: only the identity was charged.
    local returned = (is_open and not more.alone and hold.cost or 0) - cost
    -- The balance was set or refilled since: it has none of these credits.
    if returned > 0 and hold.balance ~= balances then returned = 0 end
    local balance = settling.balance + returned
    settling.balance = math.max(-SAFE_INTEGER, math.min(balance, SAFE_INTEGER))
  elseif not account then
    return false
  end
  settling.spent = settling.spent + cost
  if more.tags and cost > 0 then spend_by_tag(settling, more.tags, cost) end
  return account
end

-- Writes the windows that were changed, but for those in the state of the key.
function key_holds.write_windows(settling)
  for name, state in pairs(settling.identities) do
    redis.call('HSET', name, 'state', state)
  end
  for _, account in pairs(settling.accounts) do
    if account then identity_balance.write(account) end
  end
  owned_windows.write(settling.records)
end

-- Writes the holds, and what settling some of them changed. Everything is read before the first write.
local function write_settling(settling, h, due)
  key_holds.return_collected(settling)
  local _, _, due_before = key_extension.read()
  key_extension.set_due(due)
  key_holds.write_windows(settling)
  local spent = settling.spent
  key_counts.write(settling.balance, 0, VALID, spent, 0, settling.refill_due, hold_list.fields(h))
  if due ~= due_before then queue_until(due) end
  for _, settled in ipairs(settling.notes) do
    hold_list.note_settled(call_workspace, key24(), call_now, settled)
  end
  local tags = name_of.tag_usage(call_workspace, key_api8, call_day)
  for field, cost in pairs(settling.tags) do
    redis.call('HINCRBY', tags, field, int(cost))
  end
  if spent > 0 then
    add_total(name_of.api_usage(call_workspace, key_api8, call_day), 's' .. call_hour_of_day .. VALID, spent)
  end
end

-- Of each window of a hold the units that it charged, or 0.
function key_holds.units(hold, is_charged)
  local units = {}
  for index, w in ipairs(hold.windows) do
    units[index] = is_charged and w.cost or 0
  end
  return units
end

-- Gives a hold back, or charges it, as it says: it has expired.
local function expire(settling, h, hold)
  if hold.state == hold_list.RELEASED then return NEVER end
  local is_charged = hold.state == hold_list.CHARGES
  local account = settle_one(settling, hold, is_charged and hold.cost or 0, key_holds.units(hold, is_charged))
  if is_charged then
    local balance = key_flags.limited and settling.balance or nil
    local settled = { suffix = hold.suffix, late = false, cost = hold.cost, balance = balance, windows = hold.windows }
    settled.shared = account and account.balance or nil
    settling.notes[#settling.notes + 1] = settled
    return NEVER
  end
  -- Nobody looked at it in time.
  if hold.due + hold_list.LATE_MS <= call_now then return NEVER end
  return hold_list.release(h, hold, math.min(hold.due, call_now))
end

-- A key that has no holds: removes what is left of them, or keeps it for some time.
local function forget(h)
  local kept_until = hold_list.kept_until(h, call_now)
  if kept_until > call_now then
    key_extension.set_due(kept_until)
    redis.call('HSET', key_name, 'state', key_packed)
    return queue_until(kept_until)
  end
  hold_list.remove(h)
  redis.call('ZREM', name_of.hold_queue(call_workspace), key_holds.digest())
  key_extension.set_due(NEVER)
  redis.call('HSET', key_name, 'state', key_packed)
end

-- Settles the holds of the key that have expired.
function key_holds.apply_due()
  local h = hold_list.read(key_name)
  if h.count == 0 then return forget(h) end
  local due, next_due = hold_list.take_due(h, call_now, SETTLED_AT_ONCE)
  local settling = begin_settling()
  for _, hold in ipairs(due) do
    next_due = math.min(next_due, expire(settling, h, hold))
  end
  if h.count == 0 then next_due = hold_list.kept_until(h, call_now) end
  write_settling(settling, h, next_due)
  add_work(20 * #due + h.count / 2)
end

-- Whether a key whose holds are due at this time has to be looked at: also if that was set while the clock was ahead.
function key_holds.is_due(holds_due)
  return holds_due <= call_now or holds_due ~= NEVER and holds_due > call_now + HOLDS_DUE_WITHIN
end

-- As read_key, with the holds that expired given back. A verification that is held finds its key loaded.
function key_holds.read_key(digest, has_snapshot)
  if charge_hold.is_held then return true end
  if not read_key(digest, has_snapshot) then return false end
  if key_flags.extended then
    local _, _, holds_due = key_extension.read()
    if key_holds.is_due(holds_due) then
      key_holds.apply_due()
      return read_key(digest, has_snapshot)
    end
  end
  return true
end

-- Settles a hold that was found: `cost` credits, and units for each of its windows. Returns the balance, nil for an
-- unlimited key; and that of the identity that the hold charged, nil for none.
function key_holds.settle(h, hold, cost, units)
  local settling, _, _, due = begin_settling(), key_extension.read()
  local account = settle_one(settling, hold, cost, units)
  hold_list.replace(h, hold)
  write_settling(settling, h, due)
  return key_flags.limited and settling.balance or nil, account and account.balance or nil
end

-- Gives everything back. It may be settled until it is forgotten. Returns the balances as key_holds.settle.
function key_holds.release(h, hold)
  local settling, _, _, due = begin_settling(), key_extension.read()
  local account = settle_one(settling, hold, 0, key_holds.units(hold, false))
  hold_list.replace(h, hold)
  due = math.min(due, hold_list.release(h, hold, call_now))
  write_settling(settling, h, due)
  return key_flags.limited and settling.balance or nil, account and account.balance or nil
end
