-- Limits of a verification: finds those that apply, checks them, and charges them.
--
-- Nearly every verification passes, so its limits are checked and their charged windows are made in one pass. The
-- variables and tables here are used again for every item, because a table for each limit of each verification would be
-- most of the work. Only check_limits_and_balance, check_limits_by, check_limits, check_stored,
-- check_adhoc, check_limit, check_quota, check_slots and look_at_limits change them.

-- Whether units are charged: not when the balance is less than the cost.
local charge_allowed = true
local LACKS_UNITS = 'units'
-- Whether a limit is exceeded: LACKS_UNITS if a window has too few units, of which leases may give some back;
-- TAKES_SLOTS if none is, but slots are taken and the expiry of their hold is not known.
local charge_exceeded = false
-- The expiry of the hold that takes slots, and gives them back; false until it is known, and no slot is taken before.
-- A list that gets {limit, duration, cost, total} of each concurrency limit that is checked; false for none.
local charge_expires, charge_slots = false, false
-- Why check_limits_and_balance has no outcome (these are above 0), besides AHEAD (include/windowLog): it has an item
-- error, or a hold has to take slots.
local FAILED, TAKES_SLOTS = -2, -3
-- The fields of VERIFIED_LIMIT of each limit, one after the other.
local charge_results = {}
-- By the place of a limit (see VERIFIED_LIMIT): the new end of its window; false if nothing is charged.
local charge_suffix = {}
-- By place: the units or slots that the last check charged, or would charge.
local charge_costs = {}
-- By place: where the bytes that the window keeps end. The new end follows them.
local charge_kept_until = {}
-- By place: where the window ended before.
local charge_window_end = {}

-- Checks a limit that applies, and appends its result. `charge` is window_charge, or a function with its arguments.
-- Returns kept_until and suffix of window_charge; with the repaired window as suffix if it was charged while the clock
-- was ahead.
local function check_limit(charge, place, limit, duration, cost, bytes, first, last)
  local total, first_live, oldest, kept_until, suffix =
    charge(bytes, first, last, call_now, limit, duration, cost, charge_allowed and not charge_exceeded)
  if total == AHEAD then
    local window = string.sub(bytes, first, last)
    charge_exceeded, charge_ahead = true, math.max(charge_ahead or 0, window_log.newest(window))
    return first - 1, quota_log.repaired(window, call_now, duration)
  end
  local left, results, at = limit - total, charge_results, RESULT_FIELDS * charge_count
  charge_count = charge_count + 1
  results[at + RESULT_PLACE], charge_costs[place] = place, cost
  if left < cost then
    charge_exceeded = LACKS_UNITS
    results[at + RESULT_EXCEEDED], results[at + RESULT_LEFT] = 1, left
    results[at + RESULT_RESET] = window_log.free_at(bytes, first, total, first_live, call_now, limit, duration, cost)
  else
    results[at + RESULT_EXCEEDED], results[at + RESULT_LEFT] = 0, suffix and left - cost or left
    -- As window_log.reset, without the call: saves 0.5 % of Redis's instructions per verification (callgrind,
    -- 2026-11-22). The code of a quota is later than all times, and `oldest` the end of its period.
    local reset = oldest + duration
    if reset > WINDOW_LATEST then reset = duration < QUOTA_CODES and WINDOW_LATEST or oldest end
    results[at + RESULT_RESET] = reset
  end
  return kept_until, suffix
end

-- check_limit for a quota, which is reset at the end of its period, however much is left.
local function check_quota(charge, place, limit, duration, cost, bytes, first, last)
  if charge == window_charge then charge = quota_charge end
  return check_limit(charge, place, limit, duration, cost, bytes, first, last)
end

