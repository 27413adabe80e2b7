-- Lists of the records of a workspace: sorted sets whose members begin with an id (16).

-- The part of a member after the id, or nil when the list has no such id. `id` has its prefix.
local function rest_of_id(list, prefix, id)
  local id16 = string.sub(id, #prefix + 1)
  if #id16 ~= 16 or string.sub(id, 1, #prefix) ~= prefix then return nil end
  local member = redis.call('ZRANGE', list, '[' .. id16, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if member and string.sub(member, 1, 16) == id16 then return string.sub(member, 17) end
end

-- Sorts after everything that may follow an id: 33 bytes of 255.
local AFTER_ALL =
  '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255'

-- A page of a list in an order, asc or desc, of at most `count` members after the id `after` or '': their replies, and
-- 1 if there are more, else 0. `reply_of` takes the workspace, what follows the id in a member, and the id (16). It may
-- return the parts of its reply besides; the page ends early when it has `parts_max`.
local function page_of(workspace, list, after, order, count, reply_of, parts_max)
  local members
  if order == 'desc' then
    local from = after == '' and '+' or '(' .. after
    members = redis.call('ZRANGE', list, from, '-', 'BYLEX', 'REV', 'LIMIT', 0, count + 1)
  else
    local from = after == '' and '-' or '(' .. after .. AFTER_ALL
    members = redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
  end
  local replies, examined, all_parts = {}, 0, 0
  while examined < math.min(count, #members) and all_parts < (parts_max or math.huge) do
    examined = examined + 1
    local member = members[examined]
    local reply, parts = reply_of(workspace, string.sub(member, 17), string.sub(member, 1, 16))
    replies[#replies + 1], all_parts = reply, all_parts + (parts or 0)
  end
  return { replies, #members > examined and 1 or 0 }
end

-- Whether a string sorts before another byte by byte, as in a sorted set. Lua's `<` depends on the locale of Redis.
local function comes_before(one, other)
  for position = 1, math.min(#one, #other) do
    local byte, other_byte = string.byte(one, position), string.byte(other, position)
    if byte ~= other_byte then return byte < other_byte end
  end
  return #one < #other
end

-- The number of members of a sorted set before one with this score (text), which may be gone; and whether it is there.
-- Very many members may have the same score, so it searches among these by halves.
local function rank_of(list, score, wanted)
  local rank, ended = redis.call('ZCOUNT', list, '-inf', '(' .. score), redis.call('ZCOUNT', list, '-inf', score)
  local beyond = ended
  while rank < beyond do
    local middle = math.floor((rank + beyond) / 2)
    if comes_before(redis.call('ZRANGE', list, middle, middle)[1], wanted) then
      rank = middle + 1
    else
      beyond = middle
    end
  end
  return rank, rank < ended and redis.call('ZRANGE', list, rank, rank)[1] == wanted
end
