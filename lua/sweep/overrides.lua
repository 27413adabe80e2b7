-- Remove what is stored of some overrides that have ended. Reads take them for absent, but they count as records.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  namespaces, overrides and their lists
-- ARGV[1]  count      limit of the overrides
-- ARGV[2]  now_ms     '' for Redis's clock
-- returns  their number; fewer than `count` means that none is left

-- @include "include/clock"
-- @include "include/overrideRecords"

local workspace, count, now = KEYS[1], tonumber(ARGV[1]), now_ms(ARGV[2])
return override_records.remove_ended(workspace, now, count)
