-- The limits of a key or an identity.

-- @include "include/counters"
-- @include "include/names"

-- What requests and states have for values of a limit that are 0 or 1. `window` is the type of a limit without one.
local SWITCHED = { [true] = 1, [false] = 0, window = 0, concurrency = 1 }

-- A limit {name, LIMIT_VALUES (numbers)} of one in a request or a state, some of whose values may be absent.
local function limit_of(wanted)
  local limit = { name = wanted.name }
  for _, value in ipairs(LIMIT_VALUES) do
    local given = wanted[value]
    limit[value] = SWITCHED[given] or given or 0
  end
  return limit
end

-- The duration by which the counter of a limit is found: 0 for the slots of a concurrency limit, which do not depend on
-- its duration. So a limit that gets another type begins with an empty counter.
local function counter_duration(limit) return limit.type == 1 and 0 or limit.duration end

-- The limits of a new owner, with empty windows.
local function new_limits(wanted, next_id)
  local limits = {}
  for index, w in ipairs(wanted) do
    limits[index] = limit_of(w)
    limits[index].id, limits[index].window = next_id(), ''
  end
  return limits
end

-- Limits of an owner (src/operations/schemas.ts).
local LIMITS_MAX = 50

-- Why a concurrency limit cannot have its number or duration: `slots_limit`, `slots_duration`; nil if it can.
local function slots_refusal(limit)
  if limit.type ~= 1 then return nil end
  return limit.limit > SLOTS_MAX and 'slots_limit' or limit.duration > DAY_MS and 'slots_duration' or nil
end

-- A list of a request in the place of the limits of an owner. A limit without a type keeps that of the limit with its
-- name: callers that do not know types send back what they read. Returns nil and slots_refusal.
local function with_limits(limits, wanted)
  local types = {}
  for _, l in ipairs(limits) do
    types[l.name] = l.type
  end
  for _, w in ipairs(wanted) do
    w.type = w.type or types[w.name]
    local refusal = slots_refusal(limit_of(w))
    if refusal then return nil, refusal end
  end
  return wanted
end

-- The limits of an owner as a request has them, with one change: {name, limit (null removes the limit), other
-- LIMIT_VALUES}, where the others are as before if they are absent. Returns nil and why not: if the limit is new,
-- `new_limit` without a duration, or `too_many_limits`; or slots_refusal.
local function with_limit(limits, change)
  local wanted, before = {}, nil
  for _, l in ipairs(limits) do
    if l.name == change.name then before = l end
    if l.name ~= change.name or change.limit ~= cjson.null then wanted[#wanted + 1] = limit_of(l) end
  end
  if change.limit == cjson.null then return wanted end
  if not before then
    if not change.duration then return nil, 'new_limit' end
    if #wanted >= LIMITS_MAX then return nil, 'too_many_limits' end
    wanted[#wanted + 1] = change
    return wanted
  end
  for _, w in ipairs(wanted) do
    if w.name == change.name then
      for _, value in ipairs(LIMIT_VALUES) do
        if change[value] ~= nil then w[value] = change[value] end
      end
      local refusal = slots_refusal(limit_of(w))
      if refusal then return nil, refusal end
    end
  end
  return wanted
end

-- Longest time that the counter of a removed limit is kept in case the limit is added again.
local KEPT_DURATION_MAX = 30 * DAY_MS

-- Replaces limits by name. A limit with the same name keeps its id, and with the same duration its window; a
-- concurrency limit keeps its slots with any duration. The window of a removed limit is stored in a record of its own
-- until it expires, and a limit with its name and duration uses it again. Returns the new limits (name_limits gives ids
-- to new ones), and for keep_counters {reused: members of counters that are used again, kept: counters to store, as
-- many as the owner may still create, is_cut: whether some are lost}.
local function replace_limits(workspace, owner, old, wanted, now)
  local by_name, limits, reused, kept = {}, {}, {}, {}
  for _, l in ipairs(old) do
    by_name[l.name] = l
  end
  for index, w in ipairs(wanted) do
    local before = by_name[w.name]
    local limit = limit_of(w)
    limit.id, limit.window = before and before.id, ''
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
      local kept_for = math.min(duration > 0 and duration or DAY_MS, KEPT_DURATION_MAX)
      kept[#kept + 1] = { name_of.window_member(duration, l.name), l.window, kept_for, true }
    end
  end
  local counters = { reused = reused, kept = kept, is_cut = false }
  if #kept > 0 then
    for last = #kept, math.max(0, counters_left(workspace, owner, now)) + 1, -1 do
      kept[last], counters.is_cut = nil, true
    end
  end
  return limits, counters
end

local function name_limits(limits, next_id)
  for _, l in ipairs(limits) do
    l.id = l.id or next_id()
  end
end

-- `record` is that of the owner.
local function keep_counters(workspace, owner, record, counters, now)
  -- A limit that is added again begins with an empty window, which gets nothing back from leases of the lost one.
  if counters.is_cut then redis.call('HDEL', record, 'leased') end
  for _, member in ipairs(counters.reused) do
    redis.call('UNLINK', name_of.window_at(workspace, owner, member))
    redis.call('ZREM', name_of.window_list(workspace, owner), member)
  end
  if #counters.kept > 0 then write_counters(workspace, owner, counters.kept, now) end
end
