-- Pages of the lists of a workspace, which are sorted sets whose members begin with an id.

-- A page of a list in an order, asc or desc, of at most `count` members after the id `after` or '': their replies, and
-- 1 if there are more, else 0. `reply_of` takes the workspace, what follows the id in a member, and the id (16).
local function page_of(workspace, list, after, order, count, reply_of)
  local members
  if order == 'desc' then
    local from = after == '' and '+' or '(' .. after
    members = redis.call('ZRANGE', list, from, '-', 'BYLEX', 'REV', 'LIMIT', 0, count + 1)
  else
    local from = after == '' and '-' or '(' .. after .. '\255'
    members = redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
  end
  local replies = {}
  for index = 1, math.min(count, #members) do
    local member = members[index]
    replies[index] = reply_of(workspace, string.sub(member, 17), string.sub(member, 1, 16))
  end
  return { replies, #members > count and 1 or 0 }
end
