-- Permissions of keys. In a workspace every permission and every role has a small number that is never reused. Keys and
-- roles have lists of numbers (`,3,17,`), so that all of them lose a deleted permission or role immediately.

-- The numbers in a list such as `,3,17,`, as an array of strings.
local function numbers_in(list)
  local numbers = {}
  for number in string.gmatch(list, '%d+') do
    numbers[#numbers + 1] = number
  end
  return numbers
end

-- The reverse; '' for an empty array.
local function as_list(numbers) return #numbers == 0 and '' or ',' .. table.concat(numbers, ',') .. ',' end

-- The permission lists of a key that are not empty: its own, then those of its roles.
local function permission_lists(workspace, direct, roles)
  local lists_found = { direct ~= '' and direct or nil }
  local role_list_numbers = numbers_in(roles)
  if #role_list_numbers > 0 then
    for _, list in ipairs(redis.call('HMGET', name_of.role_permissions(workspace), unpack(role_list_numbers))) do
      if list and list ~= '' then lists_found[#lists_found + 1] = list end
    end
  end
  return lists_found
end

-- If the lists have more bytes together (some thousand permissions), a script returns the numbers, and the caller reads
-- the slugs a thousand at a time: reading a hundred roles of a thousand permissions in one script would block Redis for
-- 400 ms.
local LISTS_BYTES_MAX = 20000

-- The distinct slugs of a key, its own and those of its roles; if there are too many, {} and the lists of their
-- numbers. Then a measure of the work: the number of permissions with duplicates, or the bytes of the lists.
local function effective_slugs(workspace, direct, roles)
  local seen, numbers, given = {}, {}, 0
  local lists_found, bytes = permission_lists(workspace, direct, roles), 0
  for _, list in ipairs(lists_found) do
    bytes = bytes + #list
  end
  if bytes > LISTS_BYTES_MAX then return {}, lists_found, bytes end
  for _, list in ipairs(lists_found) do
    for number in string.gmatch(list, '%d+') do
      given = given + 1
      if not seen[number] then
        seen[number] = true
        numbers[#numbers + 1] = number
      end
    end
  end
  return values_of(name_of.permission_slugs(workspace), numbers, true), {}, given
end

local function names_of_roles(workspace, roles) return values_of(name_of.role_names(workspace), numbers_in(roles), true) end

-- The slugs that grant `slug`: itself, and `prefix.*` for each of its prefixes (docs/contract.md §7).
local function grants_of(slug)
  local grants = { slug }
  local dot = string.find(slug, '.', 1, true)
  while dot do
    grants[#grants + 1] = string.sub(slug, 1, dot) .. '*'
    dot = string.find(slug, '.', dot + 1, true)
  end
  return grants
end

-- Which slugs of a query in postfix order a key has: true or false by position, nil for an operator. Also returns the
-- bytes of the lists that were searched.
local function held_slugs(workspace, query, direct, roles)
  local wanted, first_of = {}, {}
  for position, token in ipairs(query) do
    if type(token) == 'string' then
      first_of[position] = #wanted + 1
      for _, grant in ipairs(grants_of(token)) do
        wanted[#wanted + 1] = grant
      end
    end
  end
  local numbers, found, is_wanted = {}, 0, {}
  for first = 1, #wanted, 1000 do
    local some =
      redis.call('HMGET', name_of.permission_numbers(workspace), unpack(wanted, first, math.min(first + 999, #wanted)))
    for index, number in ipairs(some) do
      numbers[first + index - 1] = number
      if number and not is_wanted[number] then
        found, is_wanted[number] = found + 1, true
      end
    end
  end

  -- Up to 8 numbers are searched one by one, more of them in one pass over the lists: a hundred roles of a thousand
  -- permissions have half a megabyte, which each search would read.
  local lists_found, owned, bytes = permission_lists(workspace, direct, roles), nil, 0
  for _, list in ipairs(lists_found) do
    bytes = bytes + #list
  end
  if found > 8 then
    owned = {}
    for _, list in ipairs(lists_found) do
      for number in string.gmatch(list, '%d+') do
        if is_wanted[number] then owned[number] = true end
      end
    end
  end
  local function has(first, last)
    for index = first, last do
      if owned then
        if owned[numbers[index]] then return true end
      elseif numbers[index] then
        local number = ',' .. numbers[index] .. ','
        for _, list in ipairs(lists_found) do
          if string.find(list, number, 1, true) then return true end
        end
      end
    end
    return false
  end
  local held, last = {}, #wanted
  -- Backwards, because the grants of a slug end where those of the next slug begin.
  for position = #query, 1, -1 do
    if first_of[position] then
      held[position] = has(first_of[position], last)
      last = first_of[position] - 1
    end
  end
  return held, bytes
end

-- Evaluates a query in postfix order: slugs, and the numbers 1 (and) and 2 (or). `held` is that of held_slugs.
local function permits(query, held)
  local stack, top = {}, 0
  for position, token in ipairs(query) do
    if held[position] ~= nil then
      top = top + 1
      stack[top] = held[position]
    else
      top = top - 1
      if token == 1 then
        stack[top] = stack[top] and stack[top + 1]
      else
        stack[top] = stack[top] or stack[top + 1]
      end
    end
  end
  return stack[1]
end
