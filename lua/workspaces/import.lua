-- Create the workspace of an export with its id, or continue an import of the same export that was interrupted. Until
-- the import ends (workspaces/imported) the workspace has a mark: only then the import may write what nobody should be
-- able to add to a workspace that exists, such as root keys and audit events.
--
-- ARGV[1]  request    JSON {name, created, protectApis, me and prices (JSON as text, '' for none), sequence, importId,
--                     sums (the version of the data has sums of usage by customer), dryRun}
-- returns  'created' | 'continued' | 'exists' | 'unfinished' (the import of another export did not end)

local workspace, request = KEYS[1], cjson.decode(ARGV[1])
local mark = redis.call('HGET', workspace, 'import')
if mark then return mark == request.importId and 'continued' or 'unfinished' end
if redis.call('EXISTS', workspace) == 1 then return 'exists' end
if not request.dryRun then
  redis.call('HSET', workspace, 'name', request.name, 'created', int(request.created), 'import', request.importId)
  redis.call('HSET', workspace, 'sequence', int(request.sequence), 'key_records', 1, 'override_records', 1)
  if request.sums then redis.call('HSET', workspace, 'summed', 0) end
  if request.protectApis then redis.call('HSET', workspace, 'protectApis', '1') end
  for _, field in ipairs({ 'me', 'prices' }) do
    if request[field] ~= '' then redis.call('HSET', workspace, field, request[field]) end
  end
end
return 'created'
