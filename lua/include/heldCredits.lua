-- Credits of identities, and of the key that a key draws on, that its holds hold, when its record is removed with them.

-- Ends holds of a key in a step of some milliseconds: gives back what open ones hold of balances of others, all but
-- those that are charged at their expiry. `state` is that of the key. Returns a function that writes it, and whether
-- the last hold has ended: then the record may be removed. It reads, so it must run before the first write of a script.
local function ending_holds(workspace, record, state, now)
  local balances = {}
  if state.draws then drawn_by.load(workspace, record, state, now) end
  local function give_back(hold)
    local more = hold.more
    drawn_by.give_back(state, hold)
    if hold.state == hold_format.RELEASED or not more or not more.number then return end
    if balances[more.identity] == nil then
      balances[more.identity] = identity_balance.of_hold(workspace, more.identity, more.externalId, now) or false
    end
    local balance, gives_back = balances[more.identity], hold.state == hold_format.RELEASES
    if balance then identity_balance.settle(balance, hold, gives_back and 0 or hold.cost, true, gives_back) end
  end
  local last, next = 0, nil
  if state.holds_due ~= NEVER then
    local h = hold_list.read(record)
    last = h.buckets - 1
    next = hold_list.each(h, last, give_back)
  end
  local function write()
    if state.payer and state.payer.is_changed then
      redis.call('HSET', state.payer.record, 'state', pack_state(state.payer.state))
    end
    for _, balance in pairs(balances) do
      if balance then identity_balance.write(balance) end
    end
    for bucket = next and next + 1 or NEVER, last do
      redis.call('HDEL', record, 'holds' .. bucket)
    end
  end
  return write, not next
end
