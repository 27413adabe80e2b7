-- Set, increment or decrement the balance of an identity.
--
-- derives  identity record and list, the audit stream
-- ARGV[1]  identity   its id or externalId
-- ARGV[2]  operation  set | increment | decrement
-- ARGV[3]  value      credits; '' with set removes the balance and its refill
-- returns  {'updated', IdentityReply (src/records/records.ts)} | {'identity_not_found'} | {'unlimited'} when there is
--          no balance to increment or decrement | {'too_large'}

local workspace, wanted, operation, value, actor, now =
  KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], now_ms(ARGV[5])

local external_id = external_id_for(workspace, wanted)
if not external_id then return { 'identity_not_found' } end
local record = name_of.identity_record(workspace, external_id)
local identity = load_identity(record)
local balance = balance_of_identity(record, identity, now)
local before, refill_before = balance and balance.balance, balance and refill_text(balance)
if operation ~= 'set' and not balance then return { 'unlimited' } end
if operation == 'increment' and value > SAFE_INTEGER - balance.balance then return { 'too_large' } end
local meta = identity_meta(record)

local _, next_version = take_stamps(workspace, now, 1)
identity.version = next_version()
if operation == 'set' and not value then
  balance = nil
elseif not balance then
  balance = identity_balance.new(record, value, identity.version)
elseif operation == 'increment' then
  balance.balance = balance.balance + value
else
  -- A balance that is set, also to 0 by a decrement, gets nothing back from holds. A debt stays.
  local is_set = operation == 'set' or value > math.max(0, balance.balance)
  local left = math.max(math.min(0, balance.balance), balance.balance - value)
  balance.balance = operation == 'set' and value or left
  if is_set then identity_balance.renumber(balance, identity.version) end
end
identity.has_balance = balance ~= nil
redis.call('HSET', record, 'state', packed_identity.pack(identity))
if balance then
  identity_balance.write(balance)
else
  redis.call('HDEL', record, 'credits')
end
audit(workspace, now, actor, 'identity', 'id_' .. identity.id16, {
  { 'credits.remaining', before, balance and balance.balance },
  { 'credits.refill', refill_before, balance and refill_text(balance) },
})
return { 'updated', (identity_reply(identity, external_id, meta, balance, now)) }
