-- Changing what is stored of overrides. A temporary one that replaced none is removed some time after it has ended:
-- readers take it for absent from then on (read_override).

local override_records = {}

-- The cost of checking these patterns: their number of `*`; how many have text between two `*`, which needs a search
-- through the whole identifier; their bytes.
function override_records.weight_of(patterns)
  local stars, searching, bytes = 0, 0, 0
  for _, pattern in ipairs(patterns) do
    stars = stars + select(2, string.gsub(pattern, '%*', ''))
    if #wildcard_of(pattern) > 0 then searching = searching + 1 end
    bytes = bytes + #pattern
  end
  return stars, searching, bytes
end

-- The number of overrides of a namespace, and of those with a `*`.
function override_records.count(workspace, namespace)
  return redis.call('ZCARD', name_of.override_list(workspace, namespace.id16)),
    redis.call('ZCARD', name_of.wildcard_overrides(workspace, namespace.id16))
end

-- Updates the value of a namespace's name after a change of its overrides.
function override_records.update_kinds(workspace, namespace, all, wild)
  local kinds = (all > wild and 'e' or '') .. (wild > 0 and 'w' or '')
  redis.call('HSET', name_of.namespace_ids(workspace), namespace.name, namespace.id16 .. kinds)
end

-- Notes when an override ends (nil for a permanent one), in the index of ends (include/limitList). One that replaced
-- none is also noted for its removal.
function override_records.note_end(workspace, namespace, identifier, id16, ends, former)
  local of_all, of_namespace = name_of.override_ends(workspace), name_of.override_ends_of(workspace, namespace.id16)
  local index, member = name_of.ends(workspace), name_of.override_end(namespace.id16, id16)
  if ends then
    redis.call('ZADD', index, int(ends), member)
  else
    redis.call('ZREM', index, member)
  end
  if ends and not former then
    redis.call('ZADD', of_all, int(ends), namespace.id16 .. identifier)
    redis.call('ZADD', of_namespace, int(ends), identifier)
  else
    redis.call('ZREM', of_all, namespace.id16 .. identifier)
    redis.call('ZREM', of_namespace, identifier)
  end
end

-- Removes an override with everything that is stored of it.
function override_records.remove(workspace, namespace, identifier, id16)
  local is_wild = string.find(identifier, '*', 1, true) ~= nil
  local all, wild = override_records.count(workspace, namespace)
  redis.call('HDEL', name_of.overrides(workspace, namespace.id16), identifier)
  redis.call('ZREM', name_of.override_list(workspace, namespace.id16), id16 .. identifier)
  redis.call('ZREM', name_of.wildcard_overrides(workspace, namespace.id16), id16 .. identifier)
  override_records.note_end(workspace, namespace, identifier, id16, nil, nil)
  add_records(workspace, 'override_records', -1)
  override_records.update_kinds(workspace, namespace, all - 1, is_wild and wild - 1 or wild)
  if is_wild then redis.call('HINCRBY', workspace, 'wildcards', -1) end
end

-- Removes what is stored of an override for this identifier that has ended.
function override_records.remove_rest(workspace, namespace, identifier, now)
  if read_override(workspace, namespace, identifier, now) then return end
  -- At time 0 each of them is in force.
  local ended = read_override(workspace, namespace, identifier, 0)
  if ended then override_records.remove(workspace, namespace, identifier, ended.id16) end
end

-- Removes at most `count` overrides of a workspace that have ended. Returns their number.
function override_records.remove_ended(workspace, now, count)
  local of_all = name_of.override_ends(workspace)
  local ended = redis.call('ZRANGE', of_all, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
  for _, member in ipairs(ended) do
    local namespace, identifier =
      find_namespace(workspace, 'rlns_' .. string.sub(member, 1, 16)), string.sub(member, 17)
    if namespace then override_records.remove_rest(workspace, namespace, identifier, now) end
    redis.call('ZREM', of_all, member)
  end
  return #ended
end
