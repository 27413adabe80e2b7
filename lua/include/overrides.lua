-- Namespaces and their overrides. A hash maps the name of a namespace to its id (16), then `e` if it has an override
-- for an exact identifier, then `w` if it has an override with a `*`. So a check in a namespace without overrides looks
-- none up.

-- Creates a namespace. `id16` is a new id.
local function create_namespace(workspace, name, id16)
  redis.call('HSET', name_of.namespace_ids(workspace), name, id16)
  redis.call('HSET', name_of.namespace_names(workspace), id16, name)
  redis.call('ZADD', name_of.namespace_list(workspace), 0, id16)
  return { id16 = id16, name = name, exact = false, wild = false }
end

-- A namespace by its name, or by its id (`rlns_…`): {id16, name, exact, wild}, or nil.
local function find_namespace(workspace, name_or_id)
  local name, stored = name_or_id, redis.call('HGET', name_of.namespace_ids(workspace), name_or_id)
  if not stored and string.sub(name_or_id, 1, 5) == 'rlns_' then
    name = redis.call('HGET', name_of.namespace_names(workspace), string.sub(name_or_id, 6))
    stored = name and redis.call('HGET', name_of.namespace_ids(workspace), name)
  end
  if not stored then return nil end
  local kinds = string.sub(stored, 17)
  return {
    id16 = string.sub(stored, 1, 16),
    name = name,
    exact = string.find(kinds, 'e', 1, true) ~= nil,
    wild = string.find(kinds, 'w', 1, true) ~= nil,
  }
end

-- Parses a pattern, in which each `*` matches any characters: the text before the first `*`, after the last one, and
-- the non-empty parts in between.
local function wildcard_of(pattern)
  local first = string.find(pattern, '*', 1, true)
  -- Created with all fields, because Lua allocates a table again when it grows.
  local wildcard =
    { pattern = pattern, head = string.sub(pattern, 1, first - 1), head_bytes = first - 1, tail = '', tail_bytes = 0 }
  local at, star = first + 1, string.find(pattern, '*', first + 1, true)
  while star do
    if star > at then wildcard[#wildcard + 1] = string.sub(pattern, at, star - 1) end
    at = star + 1
    star = string.find(pattern, '*', at, true)
  end
  wildcard.tail, wildcard.tail_bytes = string.sub(pattern, at), #pattern - at + 1
  return wildcard
end

-- Whether an identifier matches. Each part is matched at its first occurrence; as only `*` is special, no backtracking
-- is needed.
local function matches_wildcard(wildcard, identifier)
  local head_bytes, tail_bytes = wildcard.head_bytes, wildcard.tail_bytes
  local last = #identifier - tail_bytes
  if last < head_bytes or head_bytes > 0 and string.sub(identifier, 1, head_bytes) ~= wildcard.head then
    return false
  end
  if tail_bytes > 0 and string.sub(identifier, last + 1) ~= wildcard.tail then return false end
  local at = head_bytes + 1
  for _, part in ipairs(wildcard) do
    local found, ends = string.find(identifier, part, at, true)
    if not found or ends > last then return false end
    at = ends + 1
  end
  return true
end

-- The override for exactly this identifier that is in force at a time, or nil: {id16, limit, duration, created}. One
-- that is temporary also has `ends` and, if it replaced one, `former` {limit, duration}, which is in force afterwards.
local function read_override(workspace, namespace, identifier, now)
  local packed = redis.call('HGET', name_of.overrides(workspace, namespace.id16), identifier)
  if not packed then return nil end
  local id16, limit, duration, created = struct.unpack(OVERRIDE, packed)
  local override = { id16 = id16, limit = limit, duration = duration, created = created }
  if #packed == OVERRIDE_LENGTH then return override end
  local ends, has_former, former_limit, former_duration = struct.unpack(OVERRIDE_END, packed, OVERRIDE_LENGTH + 1)
  if now < ends then
    override.ends, override.former =
      ends, has_former == 1 and { limit = former_limit, duration = former_duration } or nil
  elseif has_former == 1 then
    override.limit, override.duration = former_limit, former_duration
  else
    return nil
  end
  return override
end

-- The identifiers with a `*` of a namespace's overrides, in the order in which they are tried.
local function wildcard_patterns(workspace, namespace)
  local patterns = redis.call('ZRANGE', name_of.wildcard_overrides(workspace, namespace.id16), 0, -1)
  for index, member in ipairs(patterns) do
    patterns[index] = string.sub(member, 17)
  end
  return patterns
end

-- The override for an identifier at a time, or nil: the exact one, else the first wildcard that matches. Wildcards are
-- sorted by literal characters, most first, then by age, oldest first.
local function override_for(workspace, namespace, identifier, now)
  -- An identifier with a `*` may equal a wildcard literally.
  local may_be_exact = namespace.exact or namespace.wild and string.find(identifier, '*', 1, true)
  local exact = may_be_exact and read_override(workspace, namespace, identifier, now)
  if exact then return exact end
  if not namespace.wild then return nil end
  -- Parsed once for all checks of a batch.
  if not namespace.wildcards then
    local wildcards = wildcard_patterns(workspace, namespace)
    for index, pattern in ipairs(wildcards) do
      wildcards[index] = wildcard_of(pattern)
    end
    namespace.wildcards = wildcards
  end
  -- The prefix of the identifier is cut once for consecutive wildcards whose texts before the first `*` have the same
  -- length.
  local prefix, prefix_bytes = '', 0
  for _, wildcard in ipairs(namespace.wildcards) do
    if wildcard.head_bytes ~= prefix_bytes then
      prefix_bytes = wildcard.head_bytes
      prefix = string.sub(identifier, 1, prefix_bytes)
    end
    if prefix == wildcard.head and matches_wildcard(wildcard, identifier) then
      local override = read_override(workspace, namespace, wildcard.pattern, now)
      -- One that has ended and was not removed yet matches nothing.
      if override then return override end
    end
  end
end
