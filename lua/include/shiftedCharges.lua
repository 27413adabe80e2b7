-- After a step back of the clock, charges of an owner have moved to an earlier slice. When the clock reaches their
-- first slice again, others charge units there: those must not be taken out for the ones that moved. So field `shifted`
-- of the key or identity has the times of its charges that may have moved, and what was charged then is not given back:
-- it counts for a duration, used or not.

local shifted_charges = {}

-- Notes that charges of an owner between `now` and the end `newest` of a slice have moved.
function shifted_charges.note(record, now, newest)
  local before = redis.call('HGET', record, 'shifted')
  if before then
    local from, latest = struct.unpack(SHIFTED, before)
    now, newest = math.min(now, from), math.max(newest, latest)
  end
  redis.call('HSET', record, 'shifted', struct.pack(SHIFTED, now, newest))
end

-- Whether what was charged at a time may have moved. `shifted` is the field, or false.
function shifted_charges.has(shifted, at)
  if not shifted then return false end
  local from, latest = struct.unpack(SHIFTED, shifted)
  return at > from and at <= latest
end
