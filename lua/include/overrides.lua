-- Namespaces and their overrides.

-- Makes a namespace. `id16` is new.
local function create_namespace(workspace, name, id16)
  redis.call('HSET', namespace_ids(workspace), name, id16)
  redis.call('HSET', namespace_names(workspace), id16, name)
  return { id16 = id16 }
end

-- The override that counts for an identifier: {id16, limit, duration} or nil.
local function override_for(_workspace, _namespace, _identifier) return nil end
