#!lua flags=no-writes
-- Everything that Redis stores of one key, decoded, for `tollgate inspect`. It returns stored values: a refill that is
-- due is not applied. A record that cannot be decoded is returned as hex, with the first field that does not fit.
--
-- derives  key, API and identity records, window counters and their lists, logs and days of keys, the purge queue,
--          former keys
-- ARGV[1]  key_id     '' to read by digest
-- ARGV[2]  digest     SHA-256 of the key string, or ''
-- returns  {'unknown'} | {'deleted', named {keyId, hour, purge}}
--          | {'found', InspectionReply (src/records/inspection.ts), {bytes of its log, the log, bytes of its days, the
--          days}}

local workspace, key_id, digest, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])

-- Limits of what is read, so that the script takes a few milliseconds at most.
local COUNTERS_READ_MAX = 100
local HISTORY_BYTES_MAX = 512 * 1024
local HEX_BYTES_MAX = 64 * 1024

local function fault_reply(bytes, field, position)
  local hex = string.gsub(
    string.sub(bytes, 1, HEX_BYTES_MAX),
    '.',
    function(byte) return string.format('%02x', string.byte(byte)) end
  )
  return named({ field = field, position = position - 1, bytes = #bytes, hex = hex })
end

local function version_reply(version)
  local time, number = struct.unpack(VERSION, version)
  return { time, number }
end

-- The units that count now, when the first of them ends, and whether they were charged while the clock was ahead.
local function counted_in(bytes, limit, duration, has_slots)
  if has_slots then
    local ends, _, total = window_slots.read(bytes, 1, #bytes, now)
    return total, ends[1], false
  end
  local charge = quota_log.charge_of(duration)
  local counted, _, oldest = charge(bytes, 1, #bytes, now, limit, duration, 0, false)
  local is_ahead = counted == AHEAD
  if is_ahead then
    local settled = quota_log.repaired(bytes, now, duration)
    counted, _, oldest = charge(settled, 1, #settled, now, limit, duration, 0, false)
  end
  return counted, window_log.reset(oldest, duration), is_ahead
end

-- A window, and the units that count now. `limit` is nil if none is stored with the window.
local function window_reply(bytes, limit, duration, has_slots)
  if bytes == '' then return named({ bytes = 0, counted = 0, remaining = limit }) end
  local window, field, position = read_window(bytes)
  if not window then return named({ fault = fault_reply(bytes, field, position) }) end
  local counted, reset, is_ahead = counted_in(bytes, limit, duration, has_slots)
  return named({
    bytes = #bytes,
    kind = window.kind,
    base = window.base,
    step = window.step,
    ends = window.ends,
    units = window.units,
    sum = window.sum,
    counted = counted,
    remaining = limit and math.max(0, limit - counted),
    reset = counted > 0 and reset,
    ahead = is_ahead and 1,
  })
end

local function limits_reply(limits)
  local replies = {}
  for index, l in ipairs(limits) do
    replies[index] = limit_reply(l, now, { window = window_reply(l.window, l.limit, l.duration, l.type == 1) })
  end
  return replies
end

-- The counters stored next to the record of a key or identity, those that expire last first, and the number in its
-- list.
local function counters_reply(owner)
  local list, replies = name_of.window_list(workspace, owner), {}
  for _, member in ipairs(redis.call('ZRANGE', list, 0, COUNTERS_READ_MAX - 1, 'REV')) do
    local name = name_of.window_at(workspace, owner, member)
    local bytes = redis.call('GET', name)
    if bytes then
      local duration_text, limit_name = string.match(member, '^(%d+):(.*)$')
      local duration = tonumber(duration_text)
      replies[#replies + 1] = named({
        name = limit_name,
        duration = duration_text,
        expiresIn = redis.call('PTTL', name),
        window = window_reply(bytes, nil, duration, duration == 0),
      })
    end
  end
  return replies, redis.call('ZCARD', list)
end

-- The identity that a key is linked to; only its id and externalId if it was deleted.
local function identity_inspected(link)
  local id16, external_id = string.sub(link, 1, 16), external_id_of(link)
  local reply = { id = id16, externalId = external_id }
  local record = name_of.identity_record(workspace, external_id)
  local packed = redis.call('HGET', record, 'state')
  if not packed or string.sub(packed, 1, 16) ~= id16 then
    reply.deleted, reply.replaced = 1, packed and 1
    return named(reply)
  end
  reply.meta = redis.call('HGET', record, 'meta')
  reply.counters, reply.counterCount = counters_reply(id16)
  local field, position = identity_fault(packed)
  if field then
    reply.fault = fault_reply(packed, field, position)
  else
    local identity = packed_identity.read(packed)
    reply.version = version_reply(identity.version)
    reply.limits = limits_reply(identity.limits)
    if identity.has_balance then
      local stored = redis.call('HGET', record, 'credits') or ''
      if #stored == IDENTITY_BALANCE_LENGTH then
        local balance = { struct.unpack(IDENTITY_BALANCE, stored) }
        -- The last value is the position after the structure.
        balance[#balance] = nil
        reply.balance = balance
      else
        reply.fault = fault_reply(stored, 'credits', 1)
      end
    end
  end
  return named(reply)
end

local function state_reply(state)
  local usage = { struct.unpack(USAGE, state.usage) }
  -- The last value is the position after the structure.
  usage[#usage] = nil
  local flags = {}
  for name in pairs(FLAGS) do
    if state[name] then flags[#flags + 1] = name end
  end
  local reply = {
    version = version_reply(state.version),
    flags = flags,
    usage = usage,
    limits = limits_reply(state.limits),
  }
  -- Every number of the state, by its name in Lua.
  for name, value in pairs(state) do
    if type(value) == 'number' then reply[name] = value end
  end
  return named(reply)
end

-- The log and the days, each after its length; '' for one that is too long.
local function history_of(key24)
  local replies = {}
  for index, name in ipairs({ name_of.key_usage(workspace, key24), name_of.key_days(workspace, key24) }) do
    local bytes = redis.call('STRLEN', name)
    replies[2 * index - 1], replies[2 * index] = bytes, bytes <= HISTORY_BYTES_MAX and redis.call('GET', name) or ''
  end
  return replies
end

local function deleted_reply(key24)
  return {
    'deleted',
    named({
      keyId = 'key_' .. key24,
      hour = redis.call('ZSCORE', name_of.former_keys(workspace, string.sub(key24, 17)), key24),
      purge = digest and redis.call('ZSCORE', name_of.purge_queue(workspace), digest),
    }),
  }
end

if key_id ~= '' then digest = digest_of(workspace, key_id) end
local key24 = string.sub(key_id, 5)
if not digest then
  if redis.call('ZSCORE', name_of.former_keys(workspace, string.sub(key24, 17)), key24) then
    return deleted_reply(key24)
  end
  return { 'unknown' }
end
local record = name_of.key_record(workspace, digest)
local packed = redis.call('HGET', record, 'state') or ''
if packed == '' and key_id == '' then return { 'unknown' } end

local reply, stored, fields = { now = now, bytes = #packed }, {}, { KEY_RECORD_FIELDS }
for index, value in ipairs(redis.call('HMGET', record, KEY_RECORD_FIELDS)) do
  stored[fields[index]] = value
end
reply.fields = named(stored)
local field, position = state_fault(packed)
if field then
  reply.fault = fault_reply(packed, field, position)
else
  local state = read_state(packed)
  if state.deleted then return deleted_reply(state.id) end
  key24, reply.state = state.id, state_reply(state)
  if state.link ~= '' then reply.identity = identity_inspected(state.link) end
end
if key24 == '' then return { 'found', named(reply), {} } end
local api = redis.call('HMGET', name_of.api_record(workspace, string.sub(key24, 17)), 'id', 'name')
reply.keyId, reply.apiId, reply.apiName = 'key_' .. key24, api[1], api[2]
reply.counters, reply.counterCount = counters_reply(key24)
return { 'found', named(reply), history_of(key24) }
