#!lua flags=no-writes
-- Count the records of a workspace, for metrics.
--
-- derives  lists of all records, see include/records
-- returns  their number

local workspace = KEYS[1]
return records_of(workspace)
