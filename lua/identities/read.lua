#!lua flags=no-writes
-- Read an identity.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record and list
-- ARGV[1]  identity   its id or externalId
-- returns  IdentityReply (src/records/records.ts), or false

-- @include "include/identities"

local workspace, wanted = KEYS[1], ARGV[1]
local external_id = external_id_for(workspace, wanted)
if not external_id then return false end
return (identity_reply(load_identity(workspace, external_id), external_id, identity_meta(workspace, external_id)))
