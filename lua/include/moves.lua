-- Keys that are moved to another workspace with their API (src/records/moves.ts).
--
-- A key that was taken is deleted in the workspace that it leaves, with the expiry MOVED. It is *on its way* as long as
-- its record has the field `moved`: with all its other fields and records, so that nothing is lost if the process that
-- moves it ends. Afterwards only a state is left, by which its verifications are sent on.

-- @include "include/names"

local moves = {}

-- The field `moved`: the expiry that the key had; until when it could be restored, if it was deleted, or `-`; and `f`
-- if it was taken with all keys of its identity, or `a`.
function moves.note(expires, restorable_until, with_all)
  return string.format('%.0f %s %s', expires, restorable_until or '-', with_all and 'f' or 'a')
end

-- Returns these values: a number, text or nil, and whether it was taken with all keys of its identity.
function moves.noted(text)
  local expires, restorable_until, with_all = string.match(text, '^(%d+) (%S+) (%a)$')
  return tonumber(expires), restorable_until ~= '-' and restorable_until or nil, with_all == 'f'
end

-- The digests in a string of digests.
function moves.digests(text)
  local digests = {}
  for at = 1, #text, 32 do
    digests[#digests + 1] = string.sub(text, at, at + 31)
  end
  return digests
end

-- Each `size` items of a flat list, from the position of their number on; and the position after them.
function moves.items(list, at, size)
  local items, count = {}, tonumber(list[at])
  at = at + 1
  for _ = 1, count do
    items[#items + 1] = { unpack(list, at, at + size - 1) }
    at = at + size
  end
  return items, at
end

-- Whether an API can be moved here from a workspace: 'receiving' if that has begun, 'again' if the API was deleted here
-- since, 'new', or nil if there is an API with its id, or keys of an earlier one are still being removed.
function moves.receives(workspace, api_id, from)
  local api8 = string.sub(api_id, -8)
  local record, receipt =
    name_of.api_record(workspace, api8), redis.call('HGET', name_of.receipt(workspace, api8), 'from')
  if receipt == from and redis.call('HGET', record, 'id') == api_id then return 'receiving' end
  local others = { record, name_of.deleted_api(workspace, api8), name_of.key_list(workspace, api8) }
  if receipt and receipt ~= from or redis.call('EXISTS', unpack(others)) > 0 then return nil end
  if redis.call('LPOS', name_of.dead_apis(workspace), api8) then return nil end
  return receipt and 'again' or 'new'
end
