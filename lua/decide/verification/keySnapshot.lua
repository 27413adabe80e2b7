-- The snapshot of a key: the cacheable part of a verification, returned only when the server's version is out of date.
-- With more keys than a server caches, most verifications return one, so it is packed as one string.

local key_snapshot = {}

-- Role names, as `roles` of SNAPSHOT.
local function pack_names(names)
  local parts = { struct.pack('>I2', #names) }
  for index, name in ipairs(names) do
    parts[index + 1] = struct.pack('>I2c0', #name, name)
  end
  return table.concat(parts)
end

-- The configured limits of a state, without windows: the bytes from their count to their first window, and LIMIT_END of
-- each temporary one, if there are such.
local function configured_limits(packed, limits_at, tail_bytes, is_temporary)
  local count = string.byte(packed, limits_at)
  if count == 0 then return '\0' end
  local _, windows_at = window_lengths(packed, count, tail_bytes)
  local limits = string.sub(packed, limits_at, windows_at - 1)
  for _, l in ipairs(is_temporary and read_limits(packed, limits_at, tail_bytes) or {}) do
    limits = limits .. limit_ends.pack(l)
  end
  return limits
end

-- The permissions and roles of a key, packed: slugs, or lists of permission numbers if there are too many for a script;
-- role names.
local function packed_permissions()
  local direct, roles = plans_of_key.permissions()
  local slugs, number_lists, given = effective_slugs(call_workspace, direct, roles)
  add_work(3 * #slugs + given / 50)
  return table.concat(slugs, '\n'), table.concat(number_lists, '\n'), pack_names(names_of_roles(call_workspace, roles))
end

-- The versions that the snapshot depends on besides the key's own: of its identity, and of all permissions and roles. A
-- change of its plan gives its owner another version (currentLimits.lua).
function key_snapshot.dependencies()
  local version = key_identity and string.sub(key_identity, IDENTITY_HEAD_VERSION_AT, IDENTITY_HEAD_LENGTH) or ''
  return key_flags.permissions and version .. rbac_version() or version
end

-- Packs the snapshot. The caller notes in `snapshots` of the API that it is in an answer of this call, so that no later
-- one needs it.
function key_snapshot.pack(dependencies)
  key_api.snapshots = key_api.snapshots or {}
  local slugs, number_lists, roles = '', '', '\0\0'
  if key_flags.permissions then
    slugs, number_lists, roles = packed_permissions()
  end
  local display = key_display or redis.call('HMGET', key_name, 'state', 'name', 'meta')
  local name, meta = display[2], display[3]
  local plan_id, plan_meta = plans_of_key.displayed()
  local external_id, format, identity_meta, identity_limits = key_external_id, SNAPSHOT, nil, nil
  if key_identity then
    format = SNAPSHOT_WITH_IDENTITY
    local identity_display = key_identity_display
      or redis.call('HMGET', name_of.identity_record(call_workspace, external_id), 'state', 'meta')
    identity_meta = identity_display[2]
    identity_limits = configured_limits(key_identity, IDENTITY_LIMITS_AT, 0, limit_ends.is_flagged(key_identity))
  end
  -- `c16` takes the first 16 characters of a state, those of the id. Values that a format does not name are ignored.
  -- stylua: ignore
  return struct.pack(format,
    key_version_time, key_version_number, #dependencies, dependencies,
    key_packed, key_api.id, key_flags.enabled and 1 or 0, key_expires,
    name and #name + 1 or 0, name or '', meta and #meta + 1 or 0, meta or '',
    plan_id and #plan_id + 1 or 0, plan_id or '', plan_meta and #plan_meta + 1 or 0, plan_meta or '',
    #slugs, slugs, #number_lists, number_lists, roles,
    configured_limits(key_packed, key_limits_at, key_flags.tail_bytes, key_flags.temporary),
    key_identity, #external_id, external_id,
    identity_meta and #identity_meta + 1 or 0, identity_meta or '', identity_limits)
end

-- As pack, for a caller that lacks it, and what is added to the outcome. It is returned once per call. Otherwise many
-- verifications of a key that is not cached would each return its snapshot.
function key_snapshot.missing(digest, dependencies)
  if key_api.snapshots and key_api.snapshots[digest] then return nil, SNAPSHOT_BEFORE end
  return key_snapshot.pack(dependencies), 0
end
