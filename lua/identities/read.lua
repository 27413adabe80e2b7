#!lua flags=no-writes
-- Read an identity.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record and list
-- ARGV[1]  identity   its id or externalId
-- returns  {id, externalId, meta or false, limits}, or false

-- @include "include/clock"
-- @include "include/names"
-- @include "include/calendar"
-- @include "include/state"
-- @include "include/window"
-- @include "include/counters"
-- @include "include/permissions"
-- @include "include/keys"
-- @include "include/identities"

local workspace, wanted = KEYS[1], ARGV[1]
local external_id = external_id_for(workspace, wanted)
return external_id and show_identity(workspace, load_identity(workspace, external_id), external_id)
