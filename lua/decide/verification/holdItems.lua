-- Verifications with a hold, whose charges are held until its caller settles them.

-- @include "decide/verification/charge"
-- @include "decide/verification/holdMaker"
-- @include "decide/verification/key"
-- @include "decide/verification/verify"
-- @include "include/holdFormat"

local hold_items = {}

-- Decides an item: a verification with a hold. It takes slots only after its limits were looked at. After an error,
-- lua/decide.lua resets `is_held`.
function hold_items.decide(position, last, root_index)
  local ttl, on_expiry, id, fields = struct.unpack(HOLD_ITEM, call_items, position)
  hold_maker.begin(ttl, on_expiry, id)
  charge_hold.is_held = true
  local answer, snapshot = verify(fields, last, root_index)
  charge_hold.is_held = false
  return answer, snapshot
end

-- Before an item: one that failed, or a call that was killed, may have been making a hold.
function hold_items.begin()
  if charge_hold.is_held then charge_hold.set(false, false) end
end

-- Decides a verification that takes slots, whose key is loaded. If it asks for no hold, it gets one that lasts as long
-- as its limits allow.
function charge_hold.instead(position, last, root_index, requested)
  if not charge_hold.is_held then
    hold_maker.begin(false, hold_format.RELEASES, '')
    key_extension.stored_holds = redis.call('HGET', key_name, 'holds')
  end
  charge_hold.set(true, hold_maker.planned(requested))
  local answer, snapshot = verify(position, last, root_index)
  charge_hold.set(false, false)
  return answer, snapshot
end
