-- Limit checks of namespaces. An item has one or several checks; all of them are charged, or none. Loops over them have
-- an index in place of `ipairs`, which calls a function for each: that saves 3 % of the instructions of a check
-- (callgrind, 2026-11-22).

-- Functions that leases of limit checks need, too.
local limit_checks = {}

-- Caches a namespace for this call (false if it does not exist), with the names of its usage records.
function limit_checks.cache_namespace(name, namespace)
  if namespace then
    namespace.usage = name_of.namespace_usage(call_workspace, namespace.id16, call_day)
    namespace.identifiers = name_of.identifier_usage(call_workspace, namespace.id16, call_day)
    namespace.bounded_by = { identifiers = name_of.identifiers_counted(call_workspace, namespace.id16, call_day) }
  end
  call_namespaces[name], call_state.is_filled = namespace or false, true
  return namespace
end

-- The counter of a check, from `counters` by name: {name, before (its bytes in Redis), bytes (to write), duration,
-- asked (cost of the checks so far that fit)} and, after a check, total, first_live and oldest of window_charge.
-- Nothing is read for a namespace that `is_new`.
local function counter_of(counters, namespace, check, is_new)
  local name =
    name_of.window_at(call_workspace, namespace.id16, name_of.window_member(check.duration, check.identifier))
  local counter = counters[name]
  if not counter then
    local bytes = not is_new and redis.call('GET', name) or ''
    counter = {
      name = name,
      before = bytes,
      bytes = bytes,
      duration = check.duration,
      asked = 0,
      total = 0,
      first_live = false,
      oldest = 0,
    }
    counters[name] = counter
  end
  return counter
end

-- The item error of a root key that may not check limits of a namespace; or that may not create the namespace, if there
-- is none (nil). Returns nil if it may.
local function refused_namespace(root, name, namespace)
  if not namespace then
    if string.sub(name, 1, 5) == 'rlns_' then return item_error('namespace_not_found', name) end
    if not root.limits_all then return item_error('insufficient_permissions', 'ratelimit.*.limit') end
    if not root_grants.holds(root.grants, 'ratelimit', '*', 'create_namespace') then
      return item_error('create_namespace', name)
    end
  elseif not allows(root, 'ratelimit', 'rlns_' .. namespace.id16, 'limit') then
    return item_error('insufficient_permissions', 'ratelimit.*.limit or ratelimit.rlns_' .. namespace.id16 .. '.limit')
  end
end

