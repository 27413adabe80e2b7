-- Leases of limit checks.

local check_leases = {}

-- Charges `units` more decisions like that of the last item, and notes them with each window. False when a window has
-- too many leases, or grants are paused.
local function charge_windows(units, number)
  local noted = {}
  for index = 1, #item_checks do
    local stored = noted_leases.of_window(item_checks[index])
    local recent, count, paused_until, ended = lease_list.recent(stored, call_now)
    noted[index] = ended .. recent
    if paused_until > 0 or count >= LEASES_MAX then return false end
  end
  for index = 1, #item_checks do
    local check = item_checks[index]
    local bytes, cost, duration = check.counter.bytes, check.cost, check.duration
    local _, _, ends, kept, suffix =
      quota_log.charge_of(duration)(bytes, 1, #bytes, call_now, check.limit, duration, units * cost, true)
    bytes = string.sub(bytes, 1, kept) .. suffix
    local charged = struct.pack(LEASED_CHECK, duration < QUOTA_CODES and window_log.newest(bytes) or ends, cost)
    local entry = struct.pack(NOTED_LEASE, this_session.id, number, call_now, 0, units, #charged, charged)
    redis.call('SET', check.counter.name, bytes, 'PX', window_log.ttl(duration, call_now))
    noted_leases.write_of_window(check, noted[index] .. entry)
  end
  return true
end

-- Grants a lease of the checks of the last item. Returns its units and its term, see GRANTED. Results hold until the
-- first units expire, or the slice ends in which units are charged, or a temporary override ends, and not beyond the
-- hour, in which all decisions of a lease are counted. A check of cost 0 has no units: others would change what it
-- returns.
function check_leases.lease(outcome, _, _, root, wanted, number)
  add_work(8 * #item_checks)
  local ends = math.min(root.expires or NEVER, (call_hour + 1) * HOUR_MS)
  local room, has_passed, seen = NEVER, outcome == LIMIT_PASSED, {}
  for index = 1, #item_checks do
    local check = item_checks[index]
    local counter, limit, duration, cost = check.counter, check.limit, check.duration, check.cost
    -- Checks of the same counter add up, so the result of one depends on the others.
    if seen[counter] then return 0, 0 end
    seen[counter] = true
    -- Units that are overdue may be returned after all.
    local recent = not has_passed and lease_list.recent(noted_leases.of_window(check), call_now) or ''
    if recent ~= '' then return 0, 0 end
    if check.ends then ends = math.min(ends, check.ends) end
    if counter.total > 0 then ends = math.min(ends, window_log.reset(counter.oldest, duration)) end
    if has_passed then
      if cost == 0 then return 0, 0 end
      ends = math.min(ends, window_log.slice_end(call_now, limit, duration))
      room = math.min(room, (limit - counter.total) / cost)
    end
  end
  if not has_passed then return 0, this_session.term_until(ends, false) end
  -- A long lease if there is much room, else a short one.
  local units = math.min(wanted, math.floor(room / this_session.long_left))
  local is_long = this_session.has_long() and units >= wanted / 2
  if not is_long then units = this_session.is_hot and math.min(wanted, math.floor(room / this_session.left)) or 0 end
  local term = this_session.term_until(ends, is_long)
  if units == 0 or term == 0 or not charge_windows(units, number) then return 0, 0 end
  return units, term
end

-- Gives back the units of a window that a lease of the session did not use. Returns whether the lease was noted there.
local function return_to_window(check, number, used)
  local at, units, charged, others = lease_list.find(noted_leases.of_window(check), this_session.id, number)
  if not at then return false end
  local slice_end, cost = struct.unpack(LEASED_CHECK, charged)
  local name =
    name_of.window_at(call_workspace, check.namespace.id16, name_of.window_member(check.duration, check.identifier))
  local bytes = units > used and redis.call('GET', name)
  if bytes then
    -- A slice that no longer counts gets nothing back.
    local kept, suffix = window_returns.taken(bytes, 1, #bytes, slice_end, slice_end, (units - used) * cost)
    if suffix == '' then
      redis.call('DEL', name)
    elseif suffix then
      redis.call('SET', name, string.sub(bytes, 1, kept) .. suffix, 'PX', window_log.ttl(check.duration, call_now))
    end
  end
  noted_leases.write_of_window(check, others)
  return true
end

-- Counts the decisions of a session by leases about checks, and gives back the units of a lease that were not used.
-- `subject` is each LIMIT_CHECK, with the duration that it had: that of an override, or else of the request.
function check_leases.settle(number, count, outcome, used, used_at, subject)
  local hour, position = math.floor(used_at / HOUR_MS), 1
  local day, field = day_text(hour), hour_of_day_text(hour) .. (outcome == LIMIT_PASSED and 'p' or 'b')
  while position <= #subject do
    add_work(8)
    local _, duration, namespace_name, identifier
    _, _, duration, namespace_name, identifier, position = struct.unpack(LIMIT_CHECK, subject, position)
    local namespace = call_namespaces[namespace_name]
    if namespace == nil then
      namespace = limit_checks.cache_namespace(namespace_name, find_namespace(call_workspace, namespace_name))
    end
    if namespace and number > 0 then
      local check = { namespace = namespace, duration = duration, identifier = identifier }
      local is_returned = return_to_window(check, number, used)
      -- A session whose answer was lost does not know whether there was an override. So both are tried that may have
      -- been in force: the one with an end, which is in force at time 0, and the one after it.
      for _, at in ipairs(is_returned and {} or { 0, NEVER }) do
        local override = override_for(call_workspace, namespace, identifier, at)
        if override then
          check.duration = override.duration
          return_to_window(check, number, used)
        end
      end
    end
    if namespace and count > 0 then
      local id16 = namespace.id16
      local bounded_by = { identifiers = name_of.identifiers_counted(call_workspace, id16, day) }
      add_total(name_of.namespace_usage(call_workspace, id16, day), field, count)
      add_total(name_of.identifier_usage(call_workspace, id16, day), field .. identifier, count, bounded_by)
    end
  end
end
