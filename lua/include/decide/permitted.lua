-- Whether the query of a verification holds for a key.

-- @include "include/decide/call"
-- @include "include/decide/memo"
-- @include "include/permissions"

-- The version of all permissions and roles of the workspace: another when one of them was deleted or changed. New ones do not
-- change it, because no key has them yet. Read once a call, and only when it is needed.
local function rbac_version()
  call_rbac.version = call_rbac.version or redis.call('HGET', call_workspace, 'rbac') or ''
  return call_rbac.version
end

-- `text` is the JSON of the request that has the query. The answer is the same for as long as the version of permissions and
-- the lists of the key are.
local function is_permitted(query, text, record, has_permissions)
  local direct, roles = '', ''
  if has_permissions then
    local stored = redis.call('HMGET', record, 'direct', 'roles')
    direct, roles = stored[1] or '', stored[2] or ''
  end
  local question = table.concat({ call_workspace, rbac_version(), text, direct, roles }, '\n')
  local permitted = memo[question]
  if permitted == nil then
    local bytes
    permitted, bytes = permits(call_workspace, query, direct, roles)
    add_work(bytes / 50)
    memoize(question, permitted)
  end
  return permitted
end
