-- The times at which keys with holds have to be examined, by a decision or the sweeper.

local hold_times = {}

-- The digest of the key that was loaded.
function hold_times.digest() return string.sub(key_name, #call_key_records + 1) end

-- Makes the sweeper examine the key at this time; nil is no change.
function hold_times.queue(due)
  if due then after_charge(redis.call, 'ZADD', name_of.hold_queue(call_workspace), int(due), hold_times.digest()) end
end

-- Changes in memory when the key has to be examined: at `expires`, if that is earlier than `due`, the former time.
-- Returns a time for hold_times.queue, nil for none.
function hold_times.look_by(expires, due)
  if expires >= due then return nil end
  loaded_key.set_due(expires)
  return expires
end

-- Until when holds of any key may have charged an identity: a refusal by its limits is not leased until then, as a
-- settlement may return units. 0 for none. `record` is that of the identity.
function hold_times.identity_until(record) return tonumber(redis.call('HGET', record, 'held') or 0) end

-- Writes the time that identity_until returns, if `expires` is later than `before`.
function hold_times.note_identity(record, expires, before)
  if expires > before then redis.call('HSET', record, 'held', int(expires)) end
end
