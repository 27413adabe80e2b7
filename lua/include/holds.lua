-- The holds of a key: what verifications charged and callers have not settled yet. They are fields of the key's record:
--
--   holds     notes of the last settlements; the first bucket if it is the only one, or else HOLDS_SUMS and texts;
--             HOLDS_END
--   holds<n>  the buckets if there are several, from 0 on
--
-- A bucket is one HOLD after the other. The number of buckets grows with the bytes of the holds, one bucket at a time
-- (linear hashing), so that a hold is found and written in a few kilobytes, whatever their number is. With several
-- buckets the number in HOLDS_END has SUMMED added to it. Texts are the limits and identities that holds charged: a
-- hold names their place, or has them itself if they have no room. They are only added, until the key has no holds.
--
-- Before data version 7 the first bucket is always in field `holds`, and the number of buckets grows with the number of
-- holds. Such holds are brought into the form above when the next hold is added.
--
-- It takes slots of concurrency limits, which are free again when it ends, however it ends.
--
-- A hold is named by its suffix: the last part of its id, `_<id of the caller>`, or `.<number>`, here with the number
-- as five bytes. Numbers begin with the time, so that none is used again, also after Redis lost what it wrote last.

local hold_list = {
  -- States of a HOLD. What was released, at its expiry or by its caller, may be settled until it is forgotten.
  RELEASES = 0,
  CHARGES = 1,
  RELEASED = 2,
  -- Limits of the open holds of a key, and of those that were released: their number and their bytes.
  MAX = HOLDS_MAX,
  BYTES_MAX = HOLDS_BYTES_MAX,
  -- How long a released hold may be settled.
  LATE_MS = DAY_MS,
  -- Longest time from a verification to the expiry of its hold.
  EXPIRES_WITHIN = 30 * DAY_MS,
  -- The bits of a window: of the identity, in slices of a millisecond, a HELD_WIDE_WINDOW, and slots.
  OF_IDENTITY = 1,
  FINE = 2,
  WIDE = 4,
  SLOTS = 8,
  -- In the place of a list that is empty, as most are. Never changed.
  EMPTY = {},
  -- HOLDS_END of a key that never had a hold: the next one has number 1, in one bucket.
  NO_HOLDS = '\0\0\0\0\0\1\0\0\0\0\0\1\0\0\0\0\0\0',
  -- Formats of field `holds` with another end, by the number of bytes that it keeps.
  added_formats = { made = 0 },
  window_formats = { made = 0 },
  settled_formats = { made = 0 },
}
-- The parts of what is packed next. Used again, because a table for each hold would be much of its cost.
local hold_pieces = {}
-- How long the number of the last hold is kept: longer than the settlements whose holds it numbered.
local NUMBER_KEPT_MS = 3 * HOUR_MS
-- With this many holds or fewer, each look at a key finds the expired ones.
local ALL_EXAMINED = 256

-- The work of reading holds and settlements since it was asked for, in units of about a microsecond (decide/call): with
-- 10,000 settlements a search reads a megabyte.
local noted_bytes = 0
function hold_list.work()
  local bytes = noted_bytes
  noted_bytes = 0
  return bytes / 400
end
function hold_list.note_bytes(text)
  noted_bytes = noted_bytes + #text
  return text
end

-- Numbers are milliseconds since 2026.
local NUMBERS_SINCE = 1767225600000

-- The number of a new hold. `next` is the one after that of the last hold.
function hold_list.next_number(next, now)
  local number = now - NUMBERS_SINCE
  if next > number then number = next end
  return number % 2 ^ 40
end

-- The suffix of a new hold, which moves on the number of the next one.
function hold_list.next_suffix(h, now)
  local number = hold_list.next_number(h.next, now)
  h.next = number + 1
  return struct.pack(HOLD_NUMBER, 46, number)
end

