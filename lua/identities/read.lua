#!lua flags=no-writes
-- Read an identity.
--
-- derives  identity record, list and list of keys
-- ARGV[1]  identity   its id or externalId
-- returns  IdentityReply (src/records/records.ts), or false

local workspace, wanted, now = KEYS[1], ARGV[1], now_ms(ARGV[2])
local external_id = external_id_for(workspace, wanted)
if not external_id then return false end
local record = name_of.identity_record(workspace, external_id)
local identity, meta = load_identity(record), identity_meta(record)
local balance, key_count =
  balance_of_identity(record, identity, now), count_all_identity_keys(workspace, record, identity)
return (identity_reply(identity, external_id, meta, balance, now, key_count))
