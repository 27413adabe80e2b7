-- Functions of the scripts that manage root keys.

-- The digest of the root key with this id, or nil.
local function root_digest_of(workspace, root_key_id)
  return rest_of_id(name_of.root_key_list(workspace), 'root_', root_key_id)
end

-- A page of root keys after the id `after`, in order of creation: `reply_of(digest, fields of RootKeyReply)` for each.
-- Returns {replies, 1 if there are more, else 0}. A page ends early when its root keys have many grants.
local GRANT_BYTES_MAX = 1000000
local function page_of_root_keys(workspace, after, count, reply_of)
  local function read(_, digest)
    local record = name_of.root_key_record(workspace, digest)
    local root_key = read_fields(record, 'id', 'name', 'start', 'grants', 'enabled', 'expires', 'created', 'used')
    return reply_of(digest, named(root_key)), #root_key.grants
  end
  return page_of(workspace, name_of.root_key_list(workspace), after, 'asc', count, read, GRANT_BYTES_MAX)
end

-- The grants in a text as a set.
local function grant_set(grants)
  local set = {}
  for grant in string.gmatch(grants, '[^\n]+') do
    set[grant] = true
  end
  return set
end

-- The first grant in the text `others` that the set `grants` does not include, or nil.
local function lacking_grant(grants, others)
  if grants['*'] then return nil end
  for grant in string.gmatch(others, '[^\n]+') do
    if not grants[grant] then
      local resource, action = string.match(grant, '^([%w_]+)%.[%w_*]+%.([%w_]+)$')
      if not resource or not grants[resource .. '.*.' .. action] then return grant end
    end
  end
end

-- The caller of a change: the root key as it is now, because the request may have waited since it was authenticated.
-- Returns {grants (a set), ends (Unix ms, or math.huge)}, or nil and the refusal. The command line ('cli') may do
-- everything.
local function caller_of(workspace, actor, action, now)
  local root_key_id = cjson.decode(actor).rootKeyId
  if root_key_id == 'cli' then return { grants = { ['*'] = true }, ends = math.huge } end
  local digest = root_digest_of(workspace, root_key_id)
  if not digest then return nil, { 'unauthorized' } end
  local stored = redis.call('HMGET', name_of.root_key_record(workspace, digest), 'grants', 'enabled', 'expires')
  local ends = tonumber(stored[3]) or math.huge
  if stored[2] ~= '1' then return nil, { 'root_key_disabled' } end
  if now >= ends then return nil, { 'root_key_expired' } end
  local grants = grant_set(stored[1])
  local lacking = lacking_grant(grants, 'root_key.*.' .. action)
  if lacking then return nil, { 'lacks', lacking } end
  return { grants = grants, ends = ends }
end

-- An admin is a root key that is enabled, can do everything (grant `*`) and does not expire. A workspace always has one
-- (docs/contract.md §15). Returns whether it still has one after a change of a root key that `is_admin` after it or
-- not.
local function keeps_an_admin(workspace, digest, is_admin)
  if is_admin then return true end
  local admins = name_of.admin_root_keys(workspace)
  return redis.call('SISMEMBER', admins, digest) == 0 or redis.call('SCARD', admins) > 1
end

local function record_admin(workspace, digest, is_admin)
  redis.call(is_admin and 'SADD' or 'SREM', name_of.admin_root_keys(workspace), digest)
end

-- Creates a root key: {id (without `root_`), name, start, grants, enabled, expires, created, used}, of which name,
-- expires and used may be absent.
local function create_root_key(workspace, digest, root_key)
  set_fields(name_of.root_key_record(workspace, digest), {
    id = 'root_' .. root_key.id,
    start = root_key.start,
    name = root_key.name,
    grants = root_key.grants,
    enabled = root_key.enabled and '1' or '0',
    expires = root_key.expires and int(root_key.expires),
    created = int(root_key.created),
    used = root_key.used and int(root_key.used),
  })
  redis.call('ZADD', name_of.root_key_list(workspace), 0, root_key.id .. digest)
  local is_admin = root_key.enabled and not root_key.expires and root_grants.has(root_key.grants, '*')
  record_admin(workspace, digest, is_admin)
end

-- The changes in the event of its creation.
local function new_root_key_changes(root_key)
  return {
    { 'name', nil, root_key.name },
    { 'permissions', nil, grants_list(root_key.grants) },
    { 'expires', nil, root_key.expires },
  }
end
