-- Credits of identities, and of the key that a key draws on, that its holds hold, when its record is removed with them.

-- Counts credits that a deleted key (24) spends, in its usage and in that of its API.
local function count_spent(workspace, id24, external_id, spent, now, retention_ms)
  local hour = math.floor(now / HOUR_MS)
  count_late(workspace, id24, external_id, hour, 0, VALID, spent, retention_ms)
  local record = name_of.api_usage(workspace, string.sub(id24, 17), day_text(hour))
  local is_new = increase(record, 's' .. hour_of_day_text(hour) .. VALID, spent)
  if is_new then redis.call('PEXPIRE', record, int(retention_ms + DAY_MS)) end
end

-- Ends holds of a key in a step of some milliseconds: gives back what open ones hold of balances of others, all but
-- those that are charged at their expiry: these are counted as spent. `state` is that of the key. Returns a function
-- that writes it, and whether the last hold has ended: then the record may be removed. It reads, so it must run before
-- the first write of a script.
local function ending_holds(workspace, record, state, now, usage_retention_ms)
  local balances, spent = {}, 0
  -- Like what a verification counts: of no identity if that was deleted.
  local external_id = is_live_link(workspace, state.link) and external_id_of(state.link) or ''
  if state.draws then drawn_by.load(workspace, record, state, now) end
  -- The balance of the identity that a hold charged; nil if it charged none, or that is gone.
  local function account_of(more)
    if not more or not more.number then return nil end
    if balances[more.identity] == nil then
      balances[more.identity] = identity_balance.of_hold(workspace, more.identity, more.externalId, now) or false
    end
    return balances[more.identity] or nil
  end
  local function give_back(hold)
    drawn_by.give_back(state, hold)
    if hold.state == hold_format.RELEASED then return end
    local account, gives_back = account_of(hold.more), hold.state == hold_format.RELEASES
    if account then identity_balance.settle(account, hold, gives_back and 0 or hold.cost, true, gives_back) end
    if not gives_back and (account or state.limited) then spent = spent + hold.cost end
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
    if spent > 0 then count_spent(workspace, state.id, external_id, spent, now, usage_retention_ms) end
    for bucket = next and next + 1 or NEVER, last do
      redis.call('HDEL', record, 'holds' .. bucket)
    end
  end
  return write, not next
end
