#!lua flags=no-writes
-- The expiry of some keys, by the index of keys by expiry.
--
-- derives  the index of keys by expiry
-- ARGV[1]  keys       of each its packed id and the last 8 characters of the id of its API
-- returns  of each key its expiry (KEY_EXPIRES): NEVER if it has none, or is not in the index

local workspace, keys = KEYS[1], ARGV[1]
local KEY_BYTES = PACKED_ID_BYTES + 8

local expiries = {}
for at = 1, #keys, KEY_BYTES do
  local key = string.sub(keys, at, at + KEY_BYTES - 1)
  local index = name_of.expiries(workspace, string.sub(key, PACKED_ID_BYTES + 1))
  local expires = redis.call('ZSCORE', index, string.sub(key, 1, PACKED_ID_BYTES))
  expiries[#expiries + 1] = struct.pack(KEY_EXPIRES, expires and tonumber(expires) or NEVER)
end
return table.concat(expiries)