-- check_limit for a concurrency limit: `cost` are the slots to take.
local function check_slots(_, place, limit, duration, cost, bytes, first, last)
  local total, next_end, count = window_slots.taken(bytes, first, last, call_now)
  local remaining, results, at, slots = limit - total, charge_results, RESULT_FIELDS * charge_count, charge_slots
  charge_count = charge_count + 1
  if slots then slots[#slots + 1] = { limit = limit, duration = duration, cost = cost, total = total } end
  results[at + RESULT_PLACE], results[at + RESULT_LEFT] = place, remaining > 0 and remaining or 0
  charge_costs[place] = cost
  if remaining < cost or count >= SLOT_ENDS_MAX and cost > 0 then
    if charge_exceeded ~= LACKS_UNITS then charge_exceeded = true end
    local ends, units = window_slots.read(bytes, first, last, call_now)
    -- With too many ends, the first of them makes room.
    local free_at, number = remaining < cost and call_now + duration or ends[1], 0
    while cost <= limit and remaining < cost do
      number = number + 1
      free_at, remaining = ends[number], remaining + units[number]
    end
    results[at + RESULT_EXCEEDED], results[at + RESULT_RESET] = 1, free_at
    add_work(count / 2)
    return nil
  end
  results[at + RESULT_EXCEEDED], results[at + RESULT_RESET] = 0, next_end or call_now
  if cost == 0 or not charge_allowed or charge_exceeded then return nil end
  if not charge_expires then
    charge_exceeded = TAKES_SLOTS
    return nil
  end
  local ends, units, _, step = window_slots.read(bytes, first, last, call_now)
  if #ends == 0 then step = window_log.slice_end(0, limit, duration) end
  add_work(count)
  local window = window_slots.with(ends, units, step, slot_end(charge_expires, limit, duration), cost)
  results[at + RESULT_LEFT], results[at + RESULT_RESET] = remaining - cost, ends[1]
  return first - 1, window
end

-- The same for a temporary limit: LIMIT_END is at `first`. It has not ended, see current_limits.
local function ending(check)
  return function(charge, place, limit, duration, cost, bytes, first, last)
    return check(charge, place, limit, duration, cost, bytes, first + LIMIT_END_LENGTH, last)
  end
end
local check_ending, check_ending_quota, check_ending_slots =
  ending(check_limit), ending(check_quota), ending(check_slots)

-- The functions that check a limit, by its switches.
local checks = {}
local function check_of(switches)
  local is_ending, own = limit_ends.is_switched(switches), switches % OF_PLAN
  local is_window = own % (CONCURRENCY + CONCURRENCY) < CONCURRENCY
  local check = is_window and (is_ending and check_ending or check_limit)
    or (is_ending and check_ending_slots or check_slots)
  if own >= QUOTA then check = is_ending and check_ending_quota or check_quota end
  checks[switches] = check
  return check
end

-- The cost of a limit with this name; nil if it does not apply. `costs` are the limits in the request by name: {name,
-- cost, limit of an ad hoc limit or nil}; nil when there are none. `seen` collects the names that were used, because
-- the first limit of a name wins. An ad hoc limit replaces the key's limit of that name, but not the identity's.
local function cost_of(name, switches, is_key, costs, seen)
  if seen[name] then return nil end
  seen[name] = true
  local wanted = costs and costs[name]
  if not wanted or wanted[3] and not is_key then return switches % 2 == 1 and 1 or nil end
  return not wanted[3] and wanted[2] or nil
end

local sole_length, sole_identity_length = {}, {}
-- Checks those limits of a state that apply: those with autoApply at a cost of 1, or with `seen` those that cost_of
-- says. Returns the lengths of all windows after the charge.
local function check_stored(charge, places, packed, position, tail_bytes, costs, seen)
  local count, is_key = string.byte(packed, position), places == PLACES_OF_KEY
  position = position + 1
  charge_stored = is_key and count or charge_stored
  -- The window of a single limit is between the limit and the window's length. Reading it directly saves 4 % of Redis's
  -- instructions per verification (callgrind, 2026-11-22).
  local is_sole = count == 1
  local lengths, window_first, window_last = is_key and sole_length or sole_identity_length, nil, nil
  if count > 1 then
    lengths, window_first = window_lengths(packed, count, tail_bytes)
  end
  for number = 1, count do
    local limit, duration, switches, name_bytes = struct.unpack(LIMIT_HEAD, packed, position)
    local name_at = position + (LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH)
    position = name_at + name_bytes
    if is_sole then
      window_first, window_last = position, #packed - tail_bytes - WINDOW_BYTES_LENGTH
    else
      window_last = window_first + lengths[number] - 1
    end
    local place, cost = places + number, switches % 2
    if seen then cost = cost_of(string.sub(packed, name_at, position - 1), switches, is_key, costs, seen) end
    charge_suffix[place] = false
    if seen and cost or cost == 1 then
      local check = switches < CONCURRENCY and check_limit or checks[switches] or check_of(switches)
      local kept_until, suffix = check(charge, place, limit, duration, cost, packed, window_first, window_last)
      if suffix then
        charge_suffix[place], charge_kept_until[place], charge_window_end[place] = suffix, kept_until, window_last
        lengths[number] = kept_until - window_first + 1 + #suffix
      end
    end
    window_first = window_last + 1
  end
  return lengths
end

-- Checks an ad hoc limit {name, cost, limit, duration}. Returns false when its counter is new and the key has the
-- maximum of counters.
local function check_adhoc(charge, number, wanted)
  local name, cost, limit, duration = wanted[1], wanted[2], wanted[3], wanted[4]
  local place, check = PLACES_OF_REQUEST + number, duration < QUOTA_CODES and check_limit or check_quota
  local first, last, slot, end_bytes = adhoc_limits.find_window(name, duration)
  if slot then
    local kept_until, suffix = check(charge, place, limit, duration, cost, key_packed, first, last)
    if suffix then
      charge_suffix[slot], charge_kept_until[slot], charge_window_end[slot] = suffix, kept_until, last
      charge_lengths[slot] = end_bytes + kept_until - first + 1 + #suffix
    end
    return true
  end
  local member, window = adhoc_limits.counter_of(name, duration)
  local kept_until, suffix = check(charge, place, limit, duration, cost, window, 1, #window)
  return not suffix or adhoc_limits.charge(member, window, duration, kept_until, suffix)
end

-- Checks the limits of a verification: those with autoApply and those that the request names, the key's before the
-- identity's of the same name. `requested` is the request's list or nil. Returns an item error or nil. May be called
-- again for the same verification.
local function check_limits(charge, requested)
  local identity_packed = key_identity
  charge_count, charge_ahead = 0, false
  if charge_counters then adhoc_limits.begin() end
  local costs, seen = nil, {}
  if requested then
    costs = {}
    for _, wanted in ipairs(requested) do
      costs[wanted[1]] = wanted
    end
  end
  charge_lengths = check_stored(charge, PLACES_OF_KEY, key_packed, key_limits_at, key_flags.tail_bytes, costs, seen)
  if identity_packed then
    charge_identity_lengths =
      check_stored(charge, PLACES_OF_IDENTITY, identity_packed, IDENTITY_LIMITS_AT, 0, costs, seen)
  end
  if not requested then return nil end
  for number, wanted in ipairs(requested) do
    if wanted[3] then
      if not check_adhoc(charge, number, wanted) then return item_error('too_many_counters', wanted[1]) end
    elseif not seen[wanted[1]] then
      return item_error('limit_not_found', wanted[1])
    end
  end
end

-- Checks limits and balance of a verification that no earlier check refused. `expires` is charge_expires. Returns its
-- outcome; FAILED and an item error; AHEAD or TAKES_SLOTS.
local function check_limits_and_balance(requested, is_affordable, expires)
  charge_allowed, charge_exceeded, charge_expires, charge_slots = is_affordable, false, expires, false
  local problem
  if requested or key_identity then
    problem = check_limits(window_charge, requested)
    if problem then return FAILED, problem end
  else
    charge_count, charge_ahead = 0, false
    if charge_counters then adhoc_limits.begin() end
    charge_lengths = check_stored(window_charge, PLACES_OF_KEY, key_packed, key_limits_at, key_flags.tail_bytes)
  end
  if not charge_exceeded and is_affordable then return VALID end
  if charge_ahead then return AHEAD end
  if charge_exceeded == TAKES_SLOTS then return TAKES_SLOTS end
  -- Units that a server has leased may be returned: then a refusal would be wrong. No slot is leased.
  if charge_exceeded == LACKS_UNITS or not is_affordable then
    problem = noted_leases.recall_of_key(false)
    if problem then return FAILED, problem end
  end
  if not charge_exceeded then return USAGE_EXCEEDED end
  -- The results of limits before the exceeded one include a charge: they are computed again without it.
  if charge_count > 1 then check_limits(window_charge, requested) end
  return RATE_LIMITED
end

-- Checks the limits, and charges them if all pass, by a function with the arguments of window_charge. `slots` gets the
-- concurrency limits (charge_slots). Returns whether all pass.
local function check_limits_by(charge, requested, slots)
  charge_allowed, charge_exceeded, charge_expires, charge_slots = true, false, false, slots or false
  return not check_limits(charge, requested) and not charge_exceeded
end

-- Checks the limits without a charge, and collects `slots` as check_limits_by. Returns an item error or nil.
local function look_at_limits(requested, slots)
  charge_allowed, charge_exceeded, charge_slots = false, false, slots or false
  return check_limits(window_charge, requested)
end
