#!lua flags=no-writes
-- The usage that keys carry in their state: of the last hour in which each was verified.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key lists and records
-- ARGV[1]  keys       ids without `key_`, 24 characters each, at most 500
-- returns  for each key {hour, six outcome counts, credits spent, externalId}, or false when it is gone

-- @include "include/clock"
-- @include "include/names"
-- @include "include/calendar"
-- @include "include/state"
-- @include "include/window"
-- @include "include/permissions"
-- @include "include/keys"
-- @include "include/usage"

local workspace, keys = KEYS[1], ARGV[1]
local rows = {}
for first = 1, #keys, 24 do
  local digest = digest_of(workspace, 'key_' .. string.sub(keys, first, first + 23))
  local packed = digest and redis.call('HGET', key_record(workspace, digest), 'state')
  local row = false
  if packed then
    row = { struct.unpack(USAGE, packed, #packed - USAGE_BYTES + 1) }
    row[8] = int(row[8])
    row[9] = external_id_of((struct.unpack('>I2c0', packed, LINK_AT)))
  end
  rows[#rows + 1] = row
end
return rows
