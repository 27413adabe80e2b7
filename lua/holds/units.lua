#!lua flags=no-writes
-- Read the credits and units that open holds of a key hold, in one step.
--
-- derives  key records
-- ARGV[1]  digest
-- ARGV[2]  bucket     to continue with; '' for the first step
-- returns  HeldUnits (include/heldUnits), or false when there is no such key

local workspace, digest, bucket, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local record = name_of.key_record(workspace, digest)
local packed = redis.call('HGET', record, 'state')
if not packed then return false end
local state = read_state(packed)
if state.draws then drawn_by.load(workspace, record, state, now) end
local _, units = held_units(record, state.balances, bucket, now)
return units
