-- The ends of temporary limits.

-- Stored temporary limits: limits with `ends`, and maybe `former`, which has the values FORMER.
local limit_ends = { FORMER = FORMER_VALUES }

-- Whether the switches of a limit are those of a temporary one.
function limit_ends.is_switched(switches) return switches % (TEMPORARY + TEMPORARY) >= TEMPORARY end

-- The values of a former limit, in the order of LIMIT_END.
function limit_ends.values_of(former)
  local values = {}
  for index, value in ipairs(limit_ends.FORMER) do
    values[index] = former[value] or 0
  end
  return values
end

-- A former limit with the values of `limit`, or `into` with them.
function limit_ends.former_of(limit, into)
  local former = into or {}
  for _, value in ipairs(limit_ends.FORMER) do
    former[value] = limit[value]
  end
  return former
end

-- Sets the end and `former` of a temporary limit from LIMIT_END at a position, and removes LIMIT_END from its window.
function limit_ends.read(l, packed, position)
  local values, former = { struct.unpack(LIMIT_END, packed, position) }, {}
  l.ends, l.window = values[1], string.sub(l.window, LIMIT_END_LENGTH + 1)
  for index, value in ipairs(limit_ends.FORMER) do
    former[value] = values[index + 1]
  end
  if former.limit > 0 then l.former = former end
end

-- The beginning of a window: LIMIT_END, or '' for a permanent limit.
function limit_ends.pack(l)
  if not l.ends then return '' end
  return struct.pack(LIMIT_END, l.ends, unpack(limit_ends.values_of(l.former or {})))
end

-- Whether a limit of an identity with this state is temporary.
function limit_ends.is_flagged(identity)
  return string.byte(identity, IDENTITY_HEAD_VERSION_AT) % WITH_BALANCE >= WITH_TEMPORARY
end

-- Whether a temporary limit in `packed`, whose limits are from `position` to `tail_bytes` before its end, has ended.
function limit_ends.has_ended(packed, position, tail_bytes, now)
  local count = string.byte(packed, position)
  local lengths, window_first = window_lengths(packed, count, tail_bytes)
  position = position + 1
  for index = 1, count do
    local _, _, switches, name_bytes = struct.unpack(LIMIT_START, packed, position)
    if limit_ends.is_switched(switches) and now >= (struct.unpack(LIMIT_END, packed, window_first)) then return true end
    position = position + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH) + name_bytes
    window_first = window_first + lengths[index]
  end
  return false
end

-- The limits that are in force at a time: a limit that has ended is replaced by its former one, if any. Also returns
-- whether one has ended.
function limit_ends.in_force(limits, now)
  local list, has_ended = {}, false
  for _, l in ipairs(limits) do
    local current, former = l, l.former
    if l.ends and now >= l.ends then
      has_ended = true
      current = former and { id = l.id, name = l.name, type = l.type, window = l.window }
      if former then
        limit_ends.former_of(former, current)
        -- Another counter: it is where limit_list.replace looks for it.
        if l.type == 0 and former.duration ~= l.duration then current.window = '' end
      end
    end
    list[#list + 1] = current
  end
  return list, has_ended
end
