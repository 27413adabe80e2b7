-- Where ad hoc limits, which a request brings along, are counted: on the key's counter of their name and duration,
-- which is in the key's state or a record of its own. Only these functions change charge_counters.

local adhoc_limits = {}

-- The positions of the first and the last byte of the key's window with this name and duration, the number of its
-- limit, and the bytes of LIMIT_END before it; nil when the key has no such limit.
function adhoc_limits.find_window(wanted_name, wanted_duration)
  local packed, position = key_packed, key_limits_at
  local count = string.byte(packed, position)
  position = position + 1
  local lengths, window_first = window_lengths(packed, count, key_flags.tail_bytes)
  for number = 1, count do
    local _, duration, switches, name_bytes = struct.unpack(LIMIT_START, packed, position)
    local name_at = position + LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH
    position = name_at + name_bytes
    local is_window = switches % (CONCURRENCY + CONCURRENCY) < CONCURRENCY
    if is_window and duration == wanted_duration and string.sub(packed, name_at, position - 1) == wanted_name then
      local end_bytes = limit_ends.is_switched(switches) and LIMIT_END_LENGTH or 0
      return window_first + end_bytes, window_first + lengths[number] - 1, number, end_bytes
    end
    window_first = window_first + lengths[number]
  end
end

-- The counter of a limit that the key does not have: its member (name_of.window_member), and its window.
function adhoc_limits.counter_of(name, duration)
  local member = name_of.window_member(duration, name)
  return member, redis.call('GET', name_of.window_at(call_workspace, key24(), member)) or ''
end

-- Notes a charge: the bytes of the window that stay, and those after them. Returns false when the counter is new and
-- the key has the maximum of counters.
function adhoc_limits.charge(member, window, duration, kept_until, suffix)
  charge_counters = charge_counters or { left = false }
  local counters, is_new = charge_counters, window == ''
  counters[#counters + 1] = { member, string.sub(window, 1, kept_until) .. suffix, duration, is_new }
  if not is_new then return true end
  counters.left = (counters.left or counters_left(call_workspace, key24(), call_now)) - 1
  return counters.left >= 0
end

-- Before the limits of a verification are checked, if others charged counters.
function adhoc_limits.begin() charge_counters = nil end

-- Writes the charged counters of ad hoc limits, if there are any.
function adhoc_limits.write()
  if charge_counters then write_counters(call_workspace, key24(), charge_counters, call_now) end
end
