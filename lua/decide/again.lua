-- Items that are decided more than once.

-- Returned in place of an answer: the item has to be decided again. The hold to make follows in place of the snapshot
-- (holdMaker.lua), nil for none.
local AGAIN = -1

-- Decides an item again. First its windows may be repaired, and then it is known that it takes slots.
local function decide_again(decide, position, last, root_index, hold)
  local answer, snapshot = decide(position, last, root_index, hold)
  if answer == AGAIN then
    answer, snapshot = decide(position, last, root_index, snapshot)
  end
  return answer, snapshot
end

-- Decides an item until it has an answer, for scripts besides lua/decide.lua, which saves itself the call.
local function decide_whole(decide, position, last, root_index)
  local answer, snapshot = decide(position, last, root_index)
  if answer == AGAIN then return decide_again(decide, position, last, root_index, snapshot) end
  return answer, snapshot
end
