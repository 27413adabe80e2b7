-- Recent refusals of verifications (analytics.listRefusals): rows in one string per workspace and hour, in the order of
-- the refusals. A call with refusals appends all of its rows in one command.
--
-- A flood must neither cost much nor leave out the refusals of other keys. For each key and outcome, the first four
-- refusals of a minute have a row each, then the 8th, the 16th and so on. A row has the number of its refusals since
-- the row before it in that minute. The rows of an hour have a limit of bytes, of which a share may be used: the
-- larger, the more the row is needed, and growing during the hour, so that no storm at its beginning uses all of it.
-- Refusals without a row are in the usage counts of the hour: listRefusals computes their number.

local noted_refusals = {}

-- Ranks of rows: the first refusal of a key with this outcome in the hour, the first in the minute, and all others. The
-- share of a rank is 2^-rank of the bytes at the beginning of the hour, and twice that at its end.
local FIRST_OF_HOUR, FIRST_OF_MINUTE, FURTHER = 1, 2, 3
-- Refusals of a key and an outcome in a minute that have a row each.
local EACH_UNTIL = 4
-- Limits: keys and outcomes that are counted in a minute; workspaces whose bytes are cached; bytes of a row's tags.
local COUNTED_MAX, WORKSPACES_MAX, TAG_BYTES_MAX = 10000, 1000, 256

-- Counts of the current minute, by outcome and the name of a key's record. Redis keeps them with the library.
-- `until_noted`: refusals until the next one that should have a row. `key_refusals`: how many there were when the last
-- row was due. `unnoted`: those that got no row, because the share of the hour's bytes was used.
local until_noted, key_refusals, unnoted = {}, {}, {}
local counted_keys, minute_starts, minute_ends = 0, 0, 0
-- By workspace: the hour of its last row, and the bytes of the rows of that hour; the number of workspaces.
local rows_hour, rows_bytes, workspaces = {}, {}, 0
-- By hour: the rows of the call with this number.
local new_rows, rows_call = {}, 0

function noted_refusals.begin_minute()
  for _, outcome in ipairs(COUNTED_OUTCOMES) do
    until_noted[outcome], key_refusals[outcome], unnoted[outcome] = {}, {}, {}
  end
  counted_keys = 0
  minute_starts = call_now - call_now % 60000
  minute_ends = minute_starts + 60000
end

-- Whether a row of this rank may be added to an hour.
local function has_room_for_row(rank, hour)
  if rows_hour[call_workspace] ~= hour then
    if not rows_hour[call_workspace] then
      if workspaces == WORKSPACES_MAX then
        rows_hour, rows_bytes, workspaces = {}, {}, 0
      end
      workspaces = workspaces + 1
    end
    rows_hour[call_workspace] = hour
    rows_bytes[call_workspace] = after_charge(redis.call, 'STRLEN', name_of.refusal_rows(call_workspace, int(hour)))
      or math.huge
  end
  local passed = math.min(1, math.max(0, call_now / HOUR_MS - hour))
  return rows_bytes[call_workspace] < call_settings.refusal_bytes * (1 + passed) / 2 ^ rank
end

-- The number of refusals that a row of the key would have now; false if there is no room for one. Decides when the key
-- should have the next one. `left` is the number of refusals until then; it may be negative, because a lease reports
-- several refusals at once.
local function refusals_of_row(outcome, is_first, left)
  local before = key_refusals[outcome][key_name]
  local rank = is_first and FIRST_OF_HOUR or before and FURTHER or FIRST_OF_MINUTE
  if not before then
    if counted_keys == COUNTED_MAX then noted_refusals.begin_minute() end
    counted_keys, before = counted_keys + 1, 0
  end
  local all = before + (before < EACH_UNTIL and 1 or before) - left
  local count = all - before + (unnoted[outcome][key_name] or 0)
  key_refusals[outcome][key_name], until_noted[outcome][key_name] = all, all < EACH_UNTIL and 1 or all
  local has_row = has_room_for_row(rank, call_hour)
  unnoted[outcome][key_name] = not has_row and count or nil
  return has_row and count
end

-- The first limit that is exceeded, of the results of the last check, a window before slots: its name, limit and
-- duration, the cost of the verification, the units that are left, and whether these are slots. '', 0, 0, 0, 0 for
-- none.
function noted_refusals.exceeded_limit(requested)
  local slots
  for index = 0, charge_count - 1 do
    local at = RESULT_FIELDS * index
    local place, left = charge_results[at + RESULT_PLACE], math.max(0, charge_results[at + RESULT_LEFT])
    if charge_results[at + RESULT_EXCEEDED] == 1 then
      if place > PLACES_OF_REQUEST then
        local limit = requested[place - PLACES_OF_REQUEST]
        return limit[1], limit[3], limit[4], charge_costs[place], left
      end
      local limits = place > PLACES_OF_IDENTITY and read_limits(key_identity, IDENTITY_LIMITS_AT, 0)
        or read_limits(key_packed, key_limits_at, key_flags.tail_bytes)
      local limit = limits[place > PLACES_OF_IDENTITY and place - PLACES_OF_IDENTITY or place]
      local figures = { limit.name, limit.limit, limit.duration, charge_costs[place], left, limit.type == 1 }
      if limit.type == 0 then return unpack(figures) end
      slots = slots or figures
    end
  end
  return unpack(slots or { '', 0, 0, 0, 0 })
