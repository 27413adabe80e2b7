-- The limits of a key or an identity.

local limit_list = {
  -- Limits of an owner (src/operations/schemas.ts).
  MAX = 50,
  -- The values of a limit that are 0 or 1, as requests and states name them. `window` is the type of a limit without
  -- one; a quota is stored as a window whose duration is a code.
  SWITCHED = { [true] = 1, [false] = 0, window = 0, quota = 0, concurrency = 1 },
  -- Longest time that the counter of a removed limit is kept in case the limit is added again.
  KEPT_DURATION_MAX = 30 * DAY_MS,
}

-- The limits that are the owner's own: not those of its plan (include/plans).
function limit_list.own(limits)
  local own = {}
  for _, l in ipairs(limits) do
    if not l.of_plan then own[#own + 1] = l end
  end
  return own
end

-- A limit {name, LIMIT_VALUES (numbers), ends and former if it is temporary, of_plan} of one in a request or a state,
-- some of whose values may be absent. The end in a request, `until`, is set by limit_list.set_end, the duration of a
-- quota by limit_list.keep_type.
function limit_list.of(wanted)
  local limit, defaults =
    { name = wanted.name, ends = wanted.ends, former = wanted.ends and wanted.former }, LIMIT_DEFAULTS
  limit.of_plan = wanted.of_plan
  for _, value in ipairs(LIMIT_VALUES) do
    local given = wanted[value]
    limit[value] = limit_list.SWITCHED[given] or given or defaults[value]
  end
  return limit
end

-- The duration by which the counter of a limit is found: 0 for the slots of a concurrency limit, which do not depend on
-- its duration. So a limit that gets another type begins with an empty counter.
function limit_list.counter_duration(limit) return limit.type == 1 and 0 or limit.duration end

function limit_list.type_of(limit)
  return limit.type == 1 and 'concurrency' or limit.duration >= QUOTA_CODES and 'quota' or 'window'
end

-- Sets the type of a limit in a request that has none, and the duration of a quota: its code. `before` is the limit in
-- force with its name, or nil, whose type, period and anchor stay if none is given. A quota may have the length of its
-- period as its duration, as responses do. Returns nil, or why it cannot be: `quota_period`, `quota_duration`,
-- `not_quota` (one that gets another type needs a duration).
function limit_list.keep_type(wanted, before)
  local is_quota, period, anchor = before and limit_list.type_of(before) == 'quota', wanted.period, wanted.anchor
  wanted.type = wanted.type or period and 'quota' or before and limit_list.type_of(before)
  if wanted.type ~= 'quota' then
    return anchor and 'quota_period' or is_quota and not wanted.duration and 'not_quota' or nil
  end
  if not period and not is_quota then return 'quota_period' end
  local code = period and quota_periods.code(period, anchor) or before.duration
  if anchor and not period then code = quota_periods.code((quota_periods.of(code)), anchor) end
  if wanted.duration and not quota_periods.has_length(code, wanted.duration) then return 'quota_duration' end
  wanted.duration = code
end

-- Why a concurrency limit cannot have its number or duration: `slots_limit`, `slots_duration`; nil if it can.
function limit_list.slots_refusal(limit)
  if limit.type ~= 1 then return nil end
  return limit.limit > SLOTS_MAX and 'slots_limit' or limit.duration > DAY_MS and 'slots_duration' or nil
end

-- Sets the end of a limit as a request wants it, and what is in force again then. `before` is the limit in force with
-- its name, or nil. Without `until`, a limit with the same values stays temporary: callers that do not know the field
-- send back what they read. Returns nil, or why it cannot be: `ended`, `too_late`, `type_of_former`.
function limit_list.set_end(limit, wanted, before, now)
  local ends, former = wanted['until'], before
  limit.ends, limit.former = nil, nil
  if ends == cjson.null then return nil end
  if before and before.ends then
    former = before.former
    local is_same = limit.limit == before.limit and limit.duration == before.duration and limit.type == before.type
    if not ends and is_same then ends = before.ends end
  end
  if not ends then return nil end
  if wanted.keptFormer ~= nil then
    local kept = wanted.keptFormer ~= cjson.null and wanted.keptFormer or nil
    former = kept and limit_list.of(kept)
    if kept and kept.period then former.duration = quota_periods.code(kept.period, kept.anchor) end
  elseif ends <= now then
    return 'ended'
  elseif ends > now + LASTS_MAX and not (before and before.ends == ends) then
    return 'too_late'
  elseif former and limit_list.type_of(before) ~= limit_list.type_of(limit) then
    return 'type_of_former'
  end
  limit.ends = ends
  limit.former = former and limit_ends.former_of(former)
end

-- The list of a request that replaces the own limits of an owner, which are in force. A limit without a type keeps that
-- of the limit with its name, as it keeps its end. Returns nil, why not (keep_type, slots_refusal, set_end), and the
-- index in the list, from 0.
function limit_list.with_all(limits, wanted, now)
  local before, list = {}, {}
  for _, l in ipairs(limit_list.own(limits)) do
    before[l.name] = l
  end
  for index, w in ipairs(wanted) do
    local former = before[w.name]
    local refusal = limit_list.keep_type(w, former)
    if refusal then return nil, refusal, index - 1 end
    list[index] = limit_list.of(w)
    refusal = limit_list.slots_refusal(list[index]) or limit_list.set_end(list[index], w, former, now)
    if refusal then return nil, refusal, index - 1 end
  end
  return list
end

-- The own limits of an owner, which are in force, with one change: {name, limit (null removes the limit), other
-- LIMIT_VALUES, until}, where the others are as before if they are absent. Returns nil and why not: if the limit is
-- new, `new_limit` without a duration, or `too_many_limits`; or as with_all.
function limit_list.with_one(limits, change, now)
  local list, changed, before = {}, nil, nil
  for _, l in ipairs(limit_list.own(limits)) do
    local is_named = l.name == change.name
    if is_named then before = l end
    if not is_named or change.limit ~= cjson.null then list[#list + 1] = limit_list.of(l) end
    if is_named then changed = list[#list] end
  end
  if change.limit == cjson.null then return list end
  local refusal = limit_list.keep_type(change, before)
  if refusal then return nil, refusal end
  if not before then
    if not change.duration then return nil, 'new_limit' end
    if #list >= limit_list.MAX then return nil, 'too_many_limits' end
    changed = limit_list.of(change)
    list[#list + 1] = changed
  end
  for _, value in ipairs(LIMIT_VALUES) do
    local given = change[value]
    if given ~= nil then changed[value] = limit_list.SWITCHED[given] or given end
  end
  refusal = limit_list.slots_refusal(changed) or limit_list.set_end(changed, change, before, now)
  if refusal then return nil, refusal end
  return list
end

-- The limits of a new owner, with empty windows, which have no ids yet. An imported one that has ended stays until the
-- next decision, which finds the counters of the former one and of the plan. Returns nil and why not as with_all.
function limit_list.of_new(wanted, now)
  local list, refusal, index = limit_list.with_all({}, wanted, now)
  for _, l in ipairs(list or {}) do
    l.window = ''
  end
  return list, refusal, index
end

-- Replaces limits by name. `wanted` are limits as with_all returns them, and those of a plan (plans.merged), which keep
-- the ids that they have in it. A limit with the same name keeps its id, and with the same duration its window; a
-- concurrency limit keeps its slots with any duration. The window of a removed limit is stored in a record of its own
-- until it expires, and a limit with its name and duration uses it again. Returns the new limits (limit_list.name gives
-- ids to new ones), and for limit_list.keep_counters {reused: members of counters that are used again, kept: counters
-- to store, as many as the owner may still create, is_cut: whether some are lost, before and after: the limits}.
function limit_list.replace(workspace, owner, old, wanted, now)
  local counter_duration = limit_list.counter_duration
  local by_name, limits, reused, kept = {}, {}, {}, {}
  for _, l in ipairs(old) do
    by_name[l.name] = l
  end
  for index, w in ipairs(wanted) do
    local before = by_name[w.name]
    local limit = limit_list.of(w)
    limit.id, limit.window = w.of_plan and w.id or before and not before.of_plan and before.id or nil, ''
    local duration = counter_duration(limit)
    if before and counter_duration(before) == duration then
      limit.window = before.window
      by_name[w.name] = nil
    else
      local member = name_of.window_member(duration, w.name)
      limit.window = redis.call('GET', name_of.window_at(workspace, owner, member)) or ''
      if limit.window ~= '' then reused[#reused + 1] = member end
    end
    limits[index] = limit
  end
  for _, l in pairs(by_name) do
    if l.window ~= '' then
      local duration = counter_duration(l)
      local kept_for = duration > 0 and duration or DAY_MS
      -- A quota is kept until its next period ends.
      if duration < QUOTA_CODES then kept_for = math.min(kept_for, limit_list.KEPT_DURATION_MAX) end
      kept[#kept + 1] = { name_of.window_member(duration, l.name), l.window, kept_for, true }
    end
  end
  local counters = { reused = reused, kept = kept, is_cut = false, before = old, after = limits }
  if #kept > 0 then
    for last = #kept, math.max(0, counters_left(workspace, owner, now)) + 1, -1 do
      kept[last], counters.is_cut = nil, true
    end
  end
  return limits, counters
end

-- Replaces the temporary limits of an owner in the index of ends: a sorted set of all temporary limits and overrides of
-- a workspace, by their end. Every script that stores other limits of an owner, or makes an owner appear or disappear,
-- updates it. It also has limits that have ended and whose former one is not stored yet, until the sweeper removes
-- them. So readers compare what they find with the record.
function limit_list.note_ends(workspace, owner, before, after)
  local index, gone = name_of.ends(workspace), {}
  for _, l in ipairs(before) do
    if l.ends then gone[l.name] = true end
  end
  for _, l in ipairs(after) do
    if l.ends then
      redis.call('ZADD', index, int(l.ends), name_of.limit_end(owner, l.name))
      gone[l.name] = nil
    end
  end
  for name in pairs(gone) do
    redis.call('ZREM', index, name_of.limit_end(owner, name))
  end
end

-- Gives ids to limits that have none.
function limit_list.name(limits, next_id)
  for _, l in ipairs(limits) do
    l.id = l.id or next_id()
  end
end

-- Stores the counters and the ends of the limits that limit_list.replace returned. `record` is that of the owner.
function limit_list.keep_counters(workspace, owner, record, counters, now)
  -- A limit that is added again begins with an empty window, which gets nothing back from leases of the lost one.
  if counters.is_cut then redis.call('HDEL', record, 'leased') end
  for _, member in ipairs(counters.reused) do
    redis.call('UNLINK', name_of.window_at(workspace, owner, member))
    redis.call('ZREM', name_of.window_list(workspace, owner), member)
  end
  if #counters.kept > 0 then write_counters(workspace, owner, counters.kept, now) end
  limit_list.note_ends(workspace, owner, counters.before, counters.after)
end
