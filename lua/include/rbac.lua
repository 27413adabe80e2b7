-- Functions of the scripts that manage permissions and roles.

-- Gives all permissions and roles a new version after a change of one. Results and snapshots that were cached with an
-- earlier version are then no longer used.
local function renew_rbac_version(workspace, next_version) redis.call('HSET', workspace, 'rbac', next_version()) end

-- A permission's number by its id or slug, or nil.
local function permission_number(workspace, id_or_slug)
  return rest_of_id(name_of.permission_list(workspace), 'perm_', id_or_slug)
    or redis.call('HGET', name_of.permission_numbers(workspace), id_or_slug)
    or nil
end

-- A role's number by its id or name, or nil.
local function role_number(workspace, id_or_name)
  return rest_of_id(name_of.role_list(workspace), 'role_', id_or_name)
    or redis.call('HGET', name_of.role_numbers(workspace), id_or_name)
    or nil
end

-- The fields of a permission, as PermissionReply in src/records/rbac.ts names them, or nil.
local function read_permission(workspace, number)
  local permission = read_fields(name_of.permission_record(workspace, number), 'id', 'name', 'slug', 'description')
  permission.number = number
  return permission.id and permission or nil
end

-- A permission as a named reply, or nil.
local function permission_reply(workspace, number)
  local permission = read_permission(workspace, number)
  return permission and named(permission)
end

-- The numbers in a list that exist in `hash`, as an array: those of deleted permissions or roles do not.
local function live_numbers(hash, list)
  local numbers, live = numbers_in(list), {}
  for index, value in ipairs(values_of(hash, numbers)) do
    if value then live[#live + 1] = numbers[index] end
  end
  return live
end

-- The numbers `had` with `given` added, removed or set instead, without duplicates. `mode` is add, remove or set.
local function combine(mode, had, given)
  local seen, result = {}, {}
  if mode == 'remove' then
    for _, number in ipairs(given) do
      seen[number] = true
    end
    given = {}
  end
  if mode == 'set' then had = {} end
  for _, list in ipairs({ had, given }) do
    for _, number in ipairs(list) do
      if not seen[number] then
        seen[number] = true
        result[#result + 1] = number
      end
    end
  end
  return result
end

-- The numbers of role names, or nil and the name that does not exist.
local function find_roles(workspace, names)
  if #names == 0 then return '' end
  local numbers, seen = {}, {}
  for index, number in ipairs(redis.call('HMGET', name_of.role_numbers(workspace), unpack(names))) do
    if not number then return nil, names[index] end
    if not seen[number] then
      seen[number] = true
      numbers[#numbers + 1] = number
    end
  end
  return as_list(numbers)
end

-- The numbers of slugs as a table slug -> number, and the distinct slugs that do not exist.
local function find_permissions(workspace, slugs)
  local numbers, missing = {}, {}
  for index, number in ipairs(values_of(name_of.permission_numbers(workspace), slugs)) do
    local slug = slugs[index]
    if number then
      numbers[slug] = number
    elseif numbers[slug] == nil then
      numbers[slug] = false
      missing[#missing + 1] = slug
    end
  end
  return numbers, missing
end

local function create_permission(workspace, slug, name, description, id16)
  local number = redis.call('HINCRBY', workspace, 'permissions', 1)
  redis.call('HSET', name_of.permission_numbers(workspace), slug, number)
  redis.call('HSET', name_of.permission_slugs(workspace), number, slug)
  set_fields(
    name_of.permission_record(workspace, number),
    { id = 'perm_' .. id16, slug = slug, name = name, description = description }
  )
  redis.call('ZADD', name_of.permission_list(workspace), 0, id16 .. number)
  return number
end

-- Creates permissions whose names are their slugs, and adds their numbers to `numbers` (slug -> number).
local function create_permissions(workspace, slugs, numbers, next_id)
  if #slugs == 0 then return end
  local before = redis.call('HINCRBY', workspace, 'permissions', #slugs) - #slugs
  for first = 1, #slugs, 1000 do
    local by_slug, by_number, members = {}, {}, {}
    for index = first, math.min(first + 999, #slugs) do
      local slug, number, id16 = slugs[index], before + index, next_id()
      numbers[slug] = number
      local record = name_of.permission_record(workspace, number)
      redis.call('HSET', record, 'id', 'perm_' .. id16, 'slug', slug, 'name', slug)
      local at = #by_slug
      by_slug[at + 1], by_slug[at + 2] = slug, number
      by_number[at + 1], by_number[at + 2] = number, slug
      members[at + 1], members[at + 2] = 0, id16 .. number
    end
    redis.call('HSET', name_of.permission_numbers(workspace), unpack(by_slug))
    redis.call('HSET', name_of.permission_slugs(workspace), unpack(by_number))
    redis.call('ZADD', name_of.permission_list(workspace), unpack(members))
  end
end

-- The list of numbers (`,3,17,`) of slugs, without duplicates, in the same order; '' for none.
local function list_of(slugs, numbers)
  local list, seen = {}, {}
  for _, slug in ipairs(slugs) do
    if not seen[slug] then
      seen[slug] = true
      list[#list + 1] = numbers[slug]
    end
  end
  return as_list(list)
end