-- The holds of a record whose field `holds` is `stored`: {record, next (number of the next hold), open and count (open
-- holds, and all), is_summed (it has HOLDS_SUMS: then open_bytes and bytes are of open holds, and of all), texts,
-- buckets, noted_hour, notes (of settlements in that hour), part (the bucket in field `holds`), parts (others), changed
-- (those of them that are to be written)}. The table is used again for the next key, as one for each key would
-- cost as much as a command.
local current_holds = {
  record = '',
  next = 1,
  open = 0,
  count = 0,
  is_summed = false,
  open_bytes = 0,
  bytes = 0,
  texts = '',
  buckets = 1,
  part = '',
  parts = nil,
  changed = nil,
}
function hold_list.of(record, stored)
  local h = current_holds
  h.record, h.parts, h.changed, h.texts = record, nil, nil, ''
  stored = stored and hold_list.note_bytes(stored) or hold_list.NO_HOLDS
  local end_at, noted = #stored - (HOLDS_END_LENGTH - 1), nil
  h.next, h.open, h.count, h.buckets, noted, h.noted_hour = struct.unpack(HOLDS_END, stored, end_at)
  h.notes, h.part = string.sub(stored, 1, noted), string.sub(stored, noted + 1, end_at - 1)
  h.is_summed = h.buckets >= SUMMED
  if h.is_summed then
    h.buckets = h.buckets - SUMMED
    h.open_bytes, h.bytes = struct.unpack(HOLDS_SUMS, h.part)
    h.texts = string.sub(h.part, HOLDS_SUMS_LENGTH + 1)
  end
  return h
end

function hold_list.read(record) return hold_list.of(record, redis.call('HGET', record, 'holds')) end

local function part_of(h, bucket)
  if bucket == 0 and not h.is_summed then return h.part end
  local parts = h.parts or {}
  h.parts = parts
  local part = parts[bucket] or hold_list.note_bytes(redis.call('HGET', h.record, 'holds' .. bucket) or '')
  parts[bucket] = part
  return part
end

-- A bucket in field `holds` is always written.
local function change_part(h, bucket, part)
  if bucket == 0 and not h.is_summed then
    h.part = part
    return
  end
  h.parts, h.changed = h.parts or {}, h.changed or {}
  h.parts[bucket], h.changed[bucket] = part, true
end

-- The bucket of a hold, of `buckets`.
local function bucket_of(buckets, suffix)
  if buckets == 1 then return 0 end
  local hash
  if string.byte(suffix) == 46 then
    -- The high bits of a product, as holds may be made at multiples of a second.
    hash = math.floor(struct.unpack('>I5', suffix, 2) % 2 ^ 20 * 2654435761 % 2 ^ 32 / 2 ^ 12)
  else
    hash = tonumber(string.sub(redis.sha1hex(suffix), 1, 12), 16)
  end
  local level = 1
  while level * 2 <= buckets do
    level = level * 2
  end
  local bucket = hash % (level * 2)
  return bucket < buckets and bucket or bucket - level
end

-- Calls `visit(suffix, first, last)` for each hold of a bucket, until it returns true.
local function each_in(part, visit)
  local position = 1
  while position <= #part do
    local bytes = struct.unpack(HOLD_BYTES, part, position)
    local last = position + bytes + 1
    local suffix = struct.unpack('>Bc0', part, position + HOLD_SUFFIX_AT - 1)
    if visit(suffix, position, last) then return end
    position = last + 1
  end
end

-- What a hold charged to a window, or took as slots (with `slot_end`): {duration, cost, name, of_identity, is_fine,
-- settled (units that a settlement charges)}, and the position after it. All fields are made at once, because Lua
-- allocates a table again when it grows.
local function read_held_window(texts, part, position)
  local bits, duration, cost, name, _ = string.byte(part, position), nil, nil, nil, nil
  if bits >= KNOWN / 256 then
    local place
    place, cost, position = struct.unpack(HELD_KNOWN_WINDOW, part, position)
    bits, duration, _, name = struct.unpack(HELD_WINDOW, texts, place - KNOWN)
    if bits >= hold_list.SLOTS then
      duration, position = struct.unpack(HELD_SLOT_END, part, position)
    end
  elseif bits % hold_list.SLOTS < hold_list.WIDE then
    bits, duration, cost, name, position = struct.unpack(HELD_WINDOW, part, position)
  else
    bits, duration, cost, name, position = struct.unpack(HELD_WIDE_WINDOW, part, position)
  end
  local slot_end = bits >= hold_list.SLOTS and duration or nil
  local of_identity, is_fine = bits % 2 == 1, bits % 4 >= hold_list.FINE
  local w = { duration = duration, cost = cost, name = name, of_identity = of_identity, is_fine = is_fine, settled = 0 }
  w.slot_end = slot_end
  return w, position
end

-- What follows the windows of a hold, see HOLD.
local function read_more(texts, more)
  if more == '' then return nil end
  if string.byte(more) == JSON_BEGIN then return cjson.decode(more) end
  local place = struct.unpack(HELD_PLACE, more)
  local json = struct.unpack(HELD_IDENTITY, texts, place)
  return cjson.decode(json .. string.sub(more, HELD_PLACE_LENGTH + 1))
end

