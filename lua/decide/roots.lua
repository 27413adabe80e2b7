-- The root keys of a call. Each is read once.

-- Whether these grants allow an action on all resources, and on any resource. Shared: treat as immutable.
local function abilities_of(grants)
  local abilities = memo[grants]
  if not abilities then
    abilities = {
      verifies_all = root_grants.holds(grants, 'api', '*', 'verify_key'),
      limits_all = root_grants.holds(grants, 'ratelimit', '*', 'limit'),
      verifies_any = root_grants.holds_any(grants, 'verify_key'),
      limits_any = root_grants.holds_any(grants, 'limit'),
    }
    memoize(grants, abilities)
  end
  return abilities
end

-- When uses of root keys were recorded, by record, as far as this library knows: the record is read when the next one
-- may be due.
local USES_MAX = 1000
local uses, uses_known = {}, 0

local function note_use(record)
  local used = tonumber((redis.call('HGET', record, 'used')))
  if root_grants.is_use_due(used, call_now) then
    used = call_now
    redis.call('HSET', record, 'used', used)
  end
  if not uses[record] then
    if uses_known == USES_MAX then
      uses, uses_known = {}, 0
    end
    uses_known = uses_known + 1
  end
  uses[record] = used
end

-- Tables of earlier calls, to be used again.
local root_tables = {}

-- Reads a root key, if call_roots does not have it yet (callers check that). Returns {status of root_grants.status,
-- grants, expires, abilities, may_verify: whether it is accepted and may verify keys of any API, allowed: results of
-- `allows` by id, nil for none}.
local function read_root(index)
  local digest_end = call_roots_at + index * 32
  local record = name_of.root_key_record(call_workspace, string.sub(call_items, digest_end - 31, digest_end))
  local stored = redis.call('HMGET', record, 'grants', 'enabled', 'expires')
  local grants, expires = stored[1] or '', stored[3] and tonumber(stored[3]) or nil
  local status = root_grants.status(stored[1], stored[2], expires, call_now)
  if status == 'ok' and root_grants.is_use_due(uses[record], call_now) then note_use(record) end
  local abilities = memo[grants] or abilities_of(grants)
  add_work(#grants / 400)
  local root = root_tables[index]
  if not root then
    root = {}
    root_tables[index] = root
  end
  root.status, root.grants, root.expires, root.allowed = status, grants, expires, nil
  root.verifies_all, root.limits_all, root.limits_any =
    abilities.verifies_all, abilities.limits_all, abilities.limits_any
  root.may_verify = status == 'ok' and abilities.verifies_any
  call_roots[index] = root
  return root
end

-- The item error of a root key that is not accepted, or else lacks this grant.
local function root_error(root, grant)
  if root.status ~= 'ok' then return item_error(root.status) end
  return item_error('insufficient_permissions', grant)
end

-- Whether a root key that may not do `action` on all resources may do it on the one with this id.
local function allows(root, resource, id, action)
  root.allowed = root.allowed or {}
  local allowed = root.allowed[id]
  if allowed == nil then
    allowed = root_grants.has(root.grants, resource .. '.' .. id .. '.' .. action)
    add_work(#root.grants / 4000)
    root.allowed[id] = allowed
  end
  return allowed
end
