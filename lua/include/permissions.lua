-- Permissions of keys. Inside a workspace every permission and every role has a small number that is never used again;
-- keys and roles carry lists of numbers (`,3,17,`), so a deleted permission or role is off all of them at once.

-- `,3,17,` as an array of '3', '17'.
local function numbers_in(list)
  local numbers = {}
  for number in string.gmatch(list, '%d+') do numbers[#numbers + 1] = number end
  return numbers
end

-- The permission lists of a key: its own, then those of its roles.
local function permission_lists(workspace, direct, roles)
  local lists_found = { direct }
  local role_list_numbers = numbers_in(roles)
  if #role_list_numbers > 0 then
    for _, list in ipairs(redis.call('HMGET', role_permissions(workspace), unpack(role_list_numbers))) do
      if list then lists_found[#lists_found + 1] = list end
    end
  end
  return lists_found
end

-- The slugs a key has, directly and through roles, each once.
local function effective_slugs(workspace, direct, roles)
  local seen, numbers = {}, {}
  for _, list in ipairs(permission_lists(workspace, direct, roles)) do
    for number in string.gmatch(list, '%d+') do
      if not seen[number] then
        seen[number] = true
        numbers[#numbers + 1] = number
      end
    end
  end
  local slugs = {}
  -- In steps, as `unpack` has a bounded stack.
  for first = 1, #numbers, 1000 do
    local values = redis.call('HMGET', permission_slugs(workspace), unpack(numbers, first, math.min(first + 999, #numbers)))
    for _, slug in ipairs(values) do
      if slug then slugs[#slugs + 1] = slug end
    end
  end
  return slugs
end

-- The slugs that would grant `slug`: itself, and `prefix.*` for each part it begins with (CONTRACT §7).
local function grants_of(slug)
  local grants = { slug }
  local dot = string.find(slug, '.', 1, true)
  while dot do
    grants[#grants + 1] = string.sub(slug, 1, dot) .. '*'
    dot = string.find(slug, '.', dot + 1, true)
  end
  return grants
end

-- Does the query hold? `query` is in postfix order: slugs, and the numbers 1 (and) and 2 (or).
local function permits(workspace, query, direct, roles)
  local lists_found
  local function has(slug)
    lists_found = lists_found or permission_lists(workspace, direct, roles)
    for _, number in ipairs(redis.call('HMGET', permission_numbers(workspace), unpack(grants_of(slug)))) do
      if number then
        local wanted = ',' .. number .. ','
        for _, list in ipairs(lists_found) do
          if string.find(list, wanted, 1, true) then return true end
        end
      end
    end
    return false
  end
  local stack = {}
  for _, token in ipairs(query) do
    if type(token) == 'string' then
      stack[#stack + 1] = has(token)
    else
      local right = table.remove(stack)
      local left = stack[#stack]
      if token == 1 then stack[#stack] = left and right else stack[#stack] = left or right end
    end
  end
  return stack[1]
end
