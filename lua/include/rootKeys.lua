-- What the scripts that manage root keys share.

-- The digest of the root key with this id, or nil.
local function root_digest_of(workspace, root_key_id)
  local id16 = string.sub(root_key_id, 6)
  if #id16 ~= 16 or string.sub(root_key_id, 1, 5) ~= 'root_' then return nil end
  local member = redis.call('ZRANGE', root_key_list(workspace), '[' .. id16, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if member and string.sub(member, 1, 16) == id16 then return string.sub(member, 17) end
end

-- Does a root key with `grants` hold every grant in `others`?
local function covers(grants, others)
  if lists(grants, '*') then return true end
  for grant in string.gmatch(others, '[^\n]+') do
    local resource, id, action = string.match(grant, '^([%w_]+)%.([%w_*]+)%.([%w_]+)$')
    if not resource or not holds(grants, resource, id, action) then return false end
  end
  return true
end

-- Keeps count of the root keys that can do everything and do not end: a workspace always has one (CONTRACT §15).
-- Answers false, and changes nothing, when `digest` is the last of them and would cease to be.
local function stays_governed(workspace, digest, remains)
  if remains then return true end
  local full = root_keys_full(workspace)
  return redis.call('SISMEMBER', full, digest) == 0 or redis.call('SCARD', full) > 1
end

local function note_governing(workspace, digest, governs)
  redis.call(governs and 'SADD' or 'SREM', root_keys_full(workspace), digest)
end
