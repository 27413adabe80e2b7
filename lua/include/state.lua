-- The state of a key: everything that a verification decides on or changes, packed into one value, field `state` of
-- the key record, so that verifying reads one value and writes one value. What is only shown (name, meta, …) lies
-- beside it in fields of its own and is read when the version has moved on.
--
--   head      id (24: the key id without `key_`), version, flags, expires (or NEVER), balance, refill amount,
--             refill day (0 daily, 1 to 31 monthly), refill due (0 none), last used (0 never)
--   usage     hour, six outcome counts of that hour, credits spent in it: flushed to the key's history by the next hour
--   identity  '' or sixteen characters of its id, then its externalId
--   limits    each limit, duration, autoApply, id (16), name, window

local STATE_HEAD, STATE_HEAD_BYTES = '>c24c8BI6I7I7BI6I6', 66
local STATE_USAGE, STATE_USAGE_BYTES = '>I4I4I4I4I4I4I4I7', 35
local STATE_REST = STATE_HEAD_BYTES + STATE_USAGE_BYTES + 1
-- An `expires` that does not come; 0 is a time like any other, long past.
local NEVER = 2 ^ 48 - 1
local NO_USAGE = string.rep('\0', STATE_USAGE_BYTES)

-- Flags. A key with none of DIRECT and ROLES never reads a permission; one without LIMITED has no balance; REFILLED
-- keys have an amount and a due time.
local ENABLED, LIMITED, REFILLED, DIRECT, ROLES, DELETED = 1, 2, 4, 8, 16, 32

-- Head and usage together: what every verification reads and writes.
local STATE = STATE_HEAD .. string.sub(STATE_USAGE, 2)

local function has_flag(flags, flag) return flags % (flag + flag) >= flag end

local LIMIT = '>I7I7Bc16I2c0I2c0'
-- Bytes of a limit before its name, and the length of what stands before a window.
local LIMIT_FIXED_BYTES, LENGTH_BYTES = 33, 2

-- The limits that stand from `position` on, and where they end. `first` and `last` are the limit's own bytes.
local function read_limits(packed, position)
  local limits = {}
  local count
  count, position = struct.unpack('>B', packed, position)
  for index = 1, count do
    local limit, duration, auto, id, name, window, after = struct.unpack(LIMIT, packed, position)
    limits[index] = { limit = limit, duration = duration, auto = auto == 1, id = id, name = name, window = window }
    position = after
  end
  return limits, position
end

local function pack_limit(l)
  return struct.pack(LIMIT, l.limit, l.duration, l.auto and 1 or 0, l.id, #l.name, l.name, #l.window, l.window)
end

local function pack_limits(limits)
  local parts = { struct.pack('>B', #limits) }
  for index, l in ipairs(limits) do parts[index + 1] = pack_limit(l) end
  return table.concat(parts)
end

-- Limits as they are shown: {id, name, limit, duration, autoApply 0|1}.
local function limit_rows(limits)
  local rows = {}
  for index, l in ipairs(limits) do rows[index] = { l.id, l.name, int(l.limit), int(l.duration), l.auto and 1 or 0 } end
  return rows
end

-- The whole state as a table, for the scripts that manage keys. Verification reads the parts it needs itself.
local function read_state(packed)
  local s = {}
  local flags, position
  s.id, s.version, flags, s.expires, s.balance, s.amount, s.refill_day, s.due, s.last_used = struct.unpack(STATE_HEAD, packed)
  s.enabled, s.limited, s.refilled = has_flag(flags, ENABLED), has_flag(flags, LIMITED), has_flag(flags, REFILLED)
  s.direct, s.roles, s.deleted = has_flag(flags, DIRECT), has_flag(flags, ROLES), has_flag(flags, DELETED)
  s.usage = string.sub(packed, STATE_HEAD_BYTES + 1, STATE_REST - 1)
  s.identity, position = struct.unpack('>I2c0', packed, STATE_REST)
  s.limits = read_limits(packed, position)
  return s
end

local function pack_state(s)
  local flags = (s.enabled and ENABLED or 0) + (s.limited and LIMITED or 0) + (s.refilled and REFILLED or 0)
    + (s.direct and DIRECT or 0) + (s.roles and ROLES or 0) + (s.deleted and DELETED or 0)
  return struct.pack(STATE_HEAD, s.id, s.version, flags, s.expires, s.balance, s.amount, s.refill_day, s.due, s.last_used)
    .. s.usage .. struct.pack('>I2c0', #s.identity, s.identity) .. pack_limits(s.limits)
end

-- Applies a refill that has come due: the balance is set to the amount, also downwards. True when it did.
local function apply_refill(s, now)
  if not s.refilled or now < s.due then return false end
  s.balance, s.due = s.amount, refill_after(now, s.refill_day)
  return true
end

-- The state of an identity: id (16), version, and its limits with the windows that all its keys share.
local IDENTITY_HEAD, IDENTITY_HEAD_BYTES = '>c16c8', 24

local function read_identity(packed)
  local id, version = struct.unpack(IDENTITY_HEAD, packed)
  return { id = id, version = version, limits = read_limits(packed, IDENTITY_HEAD_BYTES + 1) }
end

local function pack_identity(identity)
  return struct.pack(IDENTITY_HEAD, identity.id, identity.version) .. pack_limits(identity.limits)
end
