-- Evaluates the permission query of a verification.

-- The version of all permissions and roles of the workspace. It changes when one of them is changed or deleted, but not
-- when one is created, because no key has it yet. Read once per call, when it is first needed.
local function rbac_version()
  call_state.rbac_version = call_state.rbac_version or redis.call('HGET', call_workspace, 'rbac') or ''
  return call_state.rbac_version
end

-- `text` is the JSON of the request with the query. The result is cached by everything that it depends on: workspace,
-- version of permissions and roles, request, lists of the key.
local function is_permitted(query, text)
  local direct, roles = plans_of_key.permissions()
  local memo_key = table.concat({ call_workspace, rbac_version(), text, direct, roles }, '\n')
  local permitted = memo[memo_key]
  if permitted == nil then
    local held, bytes = held_slugs(call_workspace, query, direct, roles)
    permitted, call_state.held = permits(query, held), held
    add_work(bytes / 50)
    memoize(memo_key, permitted)
  end
  return permitted
end
