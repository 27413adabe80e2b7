-- Pages of the lists of a workspace, which are sorted sets whose members begin with an id.

-- The next members of a list in an order, asc or desc, after the member `after` or ''.
local function members_after(list, after, order, count)
  if order == 'desc' then
    local from = after == '' and '+' or '(' .. after
    return redis.call('ZRANGE', list, from, '-', 'BYLEX', 'REV', 'LIMIT', 0, count)
  end
  return redis.call('ZRANGE', list, after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, count)
end
