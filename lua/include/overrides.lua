-- Namespaces and their overrides. The record of a namespace's name is sixteen characters of its id, then `e` if any
-- override is for exactly one identifier, then `w` if any has a `*`: a namespace without overrides costs no look-up.

local OVERRIDE = '>c16I7I7I6' -- id, limit, duration, created

-- Makes a namespace. `id16` is new.
local function create_namespace(workspace, name, id16)
  redis.call('HSET', namespace_ids(workspace), name, id16)
  redis.call('HSET', namespace_names(workspace), id16, name)
  return { id16 = id16, name = name, exact = false, wild = false }
end

-- A namespace by its name, or by its id (`rlns_…`): {id16, name, exact, wild}, or nil.
local function find_namespace(workspace, name_or_id)
  local name, stored = name_or_id, redis.call('HGET', namespace_ids(workspace), name_or_id)
  if not stored and string.sub(name_or_id, 1, 5) == 'rlns_' then
    name = redis.call('HGET', namespace_names(workspace), string.sub(name_or_id, 6))
    stored = name and redis.call('HGET', namespace_ids(workspace), name)
  end
  if not stored then return nil end
  local kinds = string.sub(stored, 17)
  return { id16 = string.sub(stored, 1, 16), name = name, exact = string.find(kinds, 'e', 1, true) ~= nil, wild = string.find(kinds, 'w', 1, true) ~= nil }
end

-- Does `identifier` match `pattern`, in which each `*` is any run of characters? Each part is taken where it first fits,
-- which is enough when nothing but `*` is special, and never goes back.
local function matches_wildcard(pattern, identifier)
  local star = string.find(pattern, '*', 1, true)
  if string.sub(identifier, 1, star - 1) ~= string.sub(pattern, 1, star - 1) then return false end
  local at = star
  while true do
    local next_star = string.find(pattern, '*', star + 1, true)
    local part = string.sub(pattern, star + 1, (next_star or 0) - 1)
    if not next_star then
      return #identifier - #part + 1 >= at and (part == '' or string.sub(identifier, -#part) == part)
    end
    if part ~= '' then
      local found, ends = string.find(identifier, part, at, true)
      if not found then return false end
      at = ends + 1
    end
    star = next_star
  end
end

local function read_override(workspace, namespace, identifier)
  local packed = redis.call('HGET', overrides(workspace, namespace.id16), identifier)
  if not packed then return nil end
  local id16, limit, duration, created = struct.unpack(OVERRIDE, packed)
  return { id16 = id16, limit = limit, duration = duration, created = created }
end

-- The override that counts for an identifier, or nil: the exact one, else the first wildcard one that matches; those
-- are kept with the most literal characters first, and the oldest among equals.
local function override_for(workspace, namespace, identifier)
  -- An identifier with a `*` in it may be, to the letter, a wildcard one.
  local may_be_exact = namespace.exact or namespace.wild and string.find(identifier, '*', 1, true)
  local exact = may_be_exact and read_override(workspace, namespace, identifier)
  if exact then return exact end
  if not namespace.wild then return nil end
  namespace.wildcards = namespace.wildcards or redis.call('ZRANGE', wildcard_overrides(workspace, namespace.id16), 0, -1)
  for _, member in ipairs(namespace.wildcards) do
    local pattern = string.sub(member, 17)
    if matches_wildcard(pattern, identifier) then return read_override(workspace, namespace, pattern) end
  end
end

-- How many overrides a namespace has, and how many of them have a `*`.
local function count_overrides(workspace, namespace)
  return redis.call('ZCARD', override_list(workspace, namespace.id16)), redis.call('ZCARD', wildcard_overrides(workspace, namespace.id16))
end

-- Brings the record of a namespace in step with the overrides it has.
local function note_overrides(workspace, namespace, all, wild)
  redis.call('HSET', namespace_ids(workspace), namespace.name, namespace.id16 .. (all > wild and 'e' or '') .. (wild > 0 and 'w' or ''))
end
