-- The place of a migration in a workspace: a record next to the data, as in a Cluster the record of all data is on
-- another node. A step reads it, migrates some records, and stores the next place, all in one script. So a step that is
-- repeated begins where the last one ended, and a process that lost the lock cannot go on.
--
--   run    number of the migration; the place of another one is not used
--   fence  largest number of a holder of the lock
--   at     place: which records are next, as the script of the step writes it; MIGRATED at the end
--   done   records that were migrated

local MIGRATED = 'end'

-- Returns 'open', the place and the number of migrated records, or 'fenced' or 'done'.
local function open_migration(workspace, fence, run)
  local stored = redis.call('HMGET', name_of.migration(workspace), 'run', 'fence', 'at', 'done')
  if (tonumber(stored[2]) or 0) > tonumber(fence) then return 'fenced' end
  if stored[1] ~= run then return 'open', '', 0 end
  return stored[3] == MIGRATED and 'done' or 'open', stored[3], tonumber(stored[4])
end

-- Stores the next place.
local function store_migration(workspace, fence, run, at, done)
  redis.call('HSET', name_of.migration(workspace), 'run', run, 'fence', fence, 'at', at, 'done', done)
end
