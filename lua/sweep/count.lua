-- Count the records of a workspace, for the operator to watch.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  lists of all that is counted, see include/records
-- returns  how many there are

-- @include "include/records"

local workspace = KEYS[1]
count_records(workspace)
return records_of(workspace)