end

-- The first tags of a request as JSON, as many as fit; '' for none.
function noted_refusals.tags_of(request)
  local texts, bytes = {}, 1
  for _, tag in ipairs(request and request.tags or {}) do
    local text = cjson.encode(tag)
    bytes = bytes + #text + 1
    if bytes > TAG_BYTES_MAX then break end
    texts[#texts + 1] = text
  end
  return #texts > 0 and '[' .. table.concat(texts, ',') .. ']' or ''
end

-- The permission query of a request as text; '' for none. Its tokens are slugs and the numbers 1 (and) and 2 (or), in
-- postfix order. A text that is too long is cut, and has one more byte than the limit.
function noted_refusals.query_of(request)
  local texts, are_or = {}, {}
  for _, token in ipairs(request and request.query or {}) do
    if type(token) == 'string' then
      texts[#texts + 1], are_or[#texts + 1] = token, false
    else
      local right, left, is_or = texts[#texts], texts[#texts - 1], token == 2
      if not is_or and are_or[#texts] then right = '(' .. right .. ')' end
      if not is_or and are_or[#texts - 1] then left = '(' .. left .. ')' end
      texts[#texts] = nil
      texts[#texts] = string.sub(left .. (is_or and ' OR ' or ' AND ') .. right, 1, NOTED_QUERY_MAX + 1)
      are_or[#texts] = is_or
    end
  end
  return string.sub(texts[1] or '', 1, NOTED_QUERY_MAX + 1)
end

-- `cost` and `balance` are in credits; `of_identity`: the balance is that of the identity.
local function add_row(hour, count, outcome, request, external_id, at, leased, cost, balance, of_identity)
  local name, limit, duration, units, left, has_slots = '', 0, 0, 0, 0, false
  if outcome == USAGE_EXCEEDED then
    -- A debt is a balance of 0.
    units, left, limit = cost, math.max(0, balance), of_identity and 1 or 0
  elseif outcome == RATE_LIMITED and not leased then
    name, limit, duration, units, left, has_slots = noted_refusals.exceeded_limit(request and request.limits)
  end
  local tags, query = noted_refusals.tags_of(request), noted_refusals.query_of(request)
  -- A call that failed may have left rows of another workspace.
  if rows_call ~= call_number then
    new_rows, rows_call = {}, call_number
  end
  local row = struct.pack(
    NOTED_REFUSAL,
    at,
    outcome,
    leased and 1 or has_slots and 2 or 0,
    count,
    limit,
    duration,
    key24(),
    #external_id,
    external_id,
    #name,
    name,
    #tags,
    tags
  ) .. struct.pack(NOTED_MORE, units, left, #query, query)
  row = struct.pack('>I2c0', #row, row)
  new_rows[hour] = (new_rows[hour] or '') .. row
  rows_bytes[call_workspace] = rows_bytes[call_workspace] + #row
  add_work(#row / 10)
end

-- Notes `count` refusals of the key that was read last, of which the last one was at `at`. `is_first`: the key had no
-- refusal with this outcome in the hour before. `leased`: by a lease, whose exceeded limit is not known. Called before
-- the key is written.
function noted_refusals.note(count, outcome, is_first, request, external_id, at, leased, cost, balance, of_identity)
  if call_now >= minute_ends or call_now < minute_starts then noted_refusals.begin_minute() end
  local hour = leased and math.floor(at / HOUR_MS) or call_hour
  if hour ~= call_hour then
    -- A row has refusals of one hour only.
    if has_room_for_row(FIRST_OF_MINUTE, hour) then
      add_row(hour, count, outcome, request, external_id, at, leased, cost, balance, of_identity)
    end
    return
  end
  local left = (until_noted[outcome][key_name] or 1) - count
  until_noted[outcome][key_name] = left
  -- In a flood this is all that most refusals cost.
  if left > 0 then return end
  local all = refusals_of_row(outcome, is_first, left)
  if all then add_row(hour, all, outcome, request, external_id, at, leased, cost, balance, of_identity) end
end

local function append_rows(hour, rows)
  local record = name_of.refusal_rows(call_workspace, int(hour))
  local bytes = redis.call('APPEND', record, rows)
  if rows_hour[call_workspace] == hour then rows_bytes[call_workspace] = bytes end
  if bytes == #rows then redis.call('PEXPIRE', record, int((call_settings.refusal_hours + 1) * HOUR_MS)) end
end

-- Adds the rows of this call to those of their hours.
function noted_refusals.write()
  if rows_call ~= call_number then return end
  for hour, rows in pairs(new_rows) do
    after_charge(append_rows, hour, rows)
  end
  new_rows, rows_call = {}, 0
end
