#!lua flags=no-writes
-- Read an identity.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record and list
-- ARGV[1]  identity   its id or externalId
-- returns  IdentityReply (src/store/records.ts), or false

-- @include "include/identities"

local workspace, wanted = KEYS[1], ARGV[1]
local external_id = external_id_for(workspace, wanted)
return external_id and (identity_reply(workspace, load_identity(workspace, external_id), external_id))
