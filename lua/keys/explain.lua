#!lua flags=no-writes
-- Explain a verification: decide it as lua/decide.lua would, with the figures of every rule, and change nothing.
--
-- derives  key, API and identity records, permissions, roles, window counters, former keys
-- ARGV[1]  key_id     '' for the key of the item
-- ARGV[2]  item       VERIFY_ITEM. With a key_id its digest is replaced.
-- ARGV[3]  view       `holder`: the item has no request, and that for all limits of the key and its identity, of which
--                     it takes nothing, is used; else ''
-- returns  {Explained of src/records/explain.ts}, then for a key that exists the answer of lua/decide.lua and the
--          snapshot of the key

local workspace, key_id, item, for_holder, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == 'holder', now_ms(ARGV[4])

begin_dry_run()
plans_of_key.forget()
-- A call that failed may have left it.
call_state.held = false

-- Whether a key with this id existed: then it is in the list of deleted keys.
local function was_deleted(id)
  local id24 = string.sub(id, 5)
  return #id24 == 24 and server.call('ZSCORE', name_of.former_keys(workspace, string.sub(id24, 17)), id24)
end

-- The limits that a verification checks, before it charges them: each a list of the fields of VERIFIED_LIMIT, then
-- limit, duration, cost, and the units that count.
local function limit_figures(requested)
  local checked, figures = {}, {}
  local function noted(text, first, last, at, limit, duration, cost)
    local charge = quota_log.charge_of(duration)
    local total, first_live, oldest = charge(text, first, last, at, limit, duration, cost, false)
    if total ~= AHEAD then
      checked[#checked + 1] = { limit = limit, duration = duration, cost = cost, total = total }
    end
    return total, first_live, oldest
  end
  check_limits_by(noted, requested, checked)
  for index, limit in ipairs(checked) do
    local at = RESULT_FIELDS * (index - 1)
    figures[index] = {
      charge_results[at + RESULT_PLACE],
      charge_results[at + RESULT_EXCEEDED],
      int(math.max(0, charge_results[at + RESULT_LEFT])),
      int(charge_results[at + RESULT_RESET]),
      int(limit.limit),
      int(limit.duration),
      int(limit.cost),
      int(limit.total),
    }
  end
  return figures
end

-- Which slugs of the query the key has: a `1` or `0` for each, in the order of the query. The decision found them,
-- unless an earlier check refused the key: half a megabyte of lists is not searched twice.
local function held_in(query)
  local held, slugs = call_state.held, {}
  if not held then held = held_slugs(workspace, query, plans_of_key.permissions()) end
  for position, token in ipairs(query) do
    if type(token) == 'string' then slugs[#slugs + 1] = held[position] and '1' or '0' end
  end
  return table.concat(slugs)
end

-- The decisions of the leases in a record that may not have ended: their number, and the leases' names.
local function leased_in(record, except)
  local recent = lease_list.recent(server.call('HGET', record, 'leased') or '', call_now)
  local decisions, names, position = 0, {}, 1
  while position <= #recent do
    local session, number, units, _
    session, number, _, _, units, _, position = struct.unpack(NOTED_LEASE, recent, position)
    local name = session .. int(number)
    names[name] = true
    decisions = decisions + (except[name] and 0 or units)
  end
  return decisions, names
end

-- The decisions that servers have charged in advance: for the key, and for other keys of its identity.
local function leased_decisions()
  local decisions, own = leased_in(key_name, {})
  if not key_identity then return decisions, 0 end
  return decisions, (leased_in(name_of.identity_record(workspace, key_external_id), own))
end

-- The credits and units that open holds of the key hold: {their number, then a step of held_units}; nil for none.
local function held_figures()
  local _, _, holds_due, balances = loaded_key.extension()
  if holds_due == NEVER then return nil end
  local open, units = held_units(key_name, balances, '', now)
  return open > 0 and { open, unpack(units) } or nil
end

-- Why read_key found no key.
local function missing_key()
  if server.call('EXISTS', key_name) == 0 then return { status = 'unknown' } end
  local status = key_flags.deleted and 'deleted' or 'api_deleted'
  return { status = status, keyId = 'key_' .. key24(), apiId = key_api.id }
end

local function figures_of(digest)
  local balance, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled then
    balance, refill_due = key_counts.refilled(digest, balance, refill_due)
  end
  local decisions, others = leased_decisions()
  local shared = key_identity and identity_credits.of_key()
  local plan_id, identity_plan_id = plans_of_key.ids()
  return {
    status = 'found',
    keyId = 'key_' .. key24(),
    apiId = key_api.id,
    created = server.call('HGET', key_name, 'created'),
    enabled = key_flags.enabled and 1,
    expires = key_expires < NEVER and int(key_expires),
    allowedIps = restriction.is_restricted() and server.call('HGET', key_name, 'allowedIps'),
    balance = key_flags.limited and int(balance),
    refillAmount = key_flags.refilled and int(key_refill_amount),
    refillDay = key_flags.refilled and key_refill_day,
    refillDue = key_flags.refilled and int(refill_due),
    drawsOn = loaded_key.has(DRAWS_MARK) and server.call('HGET', key_name, 'drawsOn'),
    shared = shared and named({
      balance = int(shared.balance),
      refillAmount = shared.refilled and int(shared.refill_amount),
      refillDay = shared.refilled and shared.refill_day,
      refillDue = shared.refilled and int(shared.refill_due),
    }),
    start = for_holder and server.call('HGET', key_name, 'start'),
    sharesBalance = for_holder and loaded_key.is_shared() and 1,
    planId = plan_id,
    identityPlanId = identity_plan_id,
    leased = decisions,
    leasedByOthers = others,
  }
end

local digest = string.sub(item, 1, 32)
if key_id ~= '' then
  digest = digest_of(workspace, key_id)
  if not digest and was_deleted(key_id) then return { named({ status = 'deleted', now = int(now) }) } end
  if not digest then return { named({ status = 'unknown', now = int(now) }) } end
end
-- An item without a head, in a batch without root keys.
local function begin_item()
  begin_only_batch(workspace, '0 0 0 0 0 0 0 0 ' .. int(now), digest .. string.sub(item, 33) .. '\0\0\0\0')
  -- The caller may read the key. Whether another root key may verify it is not the question.
  call_roots[1] = { status = 'ok', grants = '', may_verify = true, verifies_all = true }
end
begin_item()

-- Holds that have expired are settled, and limits that have ended are replaced, in memory.
if not read_current_key(digest, false) then
  local missing = missing_key()
  missing.now = int(now)
  return { named(missing) }
end
if for_holder then
  item = item .. loaded_key.request_of_all_limits()
  begin_item()
end
local _, _, _, _, _, fields = struct.unpack(VERIFY_ITEM, item)
local request = fields <= #item and read_request(item, fields, #item)
local requested = request and request.limits
local limits = limit_figures(requested)
if charge_ahead then
  repair_windows(requested)
  read_current_key(digest, false)
  limits = limit_figures(requested)
end
local explained = figures_of(digest)
explained.now, explained.limits, explained.holds = int(now), limits, held_figures()
local answer, snapshot = decide_whole(verify, 1, #item, 1)
explained.held = request and request.query and held_in(request.query)
-- An item error has no snapshot.
return { named(explained), answer, snapshot or key_snapshot.pack('') }
