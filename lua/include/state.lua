-- The state of a key: everything that a verification decides on or changes, packed into one value, field `state` of
-- the key record, so that verifying reads one value and writes one value. What is only shown (name, meta, …) lies
-- beside it in fields of its own and is read when the version has moved on.
--
--   fixed     first 16 of the id (without `key_`), version (8), last 8 of the id (and of the API's), flags, expires (or
--             NEVER), refill amount, refill day (0 daily, 1 to 31 monthly)
--   link      to an identity: '' or sixteen characters of its id, then its externalId (length in 2 before it)
--   limits    how many (1), each limit: limit, duration, autoApply, length of name, id (16), name; then their windows,
--             one after the other; then the lengths of these (2 each)
--   live      balance, refill due (0 none), last used (0 never)
--   usage     hour, six outcome counts of that hour, credits spent in it: flushed to the key's history by the next hour
--
-- What changes with every verification stands last. Redis's Lua hashes every string it makes, byte by byte, which is most
-- of what a verification costs; this way the new value is a piece of the old one, and a few bytes.

local FIXED = '>c16c8c8BI6I7B'
local FIXED_BYTES = 47
local LIVE = '>I7I6I6'
local LIVE_BYTES = 19
local USAGE = '>I4I4I4I4I4I4I4I7'
local USAGE_BYTES = 35
-- Both in one, for a verification: of the outcomes it nearly always counts the first, and takes the others as they are.
local TAIL, TAIL_BYTES = 'I7I6I6I4I4c20I7', LIVE_BYTES + USAGE_BYTES
local LIVE_USAGE = '>' .. TAIL
local LINK_AT = FIXED_BYTES + 1
-- An `expires` that does not come; 0 is a time like any other, long past.
local NEVER = 2 ^ 48 - 1
local NO_USAGE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- Flags. A key with none of DIRECT and ROLES never reads a permission; one without LIMITED has no balance; REFILLED
-- keys have an amount and a due time.
local ENABLED, LIMITED, REFILLED, DIRECT, ROLES, DELETED = 1, 2, 4, 8, 16, 32

local function has_flag(flags, flag) return flags % (flag + flag) >= flag end

-- A limit: what comes before its id and name, which deciding mostly skips.
local LIMIT, LIMIT_BYTES, LIMIT_ID_BYTES = '>I7I7BI2', 17, 16

-- How the lengths of so many windows are packed.
local lengths_formats = {}
local function lengths_format(count)
  local format = lengths_formats[count]
  if not format then
    format = '>' .. string.rep('I2', count)
    lengths_formats[count] = format
  end
  return format
end

-- The lengths of the windows of `count` limits whose windows end `tail_bytes` before the end of `packed`, and where the
-- first window and the first length stand.
local function window_lengths(packed, count, tail_bytes)
  local lengths_at = #packed - tail_bytes - 2 * count + 1
  local lengths, windows_at = { struct.unpack(lengths_format(count), packed, lengths_at) }, lengths_at
  for index = 1, count do windows_at = windows_at - lengths[index] end
  return lengths, windows_at, lengths_at
end

-- The limits that stand from `position` on, in a value of which `tail_bytes` follow them.
local function read_limits(packed, position, tail_bytes)
  local limits, count = {}, nil
  count, position = struct.unpack('>B', packed, position)
  local lengths, window_at = window_lengths(packed, count, tail_bytes)
  for index = 1, count do
    local limit, duration, auto, name_bytes = struct.unpack(LIMIT, packed, position)
    local id_at = position + LIMIT_BYTES
    local name_at = id_at + LIMIT_ID_BYTES
    limits[index] = { limit = limit, duration = duration, auto = auto == 1, id = string.sub(packed, id_at, name_at - 1),
      name = string.sub(packed, name_at, name_at + name_bytes - 1), window = string.sub(packed, window_at, window_at + lengths[index] - 1) }
    position, window_at = name_at + name_bytes, window_at + lengths[index]
  end
  return limits
end

local function pack_limits(limits)
  local parts, count = { struct.pack('>B', #limits) }, #limits
  for index, l in ipairs(limits) do
    parts[index + 1] = struct.pack(LIMIT, l.limit, l.duration, l.auto and 1 or 0, #l.name) .. l.id .. l.name
    parts[count + index + 1] = l.window
    parts[2 * count + index + 1] = struct.pack('>I2', #l.window)
  end
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
  local first16, last8, flags
  first16, s.version, last8, flags, s.expires, s.amount, s.refill_day = struct.unpack(FIXED, packed)
  s.id = first16 .. last8
  s.enabled, s.limited, s.refilled = has_flag(flags, ENABLED), has_flag(flags, LIMITED), has_flag(flags, REFILLED)
  s.direct, s.roles, s.deleted = has_flag(flags, DIRECT), has_flag(flags, ROLES), has_flag(flags, DELETED)
  local limits_at
  s.identity, limits_at = struct.unpack('>I2c0', packed, LINK_AT)
  s.limits = read_limits(packed, limits_at, TAIL_BYTES)
  s.balance, s.due, s.last_used = struct.unpack(LIVE, packed, #packed - TAIL_BYTES + 1)
  s.usage = string.sub(packed, #packed - USAGE_BYTES + 1)
  return s
end

local function pack_state(s)
  local flags = (s.enabled and ENABLED or 0) + (s.limited and LIMITED or 0) + (s.refilled and REFILLED or 0)
    + (s.direct and DIRECT or 0) + (s.roles and ROLES or 0) + (s.deleted and DELETED or 0)
  return struct.pack(FIXED, string.sub(s.id, 1, 16), s.version, string.sub(s.id, 17), flags, s.expires, s.amount, s.refill_day)
    .. struct.pack('>I2c0', #s.identity, s.identity) .. pack_limits(s.limits)
    .. struct.pack(LIVE, s.balance, s.due, s.last_used) .. s.usage
end

-- Applies a refill that has come due: the balance is set to the amount, also downwards. True when it did.
local function apply_refill(s, now)
  if not s.refilled or now < s.due then return false end
  s.balance, s.due = s.amount, refill_after(now, s.refill_day)
  return true
end

-- The state of an identity: id (16), version (8), and its limits with the windows that all its keys share.
local IDENTITY_LIMITS_AT = 25

local function read_identity(packed)
  return { id = string.sub(packed, 1, 16), version = string.sub(packed, 17, 24), limits = read_limits(packed, IDENTITY_LIMITS_AT, 0) }
end

local function pack_identity(identity) return identity.id .. identity.version .. pack_limits(identity.limits) end
