-- Replies of the scripts that manage records.

-- @include "include/clock"
-- @include "include/fields"

-- The limits of a state as named replies {id, name, limit, duration, autoApply}.
local function limit_replies(limits)
  local replies = {}
  for index, l in ipairs(limits) do
    replies[index] =
      named({ id = l.id, name = l.name, limit = int(l.limit), duration = int(l.duration), autoApply = l.auto and 1 })
  end
  return replies
end

-- A script that returns several records ends after this many parts (permissions, roles, limits, and each 500 bytes of metadata),
-- which take a few milliseconds.
local REPLY_PARTS_MAX = 2000

local function parts_of_meta(meta) return meta and math.floor(#meta / 500) or 0 end
