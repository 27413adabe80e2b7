#!lua full=allow-oom
-- Change one field of several keys as keys/update, keys/delete and keys/restore do, and write one event for all. All
-- records are read before the first one is written, so one that cannot be read changes no key. It ends early if the
-- keys have very much.
--
-- derives  key, API, identity and plan records and their lists, lists of keys and deleted keys, window counters, the
--          indexes of starts and by expiry, refill and purge queues, usage history, lists of former keys, the audit
--          stream
-- ARGV[1]  request    JSON {keyIds (distinct), change: {enabled, expires, planId or deleted}, apiIds (of the keys that
--                     the caller may change; true for all), permanent, retentionMs, usageRetentionMs}
-- returns  {'changed', for each key up to the end its outcome (changed, unchanged, key_not_found or too_many_limits),
--          the value before as text…} | {'plan_not_found', planId}

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
-- Limit of what is changed, in units of about 5 µs. A hundred keys of a few limits cost less.
local COST_MAX = 5000
local change, none = request.change, cjson.null
local field, value = next(change)
local wanted = value ~= none and (field == 'expires' and int(value) or tostring(value)) or ''
local plan, missing_plan = plans.after(workspace, change.planId, nil)
if missing_plan then return { 'plan_not_found', missing_plan } end

local is_allowed = {}
for _, api_id in ipairs(request.apiIds ~= true and request.apiIds or {}) do
  is_allowed[api_id] = true
end

-- A key that the caller may change: its digest, record and state.
local function find(key_id, is_deleted)
  local digest = (is_deleted and deleted_digest_of or digest_of)(workspace, key_id)
  local record, state, api_id = load_key(workspace, digest, now, is_deleted)
  if record and (request.apiIds == true or is_allowed[api_id]) then return digest, record, state end
end

-- The value of the field as text, '' for none.
local function text_of(record, state)
  if field == 'planId' then return plans.named(workspace, redis.call('HGET', record, 'planId')) or '' end
  return field == 'expires' and (state.expires < NEVER and int(state.expires) or '') or tostring(state[field])
end

-- Reads for a change of another field than `deleted`. Returns a function that writes it, and the stamps that this
-- takes; nil if the key has too many limits for a plan.
local function updating(digest, record, state)
  local own, change_limits = limit_list.own((limit_ends.in_force(state.limits, now))), nil
  if change.planId then
    if plan and #own > plans.LIMITS_MAX then return nil end
    local before = redis.call('HGET', record, 'planId')
    change_limits = plans.changing(workspace, record, state, { wanted = own, plan = plan, before = before }, now)
  end
  return function(next_version, next_id)
    if change_limits then
      change_limits(next_id)
      set_key_field(record, state, 'planId', plan and plan.id)
    end
    key_update.set_use(state, change)
    state.version = next_version()
    key_update.store(workspace, digest, record, state, change, now)
  end,
    1 + #own
end

-- Read and decide. Keys that share an identity, and are deleted for ever with their holds, take a script each.
local decided, stamps, cost, takes_away = {}, 0, 0, false
for index, key_id in ipairs(request.keyIds) do
  local key, digest, record, state = { outcome = 'key_not_found', before = '' }, find(key_id)
  if not record and field == 'deleted' then
    digest, record, state = find(key_id, true)
  end
  if record then key.before = text_of(record, state) end
  if record and key.before == wanted then
    key.outcome = 'unchanged'
  elseif record then
    local ends = change.deleted or key_update.ends_use(change, state, now)
    takes_away = takes_away or ends
    -- Another expiry of a key that has expired does not keep the others from being ended.
    full_memory.may_write(ends or now >= state.expires and key_update.is_ended(change, now))
    local more = 0
    if change.deleted then
      key.write = deleting_key(workspace, digest, record, state, request, now)
    elseif field == 'deleted' then
      key.write, more = restoring_key(workspace, key_id, digest, record, state, now), 1
    else
      key.write, more = updating(digest, record, state)
      key.outcome = 'too_many_limits'
    end
    if key.write then
      key.outcome, stamps = 'changed', stamps + more
    end
    cost = cost + 20 + 5 * #state.limits
  end
  decided[index] = key
  if cost > COST_MAX or key.write and change.deleted and request.permanent then break end
end
full_memory.may_write(takes_away or stamps == 0)
local next_id, next_version, reserve = take_stamps(workspace, now, stamps, true)

-- Write.
if stamps > 0 then reserve() end
local reply, groups, changes = { 'changed' }, {}, {}
for index, key in ipairs(decided) do
  reply[#reply + 1], reply[#reply + 2] = key.outcome, key.before
  if key.write then
    key.write(next_version, next_id)
    if not groups[key.before] then
      groups[key.before] = {}
      changes[#changes + 1] = { field, key.before, wanted, true, groups[key.before] }
    end
    table.insert(groups[key.before], request.keyIds[index])
  end
end
if #changes > 0 then audit(workspace, now, actor, 'key', changes[1][5][1], changes) end
return reply
