-- The root keys of a call. Each is read once.

-- @include "include/decide/call"
-- @include "include/decide/memo"
-- @include "include/grants"

-- Whether these grants allow an action on all resources, and on any resource. Shared: treat as immutable.
local function abilities_of(grants)
  local abilities = memo[grants]
  if not abilities then
    abilities = {
      verifies_all = holds(grants, 'api', '*', 'verify_key'),
      limits_all = holds(grants, 'ratelimit', '*', 'limit'),
      verifies_any = holds_any(grants, 'verify_key'),
      limits_any = holds_any(grants, 'limit'),
    }
    memoize(grants, abilities)
  end
  return abilities
end

-- Reads a root key, if call_roots does not have it yet (callers check that). Returns {status of authenticate, grants, expires,
-- abilities, may_verify: whether it is accepted and may verify keys of any API, allowed: results of `allows` by id}.
local function read_root(index)
  local digest = string.sub(call_digests, index * 32 - 31, index * 32)
  local status, grants, _, expires = authenticate(call_workspace, digest, call_now)
  local abilities = abilities_of(grants)
  add_work(#grants / 400)
  local root = {
    status = status,
    grants = grants,
    expires = expires,
    verifies_all = abilities.verifies_all,
    limits_all = abilities.limits_all,
    may_verify = status == 'ok' and abilities.verifies_any,
    limits_any = abilities.limits_any,
    allowed = {},
  }
  call_roots[index] = root
  return root
end

-- The refusal of a root key that is not accepted, or else lacks this grant.
local function refuse_root(root, grant)
  if root.status ~= 'ok' then return refuse(root.status) end
  return refuse('insufficient_permissions', grant)
end

-- Whether a root key that may not do `action` on all resources may do it on the one with this id.
local function allows(root, resource, id, action)
  local allowed = root.allowed[id]
  if allowed == nil then
    allowed = has_grant(root.grants, resource .. '.' .. id .. '.' .. action)
    add_work(#root.grants / 4000)
    root.allowed[id] = allowed
  end
  return allowed
end
