-- What the scripts that manage permissions and roles share.

-- Says that some permission or role changed: what a key may do is asked anew from the next verification on.
local function touch_rbac(workspace, next_version) redis.call('HSET', workspace, 'rbac', next_version()) end

-- The number under which an id (with its prefix) stands in a list whose members are id16, number; or nil.
local function number_of_id(list, prefix, id)
  if string.sub(id, 1, #prefix) ~= prefix then return nil end
  local id16 = string.sub(id, #prefix + 1)
  if #id16 ~= 16 then return nil end
  local member = redis.call('ZRANGE', list, '[' .. id16, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if member and string.sub(member, 1, 16) == id16 then return string.sub(member, 17) end
end

-- A permission's number by its id or slug, or nil.
local function permission_number(workspace, id_or_slug)
  return number_of_id(permission_list(workspace), 'perm_', id_or_slug) or redis.call('HGET', permission_numbers(workspace), id_or_slug) or nil
end

-- A role's number by its id or name, or nil.
local function role_number(workspace, id_or_name)
  return number_of_id(role_list(workspace), 'role_', id_or_name) or redis.call('HGET', role_numbers(workspace), id_or_name) or nil
end

-- A permission as {id, name, slug, description or false}, or nil.
local function show_permission(workspace, number)
  local row = redis.call('HMGET', permission_record(workspace, number), 'id', 'name', 'slug', 'description')
  if row[1] then return row end
end

-- The numbers in a list that still stand for something in `hash`, as an array.
local function live_numbers(hash, list)
  local numbers, live = numbers_in(list), {}
  for first = 1, #numbers, 1000 do
    local last = math.min(first + 999, #numbers)
    for index, value in ipairs(redis.call('HMGET', hash, unpack(numbers, first, last))) do
      if value then live[#live + 1] = numbers[first + index - 1] end
    end
  end
  return live
end

-- `had` (an array of numbers) with `given` added, or without it, or replaced by it, each once.
local function combine(mode, had, given)
  local seen, result = {}, {}
  if mode == 'remove' then
    for _, number in ipairs(given) do seen[number] = true end
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
