-- The states of keys and identities: everything that a verification decides on or changes, packed into one value, field
-- `state` of the record, so that a verification reads and writes one value. Display fields (name, meta, …) are fields
-- of their own, read when the server's snapshot is out of date. src/scripts/layout.ts declares the bytes, with an
-- example.
--
-- Limits are stored as: their count (1), each limit; then their windows, one after the other; then the length of each
-- window (2). The window of a temporary limit begins with LIMIT_END.

local FLAGS = KEY_FLAGS
-- The values and marks of a limit: those that are 0 or 1 are bits (BITS) of the switches in LIMIT_HEAD; others have a
-- place of their own there. The switch of a quota is set by its duration, which is a code (src/domain/quota.ts); that
-- of a limit of a plan by `of_plan`.
local limit_head = { VALUES = LIMIT_HEAD_VALUES, BITS = LIMIT_SWITCHES, PLACES = LIMIT_HEAD_PLACES }

-- Sets a field of `into` for each flag of a state, by its name; of other `bits` for each of these.
local function read_flags(flags, into, bits)
  for name, bit in pairs(bits or FLAGS) do
    into[name] = flags % (bit + bit) >= bit
  end
end

-- The reverse.
local function pack_flags(from, bits)
  local flags = 0
  for name, bit in pairs(bits or FLAGS) do
    if from[name] then flags = flags + bit end
  end
  return flags
end

-- The limits in `packed` from `position` on, up to `tail_bytes` before its end.
local function read_limits(packed, position, tail_bytes)
  local limits, count = {}, nil
  count, position = struct.unpack('>B', packed, position)
  local lengths, window_first = window_lengths(packed, count, tail_bytes)
  for index = 1, count do
    local head = { struct.unpack(LIMIT_HEAD, packed, position) }
    local switches, name_bytes = head[limit_head.PLACES.switches], head[limit_head.PLACES.nameBytes]
    local id_at = position + LIMIT_HEAD_LENGTH
    local name_at = id_at + LIMIT_ID_LENGTH
    local l = {
      id = string.sub(packed, id_at, name_at - 1),
      name = string.sub(packed, name_at, name_at + name_bytes - 1),
      window = string.sub(packed, window_first, window_first + lengths[index] - 1),
    }
    for _, value in ipairs(limit_head.VALUES) do
      local bit = limit_head.BITS[value]
      l[value] = bit and (switches % (bit + bit) >= bit and 1 or 0) or head[limit_head.PLACES[value]]
    end
    if limit_ends.is_switched(switches) then limit_ends.read(l, packed, window_first) end
    if switches >= OF_PLAN then l.of_plan = true end
    limits[index] = l
    position, window_first = name_at + name_bytes, window_first + lengths[index]
  end
  return limits
end

-- The first field of the limits from `position` to `last` that does not fit its declaration, and its position; nothing
-- if all fit. Like state_fault and identity_fault it is for inspection: the other functions of this file fail with an
-- error on such bytes.
local function limits_fault(packed, position, last)
  local count = string.byte(packed, position)
  local lengths_at, too_long, heads = last - WINDOW_BYTES_LENGTH * count + 1, nil, {}
  position = position + 1
  for index = 1, count do
    local name, next_at = string.format('limits[%d]', index - 1), position + LIMIT_HEAD_LENGTH + LIMIT_ID_LENGTH
    if next_at > lengths_at then return name, position end
    local duration = struct.unpack('>I7', packed, position + LIMIT_HEAD_DURATION_AT - 1)
    local name_bytes = struct.unpack('>I2', packed, position + LIMIT_HEAD_NAME_BYTES_AT - 1)
    if duration == 0 then return name .. '.duration', position + LIMIT_HEAD_DURATION_AT - 1 end
    local switches_at = position + LIMIT_HEAD_SWITCHES_AT - 1
    if string.byte(packed, switches_at) >= LIMIT_SWITCHES_END then return name .. '.switches', switches_at end
    heads[index] = limit_ends.is_switched(string.byte(packed, switches_at)) and LIMIT_END_LENGTH or 0
    if next_at + name_bytes > lengths_at then return name .. '.name', next_at end
    position = next_at + name_bytes
  end
  for index = 1, count do
    local bytes = struct.unpack(WINDOW_BYTES, packed, lengths_at + WINDOW_BYTES_LENGTH * (index - 1))
    if bytes < heads[index] then return string.format('limits[%d].end', index - 1), position end
    position = position + bytes
    too_long = too_long or position > lengths_at and string.format('limits[%d].windowBytes', index - 1)
  end
  if position ~= lengths_at then return too_long or 'windows', lengths_at end
end

