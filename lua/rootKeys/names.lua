#!lua flags=no-writes
-- The names of root keys, for the events of a page of the audit log.
--
-- derives  root key list and records
-- ARGV[1…] ids of root keys
-- returns  for each its name, or '' if it has none or there is no such root key

local workspace, ids = KEYS[1], ARGV
local names = {}
for index, id in ipairs(ids) do
  local digest = root_digest_of(workspace, id)
  names[index] = digest and redis.call('HGET', name_of.root_key_record(workspace, digest), 'name') or ''
end
return names
