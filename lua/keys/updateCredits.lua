-- Set, increment or decrement a key's balance.
--
-- derives  key and API records, the refill queue, the audit stream
-- ARGV[1]  key_id
-- ARGV[2]  operation  set | increment | decrement
-- ARGV[3]  value      credits; '' with set makes the key unlimited and removes its refill
-- ARGV[4]  awaits     1 if the balance may wait for credits that servers hold, else 0
-- returns  {'updated', {balance, refillAmount, refillDay} as a named reply} | {'key_not_found'} | {'unlimited'} |
--          {'too_large'} | {'draws', id of the key that has the balance} | {'leased'} when servers may return
--          credits, and nothing was changed: as any change, this takes back all leases of the workspace, so the caller
--          runs it again

local workspace, key_id, operation, value, awaits = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local actor, now = ARGV[5], now_ms(ARGV[6])

local digest = digest_of(workspace, key_id)
local record, state = load_key(workspace, digest, now)
if not record then return { 'key_not_found' } end
if drawn_by.is_elsewhere(state) then return { 'draws', 'key_' .. state.payer.state.id } end
local values = state_values(state, now)
drawn_by.part(state)
if operation ~= 'set' and awaits and state.limited then
  if awaits_leased_credits(workspace, record, state.refill_due, now) then return { 'leased' } end
end
-- A balance that is set, also to 0 by a decrement, gets nothing back from leases.
local is_set = operation == 'set' or operation == 'decrement' and value > math.max(0, state.balance)
if operation == 'set' then
  state.limited, state.balance = value ~= nil, value or 0
  if not value then set_refill(state, nil, now) end
else
  if not state.limited then return { 'unlimited' } end
  if operation == 'increment' then
    if value > SAFE_INTEGER - state.balance then return { 'too_large' } end
    state.balance = state.balance + value
  else
    -- A debt stays.
    state.balance = math.max(math.min(0, state.balance), state.balance - value)
  end
end

local forget_leased = renumbering_leased_credits(record)
if is_set then renumber_balance(state) end

local _, next_version = take_stamps(workspace, now, 1)
state.version = next_version()
redis.call('HSET', record, 'state', pack_state(state), 'updated', int(now))
if is_set then forget_leased() end
redis.call('HDEL', record, 'drawsOn')
queue_refill(workspace, digest, state)
audit(workspace, now, actor, 'key', key_id, state_changes(values, state_values(state, now)))
return {
  'updated',
  named({
    balance = state.limited and int(state.balance),
    refillAmount = state.refilled and int(state.refill_amount),
    refillDay = state.refilled and state.refill_day,
  }),
}
