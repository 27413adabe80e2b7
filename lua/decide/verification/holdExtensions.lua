-- Sets another expiry of a hold.

-- The concurrency limits of a state by their names.
local function slot_limits(packed, limits_at, tail_bytes)
  local limits = {}
  for _, l in ipairs((limit_ends.in_force(packed and read_limits(packed, limits_at, tail_bytes) or {}, call_now))) do
    if l.type == 1 then limits[l.name] = l end
  end
  return limits
end

-- Moves the slots of an open hold to a new expiry, in memory: `ttl` from now, or as late as their limits allow. Returns
-- the expiry, and the windows to write (held_charges.write_windows); nil for none.
local function move_slots(hold, ttl)
  ttl = math.min(ttl, hold.at + hold_list.EXPIRES_WITHIN - call_now)
  if #hold.slots == 0 then return call_now + ttl end
  local _, identity = held_charges.charged_identity(hold.more)
  local of_key = slot_limits(key_packed, key_limits_at, key_flags.tail_bytes)
  local of_identity = slot_limits(identity, IDENTITY_LIMITS_AT, 0)
  local limits, settling = {}, {}
  for _, slot in ipairs(hold.slots) do
    -- Nil if the limit was removed.
    slot.limit = (slot.of_identity and of_identity or of_key)[slot.name]
    limits[#limits + 1] = slot.limit
  end
  local expires, moved = slots_expiry(ttl, limits), held_charges.collect_slots(settling, hold)
  for index, w in ipairs(moved) do
    local limit = hold.slots[index].limit
    w.moved_to = limit and slot_end(expires, limit.limit, limit.duration) or expires
    w.slice = window_log.slice_of(limit and limit.duration or DAY_MS)
  end
  held_charges.return_collected(settling)
  local slots = {}
  for index, w in ipairs(moved) do
    local slot = hold.slots[index]
    -- Slots that are no longer there are not those of this hold.
    if w.is_found then
      slot.slot_end, slots[#slots + 1] = w.moved_to, slot
    end
  end
  hold.slots = slots
  return expires, settling
end

-- Sets another expiry: `ttl` from now, or earlier if the limits whose slots it takes require that.
local function extend_hold(h, hold, _, _, ttl)
  if hold.state == hold_format.RELEASED then return item_error('hold_ended', hold.suffix) end
  local expires, settling = move_slots(hold, ttl)
  -- The clock has stepped back since it was made. A hold with units keeps its time, as they are in the slice of that
  -- time: it ends then.
  if expires < hold.at and #hold.windows == 0 then hold.at = call_now end
  hold.ttl = math.max(0, math.min(expires - hold.at, hold_list.EXPIRES_WITHIN))
  local place = { state = hold.state, bucket = hold.bucket, first = hold.first, last = hold.last }
  hold_list.replace(h, place, hold)
  local identity = held_charges.charged_identity(hold.more)
  local identity_until = identity and hold_times.identity_until(identity)
  expires = hold.at + hold.ttl
  local _, _, due = loaded_key.extension()
  local queued = hold_times.look_by(expires, due)
  redis.call('HSET', key_name, 'state', key_packed, hold_list.fields(h))
  hold_times.queue(queued)
  if settling then held_charges.write_windows(settling) end
  if identity then hold_times.note_identity(identity, expires, identity_until) end
  return hold_settlements.pack({ expires = expires, windows = {}, packed = '' })
end