-- The hold at `first` in a bucket: {state, at, ttl, due, cost, balance, suffix, windows, slots, more}, in `into` if
-- that is given. Also returns where it ends.
function hold_list.unpack(h, part, first, into)
  local bytes, state, at, ttl, cost, balance, suffix, windows, position = struct.unpack(HOLD, part, first)
  local hold, last = into or {}, first + bytes + 1
  hold.state, hold.at, hold.ttl, hold.due = state, at, ttl, at + ttl
  hold.cost, hold.balance, hold.suffix = cost, balance, suffix
  hold.windows, hold.slots = hold_list.EMPTY, hold_list.EMPTY
  for _ = 1, windows do
    local w
    w, position = read_held_window(h.texts, part, position)
    local kind = w.slot_end and 'slots' or 'windows'
    local list = hold[kind]
    if list == hold_list.EMPTY then
      hold[kind] = { w }
    else
      list[#list + 1] = w
    end
  end
  hold.more = read_more(h.texts, string.sub(part, position, last))
  return hold, last
end

-- The place of a packed text among those of the key, to which it is added; nil if it has no room. What is found in the
-- middle of other texts is read as well. `h` is false for none.
local function place_of(h, text)
  if not (h and h.is_summed) then return nil end
  local place = string.find(h.texts, text, 1, true)
  if not place and #h.texts + #text <= HELD_TEXTS_BYTES then
    place, h.texts = #h.texts + 1, h.texts .. text
  end
  return place
end

-- Packs what a hold charged to a window, or the slots that it takes until `duration`.
function hold_list.pack_window(h, bits, duration, cost, name)
  if cost >= 2 ^ 32 then return struct.pack(HELD_WIDE_WINDOW, bits + hold_list.WIDE, duration, cost, #name, name) end
  local has_slots = bits >= hold_list.SLOTS
  local place = h and place_of(h, struct.pack(HELD_WINDOW, bits, has_slots and 0 or duration, 0, #name, name))
  if not place then return struct.pack(HELD_WINDOW, bits, duration, cost, #name, name) end
  local packed = struct.pack(HELD_KNOWN_WINDOW, KNOWN + place, cost)
  return has_slots and packed .. struct.pack(HELD_SLOT_END, duration) or packed
end

-- Packs what only some holds have, see HOLD.
function hold_list.pack_more(h, more)
  if not more then return '' end
  local rest = cjson.encode({ number = more.number, alone = more.alone, tags = more.tags, shape = more.shape })
  if not more.identity then return rest end
  local identity = '{"identity":"' .. more.identity .. '","externalId":' .. cjson.encode(more.externalId)
  local place = place_of(h, struct.pack(HELD_IDENTITY, #identity, identity))
  rest = rest == '{}' and '}' or ',' .. string.sub(rest, 2)
  return (place and struct.pack(HELD_PLACE, place) or identity) .. rest
end

local HOLD_AND_REST = HOLD .. 'c0'
-- Packs a hold with `windows` packed windows and `more`, which are in `rest`.
function hold_list.pack(state, at, ttl, cost, balance, suffix, windows, rest)
  -- Of what follows `bytes`.
  local bytes = HOLD_LENGTH + #suffix + #rest
  return struct.pack(HOLD_AND_REST, bytes, state, at, ttl, cost, balance, #suffix, suffix, windows, rest)
end

-- Packs a hold that was unpacked, and may have been changed.
local function pack_hold(h, hold)
  local count, windows, slots = 0, hold.windows, hold.slots
  for index = 1, #windows do
    local w = windows[index]
    local bits = (w.of_identity and hold_list.OF_IDENTITY or 0) + (w.is_fine and hold_list.FINE or 0)
    count = count + 1
    hold_pieces[count] = hold_list.pack_window(h, bits, w.duration, w.cost, w.name)
  end
  for index = 1, #slots do
    local slot = slots[index]
    count = count + 1
    local bits = hold_list.SLOTS + (slot.of_identity and hold_list.OF_IDENTITY or 0)
    hold_pieces[count] = hold_list.pack_window(h, bits, slot.slot_end, slot.cost, slot.name)
  end
  local rest = table.concat(hold_pieces, '', 1, count) .. hold_list.pack_more(h, hold.more)
  return hold_list.pack(hold.state, hold.at, hold.ttl, hold.cost, hold.balance, hold.suffix, count, rest)
end

-- The position of the hold with this suffix in holds that begin at `first`; nil if it is not there. A search for bytes
-- takes a part of the time of unpacking all suffixes. What it finds may be in another field, or in a longer suffix: so
-- holds are passed by their lengths up to there.
function hold_list.place_in(part, suffix, first)
  local found = string.find(part, suffix, first, true)
  while found do
    local wanted = found - HOLD_SUFFIX_AT
    while first < wanted do
      first = first + struct.unpack(HOLD_BYTES, part, first) + 2
    end
    if first == wanted and string.byte(part, found - 1) == #suffix then return first end
    found = string.find(part, suffix, found + 1, true)
  end
end

-- The hold with this suffix, as hold_list.unpack returns it, with its place; nil if there is none. The table is used
-- again by the next call.
local found_hold = {}
function hold_list.find(h, suffix)
  local bucket = bucket_of(h.buckets, suffix)
  local part = part_of(h, bucket)
  local first = hold_list.place_in(part, suffix, 1)
  if not first then return nil end
  local hold, last = hold_list.unpack(h, part, first, found_hold)
  hold.bucket, hold.first, hold.last = bucket, first, last
  return hold
end

-- Calls `visit(hold)` for each hold of the buckets from `bucket` down to 0, until it has read STEP_BYTES. Returns the
-- bucket to continue with; nil after the last one.
function hold_list.each(h, bucket, visit)
  local read = 0
  while bucket >= 0 and read < STEP_BYTES do
    local part = part_of(h, bucket)
    each_in(part, function(_, first) visit((hold_list.unpack(h, part, first))) end)
    read, bucket = read + #part + 16, bucket - 1
  end
  return bucket >= 0 and bucket or nil
end

-- Moves holds of one bucket to a new one.
local function split(h)
  local level = 1
  while level * 2 <= h.buckets do
    level = level * 2
  end
  local old, new = h.buckets - level, h.buckets
  local part, kept, moved = part_of(h, old), {}, {}
  h.buckets = h.buckets + 1
  each_in(part, function(suffix, first, last)
    local to = bucket_of(h.buckets, suffix) == old and kept or moved
    to[#to + 1] = string.sub(part, first, last)
  end)
  change_part(h, old, table.concat(kept))
  change_part(h, new, table.concat(moved))
end

-- Calls `visit(state, due, first, last, part)` for each hold of a bucket, without unpacking it.
local function each_due_in(part, visit)
  local position, length = 1, #part
  while position <= length do
    local bytes, state, at, ttl = struct.unpack(HOLD_DUE, part, position)
    local last = position + bytes + 1
    visit(state, at + ttl, position, last, part)
    position = last + 1
  end
end

-- As each_due_in, for each hold of the key.
function hold_list.each_due(h, visit)
  for bucket = 0, h.buckets - 1 do
    each_due_in(part_of(h, bucket), visit)
  end
end

-- Adds up the bytes of holds in several buckets, or in one that is large, so that they are in the form of data version
-- 7 from now on.
function hold_list.sum_up(h)
  if h.is_summed or h.buckets == 1 and #h.part <= BUCKET_BYTES then return end
  local open_bytes, bytes = 0, 0
  hold_list.each_due(h, function(state, _, first, last)
    bytes = bytes + last - first + 1
    if state ~= hold_list.RELEASED then open_bytes = open_bytes + last - first + 1 end
  end)
  h.is_summed, h.open_bytes, h.bytes = true, open_bytes, bytes
  change_part(h, 0, h.part)
end

-- Counts the bytes of a hold that is added, or (below 0) taken out.
local function count_bytes(h, state, bytes)
  h.bytes = h.bytes + bytes
  if state ~= hold_list.RELEASED then h.open_bytes = h.open_bytes + bytes end
end

-- Whether no further hold can be made.
function hold_list.is_full(h) return h.open >= hold_list.MAX or h.is_summed and h.open_bytes >= hold_list.BYTES_MAX end

-- Adds a hold that was packed: an open one, or one that was released.
function hold_list.add(h, suffix, packed, is_released)
  h.count = h.count + 1
  if not is_released then h.open = h.open + 1 end
  count_bytes(h, is_released and hold_list.RELEASED or hold_list.CHARGES, #packed)
  local is_due = h.bytes > BUCKET_BYTES * h.buckets
  if not h.is_summed then is_due = h.count > BUCKET_HOLDS * h.buckets end
  if is_due then split(h) end
  local bucket = bucket_of(h.buckets, suffix)
  change_part(h, bucket, part_of(h, bucket) .. packed)
end

-- Keeps a hold that was given back and taken out, so that it may be settled. Returns when it is forgotten; NEVER when
-- there are too many. Slots stay free: a late settlement takes none.
function hold_list.release(h, hold, at)
  if h.count - h.open >= hold_list.MAX then return NEVER end
  if h.is_summed and h.bytes - h.open_bytes >= hold_list.BYTES_MAX then return NEVER end
  hold.state, hold.ttl, hold.slots = hold_list.RELEASED, at + hold_list.LATE_MS - hold.at, hold_list.EMPTY
  hold_list.add(h, hold.suffix, pack_hold(h, hold), true)
  return at + hold_list.LATE_MS
end

-- Replaces a hold that was found, or removes it where `changed` is nil. Its place is invalid afterwards.
function hold_list.replace(h, hold, changed)
  local part, packed = part_of(h, hold.bucket), changed and pack_hold(h, changed) or ''
  change_part(h, hold.bucket, string.sub(part, 1, hold.first - 1) .. packed .. string.sub(part, hold.last + 1))
  if not changed then h.count = h.count - 1 end
  count_bytes(h, hold.state, hold.first - hold.last - 1)
  count_bytes(h, changed and changed.state, #packed)
  local was_open, is_open = hold.state ~= hold_list.RELEASED, changed and changed.state ~= hold_list.RELEASED
  if was_open and not is_open then h.open = h.open - 1 end
end

-- The order of holds by expiry.
function hold_list.is_before(a, b)
  if a.due ~= b.due then return a.due < b.due end
  return a.suffix < b.suffix
end

-- Takes holds of a bucket that are due out of it, and adds them to `due`. Returns when the next one is due.
local function take_due_of(h, bucket, now, due, limit)
  local part, next_due, latest = part_of(h, bucket), NEVER, now + HOLDS_DUE_WITHIN
  local taken = {}
  each_due_in(part, function(state, at, first, last)
    local is_due = at <= now or at > latest
    if is_due and #due + #taken < limit and due.bytes < TAKEN_BYTES then
      taken[#taken + 1], due.bytes = { first, last }, due.bytes + last - first
      count_bytes(h, state, first - last - 1)
    elseif at < next_due then
      next_due = at
    end
  end)
  if #taken == 0 then return next_due end
  local kept, from = {}, 1
  for _, place in ipairs(taken) do
    due[#due + 1] = hold_list.unpack(h, part, place[1])
    kept[#kept + 1], from = string.sub(part, from, place[1] - 1), place[2] + 1
  end
  kept[#kept + 1] = string.sub(part, from)
  change_part(h, bucket, table.concat(kept))
  return next_due
end

-- Takes holds that are due out of the buckets, at most `limit`, and returns them in order of time and suffix, with the
-- time at which the next one is due. With many holds an examination of all takes milliseconds, so the next look is some
-- time later: a tenth of a millisecond for each hold.
function hold_list.take_due(h, now, limit)
  local due, next_due = { bytes = 0 }, NEVER
  for bucket = 0, h.buckets - 1 do
    next_due = math.min(next_due, take_due_of(h, bucket, now, due, limit))
    if #due >= limit or due.bytes >= TAKEN_BYTES then
      next_due = now
      break
    end
  end
  for _, hold in ipairs(due) do
    h.count = h.count - 1
    if hold.state ~= hold_list.RELEASED then h.open = h.open - 1 end
  end
  table.sort(due, hold_list.is_before)
  if h.count > ALL_EXAMINED and next_due > now then next_due = math.max(next_due, now + math.floor(h.count / 10)) end
  return due, next_due
end

-- Until when what is left of the holds of a key is kept, if it has none. Not from the last settlement on, whose time
-- would have to be written with each: a hold and its settlement would cost Redis a tenth more.
function hold_list.kept_until(h, now) return math.min(NUMBERS_SINCE + h.next, now) + NUMBER_KEPT_MS end

-- The fields to write, as arguments of HSET.
function hold_list.fields(h)
  local part, buckets = h.part, h.buckets
  if h.is_summed then
    part, buckets = struct.pack(HOLDS_SUMS, h.open_bytes, h.bytes), buckets + SUMMED
    if h.count > 0 then part = part .. h.texts end
  end
  local first = h.notes .. part .. struct.pack(HOLDS_END, h.next, h.open, h.count, buckets, #h.notes, h.noted_hour)
  if not h.changed then return 'holds', first end
  local fields = { 'holds', first }
  for bucket in pairs(h.changed) do
    fields[#fields + 1], fields[#fields + 2] = 'holds' .. bucket, h.parts[bucket]
  end
  return unpack(fields)
end

-- Removes all of them.
function hold_list.remove(h)
  local fields = { 'holds' }
  for bucket = 0, h.buckets - 1 do
    fields[bucket + 2] = 'holds' .. bucket
  end
  redis.call('HDEL', h.record, unpack(fields))
end
