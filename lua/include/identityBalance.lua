-- The balance of an identity, which all its keys share: field `credits` of its record, IDENTITY_BALANCE. A bit in the
-- state of the identity says whether there is one. A refill that is due is applied by whoever reads the balance, so it
-- needs no queue.

local identity_balance = {}

-- Whether an identity with this state has a balance.
function identity_balance.is_flagged(packed) return string.byte(packed, IDENTITY_HEAD_VERSION_AT) >= WITH_BALANCE end

-- Applies a refill that is due.
function identity_balance.refill(b, now)
  if now >= b.refill_due then
    -- Another balance: credits that are held of the former one do not come back to it.
    b.balance, b.number, b.held = b.refill_amount, b.number + 1, 0
    b.refill_due = refill_after(now, b.refill_day)
  else
    b.refill_due = refill_due_of(b.refill_due, now, b.refill_day)
  end
end

-- The balance of an identity that has one, as it is now: {record, balance, refilled, refill_amount, refill_day,
-- refill_due (0 without a refill), number, held}.
function identity_balance.read(record, now)
  local b = { record = record }
  b.balance, b.refill_amount, b.refill_day, b.refill_due, b.number, b.held =
    struct.unpack(IDENTITY_BALANCE, redis.call('HGET', record, 'credits'))
  b.refilled = b.refill_due > 0
  if b.refilled then identity_balance.refill(b, now) end
  return b
end

-- The balance was set by the change with this version: credits that are held of the former one do not come back to it.
-- No version of the workspace repeats, and thousands of refills take longer than one millisecond.
function identity_balance.renumber(b, version)
  local time, number = struct.unpack(VERSION, version)
  b.number, b.held = math.max(time * 1024 + number % 1024, b.number + 1), 0
end

-- A new balance, without a refill.
function identity_balance.new(record, balance, version)
  local b = { record = record, balance = balance, refill_amount = 0, refill_day = 0, refill_due = 0, number = 0 }
  identity_balance.renumber(b, version)
  return b
end

function identity_balance.write(b)
  local packed = struct.pack(IDENTITY_BALANCE, b.balance, b.refill_amount, b.refill_day, b.refill_due, b.number, b.held)
  redis.call('HSET', b.record, 'credits', packed)
end

-- The record of the identity with this id and externalId, or of the deleted one that can be restored, and its state and
-- further fields; nil when there is none.
function identity_balance.stored(workspace, id16, external_id, ...)
  local record = name_of.identity_record(workspace, external_id)
  local stored = redis.call('HMGET', record, 'state', ...)
  if stored[1] and string.sub(stored[1], 1, 16) == id16 then return record, stored end
  record = name_of.deleted_identity(workspace, id16)
  stored = redis.call('HMGET', record, 'state', ...)
  if stored[1] then return record, stored end
end

-- The balance of the identity with this id that a hold charged; nil if it was deleted for good, or has none any more.
function identity_balance.of_hold(workspace, id16, external_id, now)
  local record, stored = identity_balance.stored(workspace, id16, external_id)
  if not record or not identity_balance.is_flagged(stored[1]) then return nil end
  return identity_balance.read(record, now)
end

-- The number of a balance as a hold notes it.
function identity_balance.number_of(b) return int(b.number) end

-- Ends a hold, or settles one that had been given back (`is_open` false): `cost` credits are charged. Credits of the
-- hold come back to the same balance only. `gives_back`: the hold gives all back at its expiry.
function identity_balance.settle(b, hold, cost, is_open, gives_back)
  local is_same = hold.more.number == int(b.number)
  if is_same and is_open and gives_back then b.held = math.max(0, b.held - hold.cost) end
  local returned = (is_open and hold.cost or 0) - cost
  if returned > 0 and not is_same then returned = 0 end
  b.balance = math.max(-SAFE_INTEGER, math.min(b.balance + returned, SAFE_INTEGER))
end
