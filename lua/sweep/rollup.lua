-- Read the next usage to roll up. For used keys also the logs of some keys that were used on a day that has ended: the
-- caller packs them as days, and passes them to sweep/rolled. So that Redis computes nothing, this is two scripts. The
-- last hour of a key that is not used any more is still in its state: it is moved to the log first.
--
-- derives  the roll-up queue and its positions, lists of used keys, logs and days of keys, API records (also
--          deleted), lists and records of keys
-- ARGV[1]  count         limit of the keys
-- ARGV[2]  bytes_max     after this many bytes no further key is read
-- ARGV[3]  retention_ms
-- returns  {} when nothing is due | {how long it has been due (ms), now, kind, id and day, see rollup_queue in
--          include/nameOf}; of used keys then: {position in the list, its length, whether the API exists, {id16, log or
--          false, days or false, …}}

local workspace, count, bytes_max, retention_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_ms(ARGV[4])

-- Read.
local queue = name_of.rollup_queue(workspace)
local due = redis.call('ZRANGE', queue, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
if not due[1] then return {} end
local late = int(now - tonumber(due[2]))
local kind, id, day = string.match(due[1], '^(.)(%w+):(%d+)$')
if kind ~= 'k' then return { late, int(now), kind, id, day } end
local api8 = id
-- A deleted API may be restored with its usage.
local is_live =
  math.min(1, redis.call('EXISTS', name_of.api_record(workspace, api8), name_of.deleted_api(workspace, api8)))
local first_hour = 24 * math.floor(now / DAY_MS)

-- The entry of an hour before today that is in the state of a key, its record, and the state without it; '' if there is
-- none.
local function former_hour(id16)
  local digest = digest_after(name_of.key_list(workspace, api8), pack_id(id16))
  local record = digest and name_of.key_record(workspace, digest)
  local packed = record and redis.call('HGET', record, 'state')
  if not packed then return '' end
  local usage = string.sub(packed, -USAGE_LENGTH)
  if usage == NO_USAGE then return '' end
  local external_id = external_id_of(struct.unpack('>I2c0', packed, KEY_LINK_AT))
  local forbidden = forbidden_of(packed)
  local entry, hour = usage_entry(external_id, usage, forbidden)
  if hour >= first_hour or entry == '' then return '' end
  if forbidden == 0 then return entry, record, string.sub(packed, 1, -USAGE_LENGTH - 1) .. NO_USAGE end
  local state = read_state(packed)
  state.usage, state.forbidden = NO_USAGE, 0
  return entry, record, pack_state(state)
end

local list = name_of.used_on_day(workspace, api8, day)
local position = tonumber(redis.call('HGET', name_of.rollup_positions(workspace), due[1]) or 0)
local keys, moved, seen, bytes = {}, {}, {}, 0
for _, id16 in ipairs(redis.call('LRANGE', list, position, position + count - 1)) do
  local log = redis.call('GET', name_of.key_usage(workspace, id16 .. api8))
  local days = redis.call('GET', name_of.key_days(workspace, id16 .. api8))
  if is_live == 1 and not seen[id16] then
    seen[id16] = true
    -- A state that cannot be read does not delay the roll-up of others.
    local is_read, entry, record, state = pcall(former_hour, id16)
    if is_read and entry ~= '' then
      log = (log or '') .. entry
      moved[#moved + 1] = { id16 = id16, entry = entry, record = record, state = state }
    end
  end
  local at = #keys
  keys[at + 1], keys[at + 2], keys[at + 3] = id16, log, days
  bytes = bytes + #(log or '') + #(days or '')
  if bytes >= bytes_max then break end
end
local length = redis.call('LLEN', list)

-- Write.
for _, of in ipairs(moved) do
  local log = name_of.key_usage(workspace, of.id16 .. api8)
  redis.call('APPEND', log, of.entry)
  redis.call('PEXPIRE', log, usage_kept_ms(retention_ms))
  redis.call('HSET', of.record, 'state', of.state)
end
return { late, int(now), kind, id, day, position, length, is_live, keys }