-- Also returns whether one of them is temporary.
local function pack_limits(limits)
  local parts, count, is_temporary = { struct.pack('>B', #limits) }, #limits, false
  for index, l in ipairs(limits) do
    local head, switches = {}, (l.ends and TEMPORARY or 0) + (l.duration < QUOTA_CODES and 0 or QUOTA)
    if l.of_plan then switches = switches + OF_PLAN end
    local window = limit_ends.pack(l) .. l.window
    is_temporary = is_temporary or l.ends ~= nil
    for _, value in ipairs(limit_head.VALUES) do
      local bit = limit_head.BITS[value]
      if bit then
        switches = switches + bit * l[value]
      else
        head[limit_head.PLACES[value]] = l[value]
      end
    end
    head[limit_head.PLACES.switches], head[limit_head.PLACES.nameBytes] = switches, #l.name
    parts[index + 1] = struct.pack(LIMIT_HEAD, unpack(head)) .. l.id .. l.name
    parts[count + index + 1] = window
    parts[2 * count + index + 1] = struct.pack(WINDOW_BYTES, #window)
  end
  return table.concat(parts), is_temporary
end

-- Sets the fields of KEY_EXTENSION of a state whose flags `into` has.
local function read_extension(packed, into)
  local marks, forbidden, holds_due, balances = 0, 0, NEVER, 0
  if into.extended then
    marks, forbidden, holds_due, balances =
      struct.unpack(KEY_EXTENSION, packed, #packed - KEY_TAIL_LENGTH - KEY_EXTENSION_LENGTH + 1)
  end
  read_flags(marks, into, KEY_MARKS)
  into.forbidden, into.holds_due, into.balances = forbidden, holds_due, balances
end

-- The FORBIDDEN verifications of the hour of a state.
local function forbidden_of(packed)
  local bit = FLAGS.extended
  if string.byte(packed, KEY_FIXED_FLAGS_AT) % (bit + bit) < bit then return 0 end
  local _, forbidden, _, _ = struct.unpack(KEY_EXTENSION, packed, #packed - KEY_TAIL_LENGTH - KEY_EXTENSION_LENGTH + 1)
  return forbidden
end

-- The packed extension of a state; '' for a plain key, which has none.
local function pack_extension(s)
  local marks, forbidden, holds_due = pack_flags(s, KEY_MARKS), s.forbidden or 0, s.holds_due or NEVER
  if marks == 0 and forbidden == 0 and holds_due == NEVER then return '' end
  return struct.pack(KEY_EXTENSION, marks, forbidden, holds_due, s.balances or 0)
end

-- The state of a key as a table, for the scripts that manage keys. A verification reads only the parts that it needs.
local function read_state(packed)
  local s = {}
  local id16, api8, flags, limits_at
  id16, s.version, api8, flags, s.expires, s.refill_amount, s.refill_day = struct.unpack(KEY_FIXED, packed)
  s.id = id16 .. api8
  read_flags(flags, s)
  s.link, limits_at = struct.unpack('>I2c0', packed, KEY_LINK_AT)
  local usage_at = #packed - USAGE_LENGTH + 1
  read_extension(packed, s)
  s.limits = read_limits(packed, limits_at, KEY_TAIL_LENGTH + (s.extended and KEY_EXTENSION_LENGTH or 0))
  s.balance, s.refill_due, s.last_used = struct.unpack(KEY_LIVE, packed, usage_at - KEY_LIVE_LENGTH)
  s.usage = string.sub(packed, usage_at)
  return s
end

-- As limits_fault, of the state of a key.
local function state_fault(packed)
  if #packed < KEY_FIXED_LENGTH then return 'fixed', 1 end
  if #packed < KEY_FIXED_LENGTH + LINK_BYTES_LENGTH then return 'link', KEY_LINK_AT end
  local link_bytes, last = struct.unpack('>I2', packed, KEY_LINK_AT), #packed - KEY_TAIL_LENGTH
  local flags = {}
  read_flags(string.byte(packed, KEY_FIXED_FLAGS_AT), flags)
  if flags.extended then last = last - KEY_EXTENSION_LENGTH end
  local limits_at = KEY_LINK_AT + LINK_BYTES_LENGTH + link_bytes
  if limits_at > last or link_bytes > 0 and link_bytes < LINK_EXTERNAL_ID_AT then return 'link', KEY_LINK_AT end
  return limits_fault(packed, limits_at, last)
end

local function pack_state(s)
  local extension, limits = pack_extension(s), nil
  s.extended = extension ~= ''
  limits, s.temporary = pack_limits(s.limits)
  local flags = pack_flags(s)
  local id16, api8 = string.sub(s.id, 1, 16), string.sub(s.id, 17)
  return struct.pack(KEY_FIXED, id16, s.version, api8, flags, s.expires, s.refill_amount, s.refill_day)
    .. struct.pack('>I2c0', #s.link, s.link)
    .. limits
    .. extension
    .. struct.pack(KEY_LIVE, s.balance, s.refill_due, s.last_used)
    .. s.usage
end
