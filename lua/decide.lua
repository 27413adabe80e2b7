-- Decide a batch: verifications of keys and rate-limit checks of one workspace, each under its root key, in the order
-- given. Each item is decided, charged and counted on its own; a bad record fails its own item only.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  key, API, identity, namespace and root key records, permissions, roles, window counters, usage counts
-- ARGV[1]  retention   milliseconds for which usage counts are kept
-- ARGV[2]  tags_max    how many tags an API may count
-- ARGV[3]  digests     SHA-256 of each distinct root key of the batch, 32 bytes each
-- ARGV[4]  now_ms      '' for Redis's clock
-- ARGV[5…] items       packed; the first byte is the kind:
--   1 verify  root (1, index into digests from 1), key digest (32), cost (7), length of known version (1), known version,
--             then nothing or JSON {query, limits: [[name, cost] or [name, cost, limit, duration]], tags}
--   2 limit   root (1), number of checks (1), each: cost (7), limit (7), duration (7), namespace and identifier (each
--             length in 2, then itself). All checks pass and are charged, or none is.
-- returns  for each item a packed answer, or {packed answer, shown} where the caller's known version is out of date:
--   verify    outcome (1), 1 if the key has a balance (1), balance (7), number of limits (1), each: which (1: up to 50
--             of the key, 100 + n of the identity, 200 + n the request's n-th), exceeded (1), remaining (7), reset (7)
--   limit     outcome (1), number of checks (1), each: passed (1), limit (7), remaining (7), reset (7), length of the
--             override's id (1), itself
--   other outcomes, see OUTCOMES: the outcome byte and what the refusal is about as text
--   shown     version, key id, API id, enabled, expires or false, name, meta, slugs, role names, limits, identity
--
-- Why one script for both: what arrives in one turn of the event loop travels, and is answered, as one call.

-- @include "include/clock"
-- @include "include/names"
-- @include "include/ids"
-- @include "include/grants"
-- @include "include/calendar"
-- @include "include/state"
-- @include "include/window"
-- @include "include/permissions"
-- @include "include/overrides"
-- @include "include/usage"

local workspace, retention, tags_max, digests, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local items, FIRST_ITEM = ARGV, 5

-- Outcomes 1 to 6 are counted in a key's usage under that number.
local VALID, DISABLED, EXPIRED, INSUFFICIENT_PERMISSIONS, RATE_LIMITED, USAGE_EXCEEDED, NOT_FOUND = 1, 2, 3, 4, 5, 6, 7
local REFUSED = {
  unauthorized = 20, root_key_disabled = 21, root_key_expired = 22, insufficient_permissions = 23,
  limit_not_found = 24, namespace_not_found = 25, create_namespace = 26, failed = 30,
}
local ok_limit, ok_blocked = 10, 11

local hour = math.floor(now / HOUR_MS)
local day = day_and_month(hour)

local function refuse(reason, about) return struct.pack('>B', REFUSED[reason]) .. (about or '') end

-- What several items of a batch share is read once.
local roots, apis, namespaces, rbac_version = {}, {}, {}, nil

local function root_at(index)
  local root = roots[index]
  if not root then
    root = { may_verify = {}, may_limit = {} }
    root.status, root.grants = authenticate(workspace, string.sub(digests, index * 32 - 31, index * 32), now)
    if root.status == 'ok' and holds(root.grants, 'api', '*', 'verify_key') then root.verifies_all = true end
    if root.status == 'ok' and holds(root.grants, 'ratelimit', '*', 'limit') then root.limits_all = true end
    roots[index] = root
  end
  return root
end

-- The id of an API, or false when it was deleted.
local function api_at(api8)
  local id = apis[api8]
  if id == nil then
    id = redis.call('HGET', api_record(workspace, api8), 'id')
    apis[api8] = id
  end
  return id
end

local function may_verify(root, api8, api_id)
  if root.verifies_all then return true end
  local may = root.may_verify[api8]
  if may == nil then
    may = holds(root.grants, 'api', api_id, 'verify_key')
    root.may_verify[api8] = may
  end
  return may
end

-- Totals of this batch, by Redis key and field, written at its end.
local totals = {}
local function add_total(record, field, amount)
  local fields = totals[record]
  if not fields then
    fields = {}
    totals[record] = fields
  end
  fields[field] = (fields[field] or 0) + amount
end

-- A limit takes part: decide whether `cost` fits into its counter.
local function weigh(which, limit, duration, cost, stored)
  local total, window = window_at(stored, now, duration)
  return { which = which, limit = limit, duration = duration, cost = cost, total = total, window = window, exceeded = total + cost > limit }
end

-- Charges a limit that was weighed; answers its new counter.
local function charge(w)
  w.window = window_charged(w.window, w.total, now, w.limit, w.duration, w.cost)
  w.total = w.total + w.cost
  return w.window
end

local function reset_of(w)
  if w.exceeded then return window_free_at(w.window, w.total, now, w.limit, w.duration, w.cost) end
  return window_reset(w.window, now, w.duration)
end

-- The limits a verification takes part in: every autoApply limit and every one the request names, the key's before the
-- identity's of the same name. Answers them weighed, or nil and the name that exists nowhere.
local function select_limits(key24, limits, identity, wanted)
  local costs, names = {}, {}
  for index, item in ipairs(wanted or {}) do costs[item[1]] = index end
  local selected = {}
  local function consider(list, offset)
    for index, l in ipairs(list) do
      if not names[l.name] then
        names[l.name] = l
        local at = costs[l.name]
        local item = at and wanted[at]
        if item and item[3] == nil then
          local w = weigh(offset + index, l.limit, l.duration, item[2], l.window)
          w.from = l
          selected[#selected + 1] = w
          costs[l.name] = nil
        elseif not item and l.auto then
          local w = weigh(offset + index, l.limit, l.duration, 1, l.window)
          w.from = l
          selected[#selected + 1] = w
        end
      end
    end
  end
  consider(limits, 0)
  if identity then consider(identity.limits, 100) end
  for index, item in ipairs(wanted or {}) do
    local name, cost, limit, duration = item[1], item[2], item[3], item[4]
    if limit then
      -- For this call only, on the key's counter of that name and duration, wherever that is kept.
      local own
      for _, l in ipairs(limits) do
        if l.name == name and l.duration == duration then own = l end
      end
      local w
      if own then
        w = weigh(200 + index, limit, duration, cost, own.window)
        w.from = own
      else
        local counter = window_counter(workspace, key24, duration, name)
        w = weigh(200 + index, limit, duration, cost, redis.call('GET', counter) or '')
        w.counter = counter
      end
      selected[#selected + 1] = w
    elseif costs[name] then
      return nil, name
    end
  end
  return selected
end

-- What an answer shows beside the decision; read only when the caller does not hold this version yet.
local function shown_of(record, version, key24, api_id, enabled, expires, limits, external_id, identity)
  local cold = redis.call('HMGET', record, 'name', 'meta', 'direct', 'roles')
  local function rows(list)
    local flat = {}
    for index, l in ipairs(list) do flat[index] = { l.id, l.name, int(l.limit), int(l.duration), l.auto and 1 or 0 } end
    return flat
  end
  local roles = {}
  local numbers = numbers_in(cold[4] or '')
  if #numbers > 0 then
    for _, name in ipairs(redis.call('HMGET', role_names(workspace), unpack(numbers))) do
      if name then roles[#roles + 1] = name end
    end
  end
  local who = false
  if identity then
    who = { identity.id, external_id, redis.call('HGET', identity_record(workspace, external_id), 'meta'), rows(identity.limits) }
  end
  return { version, key24, api_id, enabled and 1 or 0, expires < NEVER and int(expires), cold[1], cold[2],
    effective_slugs(workspace, cold[3] or '', cold[4] or ''), roles, rows(limits), who }
end

local function count_tags(tags, key24, external_id, outcome, spent)
  local api8 = string.sub(key24, 17)
  local known, record = tag_names(workspace, api8), tag_usage(workspace, api8, day)
  local seen = {}
  for _, tag in ipairs(tags) do
    if not seen[tag] then
      seen[tag] = true
      -- A caller cannot fill the store with names: beyond so many tags an API counts no new ones.
      if redis.call('SISMEMBER', known, tag) == 1 or redis.call('SCARD', known) < tags_max then
        redis.call('SADD', known, tag)
        redis.call('PEXPIRE', known, int(retention))
        local field = string.format('%02d', hour % 24) .. outcome .. key24 .. struct.pack('>Bc0', #external_id, external_id) .. tag
        add_total(record, field, 1)
        if spent > 0 then add_total(record, 's' .. field, spent) end
      end
    end
  end
end

local function verify(item)
  local _, root_index, digest, cost, known, position = struct.unpack('>BBc32I7Bc0', item)
  local root = root_at(root_index)
  if root.status ~= 'ok' then return refuse(root.status) end
  if not root.verifies_all and not holds_any(root.grants, 'api', 'verify_key') then
    return refuse('insufficient_permissions', 'api.*.verify_key')
  end

  local record = key_record(workspace, digest)
  local packed = redis.call('HGET', record, 'state')
  if not packed then return struct.pack('>B', NOT_FOUND) end
  local key24, version, flags, expires, balance, amount, refill_day, due, last_used = struct.unpack(STATE_HEAD, packed)
  local api8 = string.sub(key24, 17)
  local api_id = api_at(api8)
  if has_flag(flags, DELETED) or not api_id or not may_verify(root, api8, api_id) then return struct.pack('>B', NOT_FOUND) end

  local request = position <= #item and cjson.decode(string.sub(item, position)) or {}
  local link, rest = struct.unpack('>I2c0', packed, STATE_REST)
  local limits = read_limits(packed, rest)
  local identity, identity_packed, external_id = nil, nil, ''
  if link ~= '' then
    identity_packed = redis.call('HGET', identity_record(workspace, string.sub(link, 17)), 'state')
    -- A deleted identity is gone from its keys at once; a new one of the same name is another.
    if identity_packed and string.sub(identity_packed, 1, 16) == string.sub(link, 1, 16) then
      identity, external_id = read_identity(identity_packed), string.sub(link, 17)
    end
  end

  local enabled, limited = has_flag(flags, ENABLED), has_flag(flags, LIMITED)
  if has_flag(flags, REFILLED) and now >= due then balance, due = amount, refill_after(now, refill_day) end

  -- What was counted under an identity that is gone stays with it; what follows is not its.
  local forgotten = link ~= '' and not identity
  local former_link = link
  if forgotten then link = '' end

  -- Decide, in the order of CONTRACT §6; the first hit wins.
  local outcome, selected = VALID, {}
  if not enabled then
    outcome = DISABLED
  elseif now >= expires then
    outcome = EXPIRED
  elseif request.query then
    local lists = redis.call('HMGET', record, 'direct', 'roles')
    if not permits(workspace, request.query, lists[1] or '', lists[2] or '') then outcome = INSUFFICIENT_PERMISSIONS end
  end
  if outcome == VALID then
    local missing
    selected, missing = select_limits(key24, limits, identity, request.limits)
    if missing then return refuse('limit_not_found', missing) end
    for _, w in ipairs(selected) do
      if w.exceeded then outcome = RATE_LIMITED end
    end
    if outcome == VALID and limited and balance < cost then outcome = USAGE_EXCEEDED end
  end

  -- All that is read is read before the first write, so that a broken record charges nothing.
  local shown
  local current = version
  if identity then current = current .. identity.version end
  if has_flag(flags, DIRECT) or has_flag(flags, ROLES) then
    rbac_version = rbac_version or redis.call('HGET', workspace, 'rbac') or ''
    current = current .. rbac_version
  end
  if current ~= known then
    shown = shown_of(record, current, key24, api_id, enabled, expires, limits, external_id, identity)
  end

  -- Charge, all of it or nothing.
  local spent, key_charged, identity_charged = 0, false, false
  if outcome == VALID then
    if limited then
      spent = cost
      balance = balance - cost
    end
    last_used = math.max(last_used, now)
    for _, w in ipairs(selected) do
      if w.cost > 0 then
        local window = charge(w)
        if w.from then
          w.from.window = window
          if w.which > 100 and w.which < 200 then identity_charged = true else key_charged = true end
        end
      end
    end
  end

  -- Count, in the hour this falls into.
  local usage = { struct.unpack(STATE_USAGE, packed, STATE_HEAD_BYTES + 1) }
  local rolled = usage[1] ~= hour or forgotten
  local usage_before = rolled and string.sub(packed, STATE_HEAD_BYTES + 1, STATE_REST - 1)
  if rolled then usage = { hour, 0, 0, 0, 0, 0, 0, 0 } end
  usage[outcome + 1], usage[8] = usage[outcome + 1] + 1, usage[8] + spent

  redis.call('HSET', record, 'state',
    struct.pack(STATE_HEAD, key24, version, flags, expires, balance, amount, refill_day, due, last_used)
    .. struct.pack(STATE_USAGE, unpack(usage, 1, 8))
    .. ((key_charged or forgotten) and struct.pack('>I2c0', #link, link) .. pack_limits(limits) or string.sub(packed, STATE_REST)))
  if identity_charged then
    redis.call('HSET', identity_record(workspace, external_id), 'state', pack_identity(identity))
  end
  for _, w in ipairs(selected) do
    if w.counter and outcome == VALID and w.cost > 0 then
      redis.call('SET', w.counter, w.window, 'PX', window_ttl(w.duration))
    end
  end
  if rolled then
    flush_usage(workspace, key24, external_id_of(former_link), usage_before, retention)
    note_active(workspace, key24, external_id, hour)
  end
  local record_of_day, field = api_usage(workspace, api8, day), string.format('%02d', hour % 24) .. outcome
  add_total(record_of_day, field, 1)
  if spent > 0 then add_total(record_of_day, 's' .. field, spent) end
  if request.tags then count_tags(request.tags, key24, external_id, outcome, spent) end

  local answer = { struct.pack('>BBI7B', outcome, limited and 1 or 0, balance, #selected) }
  for index, w in ipairs(selected) do
    answer[index + 1] = struct.pack('>BBI7I7', w.which, w.exceeded and 1 or 0, math.max(0, w.limit - w.total), reset_of(w))
  end
  return shown and { table.concat(answer), shown } or table.concat(answer)
end

local function namespace_at(name)
  local found = namespaces[name]
  if found == nil then
    found = find_namespace(workspace, name) or false
    namespaces[name] = found
  end
  return found
end

local function may_limit(root, id16)
  if root.limits_all then return true end
  local may = root.may_limit[id16]
  if may == nil then
    may = holds(root.grants, 'ratelimit', 'rlns_' .. id16, 'limit')
    root.may_limit[id16] = may
  end
  return may
end

local function limit(item)
  local _, root_index, count, position = struct.unpack('>BBB', item)
  local root = root_at(root_index)
  if root.status ~= 'ok' then return refuse(root.status) end
  if not root.limits_all and not holds_any(root.grants, 'ratelimit', 'limit') then
    return refuse('insufficient_permissions', 'ratelimit.*.limit')
  end

  -- Permission for all of it comes before anything is made.
  local checks, missing = {}, {}
  for index = 1, count do
    local cost, most, duration, name, identifier
    cost, most, duration, name, identifier, position = struct.unpack('>I7I7I7I2c0I2c0', item, position)
    local namespace = namespace_at(name)
    if not namespace then
      if string.sub(name, 1, 5) == 'rlns_' then return refuse('namespace_not_found', name) end
      if not root.limits_all then return refuse('insufficient_permissions', 'ratelimit.*.limit') end
      if not holds(root.grants, 'ratelimit', '*', 'create_namespace') then return refuse('create_namespace', name) end
      missing[#missing + 1] = name
    elseif not may_limit(root, namespace.id16) then
      return refuse('insufficient_permissions', 'ratelimit.*.limit or ratelimit.rlns_' .. namespace.id16 .. '.limit')
    end
    checks[index] = { cost = cost, limit = most, duration = duration, name = name, identifier = identifier }
  end
  if #missing > 0 then
    local next_id = take_stamps(workspace, now, #missing)
    for _, name in ipairs(missing) do
      if not namespaces[name] then namespaces[name] = create_namespace(workspace, name, next_id()) end
    end
  end

  -- Checks on one counter add up, so they are weighed one after the other on the same window.
  local counters, passed = {}, true
  for _, check in ipairs(checks) do
    local namespace = namespaces[check.name]
    local override = override_for(workspace, namespace, check.identifier)
    check.override = ''
    if override then check.limit, check.duration, check.override = override.limit, override.duration, override.id16 end
    check.counter = window_counter(workspace, namespace.id16, check.duration, check.identifier)
    local counter = counters[check.counter]
    if not counter then
      local total, window = window_at(redis.call('GET', check.counter) or '', now, check.duration)
      counter = { total = total, window = window, taken = 0, duration = check.duration }
      counters[check.counter] = counter
    end
    -- A limit of 0 blocks completely, a look included.
    check.fits = check.limit > 0 and counter.total + counter.taken + check.cost <= check.limit
    if check.fits then counter.taken = counter.taken + check.cost else passed = false end
  end
  if passed then
    local charged = {}
    for _, check in ipairs(checks) do
      local counter = counters[check.counter]
      if check.cost > 0 then
        counter.window = window_charged(counter.window, counter.total, now, check.limit, check.duration, check.cost)
        counter.total = counter.total + check.cost
        charged[check.counter] = counter
      end
    end
    for name, counter in pairs(charged) do redis.call('SET', name, counter.window, 'PX', window_ttl(counter.duration)) end
  end

  local answer = { struct.pack('>BB', passed and ok_limit or ok_blocked, count) }
  for index, check in ipairs(checks) do
    local counter = counters[check.counter]
    local reset
    if check.fits then
      reset = window_reset(counter.window, now, check.duration)
    else
      reset = window_free_at(counter.window, counter.total, now, check.limit, check.duration, check.cost)
    end
    answer[index + 1] = struct.pack('>BI7I7I7Bc0', check.fits and 1 or 0, check.limit, math.max(0, check.limit - counter.total),
      reset, #check.override, check.override)
    local namespace = namespaces[check.name]
    local field = string.format('%02d', hour % 24) .. (passed and 'p' or 'b')
    add_total(namespace_usage(workspace, namespace.id16, day), field, 1)
    add_total(identifier_usage(workspace, namespace.id16, day), field .. check.identifier, 1)
  end
  return table.concat(answer)
end

local answers = {}
for position = FIRST_ITEM, #items do
  local item = items[position]
  local decided, answer = pcall(string.byte(item) == 1 and verify or limit, item)
  if not decided then
    answer = refuse('failed', type(answer) == 'table' and (answer.err or 'error') or tostring(answer))
  end
  answers[#answers + 1] = answer
end

for record, fields in pairs(totals) do
  local created = false
  for field, amount in pairs(fields) do
    local total = redis.call('HINCRBY', record, field, int(amount))
    created = created or total == amount
  end
  if created then redis.call('PEXPIRE', record, int(retention + DAY_MS)) end
end
return answers
