-- The place of a migration in a workspace: a record next to the data, as in a Cluster the record of all data is on
-- another node. A step reads it, migrates some records, and stores the next place, all in one script. So a step that is
-- repeated begins where the last one ended, and a process that lost the lock cannot go on.
--
--   version  data version that the workspace has
--   fence    largest number of a holder of the lock
--   target   data version of the step, while it is not done
--   at       place: which records are next, as the script of the step writes it
--   done     records that were migrated by the step

-- @include "include/names"

-- Returns 'open', the place and the number of migrated records, or 'fenced' or 'done'.
local function open_migration(workspace, fence, target)
  local stored = redis.call('HMGET', name_of.migration(workspace), 'version', 'fence', 'target', 'at', 'done')
  local is_same = stored[3] == target
  if (tonumber(stored[2]) or 0) > tonumber(fence) then return 'fenced' end
  if (tonumber(stored[1]) or 0) >= tonumber(target) then return 'done', '', tonumber(stored[5]) end
  return 'open', is_same and stored[4] or '', is_same and tonumber(stored[5]) or 0
end

-- Stores the next place; nil when the workspace is migrated.
local function store_migration(workspace, fence, target, at, done)
  local record = name_of.migration(workspace)
  if at then
    redis.call('HSET', record, 'fence', fence, 'target', target, 'at', at, 'done', done)
  else
    redis.call('HSET', record, 'fence', fence, 'version', target, 'done', done)
    redis.call('HDEL', record, 'target', 'at')
  end
end
