-- The part of an export about limits besides their values: ids, and the units that long windows have counted.

-- The own limits in force of an owner, with their windows: that of a former limit of another duration is in a record.
local function limits_in_force(workspace, owner, limits, now)
  local list, has_ended = limit_ends.in_force(limits, now)
  for _, l in ipairs(has_ended and list or {}) do
    if l.window == '' and l.type == 0 then
      l.window = redis.call('GET', name_of.window_at(workspace, owner, name_of.window_member(l.duration, l.name))) or ''
    end
  end
  return limit_list.own(list)
end

-- The units that count in quotas, and in the windows of limits that last a day or longer: {index of the limit, from 1;
-- end of each slice; its units}. Shorter windows are not exported: they are soon empty. Slots are not: they belong to
-- holds.
local function used_units(limits, now)
  local used = {}
  for index, l in ipairs(limits) do
    local window = l.duration >= DAY_MS and l.type ~= 1 and l.window ~= '' and read_window(l.window)
    local ends, units = {}, {}
    for entry, slice_end in ipairs(window and window.ends or {}) do
      if window_log.reset(slice_end, l.duration) > now then
        ends[#ends + 1], units[#units + 1] = int(slice_end), int(window.units[entry])
      end
    end
    if #ends > 0 then used[#used + 1] = { index, ends, units } end
  end
  return used
end

-- The units of limits that an import stores as counters: of limits of a plan, and of limits that have ended, whose
-- counters may go on in the plan. {duration (stored), name, ends and units as in used_units}.
local function planned_units(limits, now)
  local planned, rows = {}, {}
  for _, l in ipairs(limits) do
    local has_ended = l.ends and now >= l.ends and not (l.former and l.former.duration == l.duration)
    if l.of_plan or has_ended then planned[#planned + 1] = l end
  end
  for index, used in ipairs(used_units(planned, now)) do
    local l = planned[used[1]]
    rows[index] = { int(l.duration), l.name, used[2], used[3] }
  end
  return rows
end

-- Gives new limits the ids and windows that an export has of them: `keptId` and `used`, [[end of a slice, units]…].
local function restore_limits(limits, wanted)
  for index, l in ipairs(limits) do
    local given = wanted[index]
    l.id = given.keptId or l.id
    local ends, units = {}, {}
    for entry, slice in ipairs(given.used or {}) do
      ends[entry], units[entry] = slice[1], slice[2]
    end
    local step = l.duration < QUOTA_CODES and window_log.slice_end(0, l.limit, l.duration) or HOUR_MS
    if #ends > 0 then l.window = new_window(ends, units, step) end
  end
  return limits
end