-- Reads `count` checks from `position` of the items on. Returns them and the distinct names of missing namespaces; or
-- nil, nil and an item error, because all checks are authorised before any namespace is created.
local function read_checks(position, count, root)
  local checks, missing = {}, {}
  for index = 1, count do
    local cost, limit, duration, namespace_name, identifier
    cost, limit, duration, namespace_name, identifier, position = struct.unpack(LIMIT_CHECK, call_items, position)
    local namespace = call_namespaces[namespace_name]
    if namespace == nil then
      namespace = limit_checks.cache_namespace(namespace_name, find_namespace(call_workspace, namespace_name))
    end
    if not namespace or not root.limits_all then
      local problem = refused_namespace(root, namespace_name, namespace)
      if problem then return nil, nil, problem end
    end
    if not namespace and not missing[namespace_name] then
      missing[namespace_name], missing[#missing + 1] = true, namespace_name
    end
    -- Created with all fields, because Lua allocates a table again when it grows. Only with a temporary override it
    -- has `ends`, too.
    checks[index] = {
      cost = cost,
      limit = limit,
      duration = duration,
      namespace = namespace,
      name = namespace_name,
      identifier = identifier,
      override = '',
      counter = false,
      fits = false,
      together = 0,
    }
  end
  return checks, missing
end

-- Reads the override and the counter of each check whose namespace exists.
local function read_counters(checks)
  local counters = {}
  for index = 1, #checks do
    local check = checks[index]
    local namespace = check.namespace
    if namespace then
      local is_parsed = namespace.wildcards
      local override = override_for(call_workspace, namespace, check.identifier, call_now)
      if namespace.wildcards then add_work(#namespace.wildcards * (is_parsed and 1 or 3)) end
      if override then
        check.limit, check.duration = override.limit, override.duration
        check.override = override.id16 .. struct.pack(OVERRIDE_DURATION, override.duration)
        check.ends = override.ends
      end
      check.counter = counter_of(counters, namespace, check, false)
    end
  end
  return counters
end

-- Creates the missing namespaces. Returns an item error when the workspace would have too many records.
local function create_missing(missing, checks, counters)
  if not has_room_for_records(call_workspace, #missing, call_settings.records_max) then
    return item_error('too_many_records', int(call_settings.records_max))
  end
  -- First reads the records that it writes: a broken one fails here.
  redis.call('HLEN', name_of.namespace_names(call_workspace))
  redis.call('ZCARD', name_of.namespace_list(call_workspace))
  local next_id = take_stamps(call_workspace, call_now, #missing)
  for _, name in ipairs(missing) do
    limit_checks.cache_namespace(name, create_namespace(call_workspace, name, next_id()))
  end
  for index = 1, #checks do
    local check = checks[index]
    if not check.namespace then
      check.namespace = call_namespaces[check.name]
      check.counter = counter_of(counters, check.namespace, check, true)
    end
  end
end

-- Checks one after the other; checks on the same counter add up. Returns whether all of them fit.
local function check_counters(checks)
  local passed = true
  for index = 1, #checks do
    local check = checks[index]
    local counter, limit, cost = check.counter, check.limit, check.cost
    local charge = check.duration < QUOTA_CODES and window_charge or quota_charge
    -- A limit of 0 blocks completely, a cost of 0 included.
    local total, _, oldest, kept, suffix =
      charge(counter.bytes, 1, #counter.bytes, call_now, limit, check.duration, cost, limit > 0)
    if total == AHEAD then
      local repaired = quota_log.repaired(counter.bytes, call_now, check.duration)
      redis.call('SET', counter.name, repaired, 'PX', window_log.ttl(check.duration, call_now))
      -- Leases give nothing back: the slice in which they were charged has moved.
      noted_leases.write_of_window(check, '')
      counter.before, counter.bytes = repaired, repaired
      total, _, oldest, kept, suffix = charge(repaired, 1, #repaired, call_now, limit, check.duration, cost, limit > 0)
    end
    check.fits = limit > 0 and total + cost <= limit
    if suffix then
      counter.bytes = string.sub(counter.bytes, 1, kept) .. suffix
      total = total + cost
    end
    check.together = counter.asked + cost
    if check.fits then counter.asked = check.together end
    counter.total, counter.oldest = total, oldest
    passed = passed and check.fits
  end
  return passed
end

-- noted_leases.recall_of for the leases of the windows of refused checks; of all checks, if they `have_passed`.
function limit_checks.recall(checks, have_passed)
  local places
  for index = 1, #checks do
    local check = checks[index]
    -- Returned units cannot help a check whose cost exceeds its limit.
    if have_passed or not check.fits and check.limit > 0 and check.together <= check.limit then
      local leases = noted_leases.of_window(check)
      if leases ~= '' then
        places = places or {}
        places[#places + 1] = {
          leases = leases,
          write = function(changed) noted_leases.write_of_window(check, changed) end,
        }
      end
    end
  end
  return places and noted_leases.recall_of(places, have_passed)
end

-- Writes the counters if all checks passed; otherwise restores their values from before the checks.
local function write_checked(counters, passed)
  for name, counter in pairs(counters) do
    local before = counter.before
    if not passed then
      counter.total, counter.first_live, counter.oldest =
        quota_log.charge_of(counter.duration)(before, 1, #before, call_now, 0, counter.duration, 0, false)
    elseif counter.bytes ~= before then
      redis.call('SET', name, counter.bytes, 'PX', window_log.ttl(counter.duration, call_now))
    end
  end
end

-- The result of a check, packed.
local function pack_check(check)
  local counter, limit = check.counter, check.limit
  local left, reset = limit - counter.total, nil
  if check.fits then
    reset = window_log.reset(counter.oldest, check.duration)
  else
    -- The cost of earlier checks on this counter has to fit as well.
    reset = window_log.free_at(
      counter.before,
      1,
      counter.total,
      counter.first_live,
      call_now,
      limit,
      check.duration,
      check.together
    )
  end
  return struct.pack(LIMITED_CHECK, check.fits and 1 or 0, limit, left, reset, #check.override, check.override)
end

-- Decides an item whose fields are at `position` of the items. Returns the packed answer.
local function ratelimit(position, _, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  if root.status ~= 'ok' or not root.limits_any then return root_error(root, 'ratelimit.*.limit') end

  local checks, missing, problem = read_checks(position + 1, string.byte(call_items, position), root)
  if problem then return problem end
  -- Everything is read before the first write.
  local counters = read_counters(checks)
  if #missing > 0 then
    problem = create_missing(missing, checks, counters)
    if problem then return problem end
  end
  local passed = check_counters(checks)
  if not passed then
    problem = limit_checks.recall(checks, false)
    if problem then return problem end
  end
  item_checks = checks
  write_checked(counters, passed)

  local answer = { struct.pack(LIMITED, passed and LIMIT_PASSED or LIMIT_BLOCKED, #checks) }
  local field = call_hour_of_day .. (passed and 'p' or 'b')
  for index = 1, #checks do
    local check = checks[index]
    local namespace = check.namespace
    answer[index + 1] = pack_check(check)
    add_total(namespace.usage, field, 1)
    add_total(namespace.identifiers, field .. check.identifier, 1, namespace.bounded_by)
  end
  return table.concat(answer)
end
