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
  -- Limits of the open holds of a key, and of those that were released: their number and their bytes.
  MAX = HOLDS_MAX,
  BYTES_MAX = HOLDS_BYTES_MAX,
  -- How long a released hold may be settled.
  LATE_MS = DAY_MS,
  -- Longest time from a verification to the expiry of its hold.
  EXPIRES_WITHIN = 30 * DAY_MS,
  -- HOLDS_END of a key that never had a hold: the next one has number 1, in one bucket.
  NO_HOLDS = '\0\0\0\0\0\1\0\0\0\0\0\1\0\0\0\0\0\0',
}
-- How long the number of the last hold is kept: longer than the settlements whose holds it numbered.
local NUMBER_KEPT_MS = 3 * HOUR_MS
-- With this many holds or fewer, each look at a key finds the expired ones.
local ALL_EXAMINED = 256

-- Numbers are milliseconds since 2026.
local NUMBERS_SINCE = 1767225600000

-- The suffix of a new hold, which moves on the number of the next one.
function hold_list.next_suffix(h, now)
  local number = math.max(now - NUMBERS_SINCE, h.next) % 2 ^ 40
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
  stored = stored and hold_buckets.note_bytes(stored) or hold_list.NO_HOLDS
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

-- The hold with this suffix, as hold_format.unpack returns it, with its place; nil if there is none. The table is used
-- again by the next call.
local found_hold = {}
function hold_list.find(h, suffix)
  local bucket = hold_buckets.of(h.buckets, suffix)
  local part = hold_buckets.part(h, bucket)
  local first = hold_format.place_in(part, suffix, 1)
  if not first then return nil end
  local hold, last = hold_format.unpack(h, part, first, found_hold)
  hold.bucket, hold.first, hold.last = bucket, first, last
  return hold
end

-- Calls `visit(hold)` for each hold of the buckets from `bucket` down to 0, until it has read STEP_BYTES. Returns the
-- bucket to continue with; nil after the last one.
function hold_list.each(h, bucket, visit)
  local read = 0
  while bucket >= 0 and read < STEP_BYTES do
    local part = hold_buckets.part(h, bucket)
    hold_buckets.each_in(part, function(_, first) visit((hold_format.unpack(h, part, first))) end)
    read, bucket = read + #part + 16, bucket - 1
  end
  return bucket >= 0 and bucket or nil
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
    each_due_in(hold_buckets.part(h, bucket), visit)
  end
end

-- Adds up the bytes of holds in several buckets, or in one that is large, so that they are in the form of data version
-- 7 from now on.
function hold_list.sum_up(h)
  if h.is_summed or h.buckets == 1 and #h.part <= BUCKET_BYTES then return end
  local open_bytes, bytes = 0, 0
  hold_list.each_due(h, function(state, _, first, last)
    bytes = bytes + last - first + 1
    if state ~= hold_format.RELEASED then open_bytes = open_bytes + last - first + 1 end
  end)
  h.is_summed, h.open_bytes, h.bytes = true, open_bytes, bytes
  hold_buckets.change(h, 0, h.part)
end

-- Counts the bytes of a hold that is added, or (below 0) taken out.
local function count_bytes(h, state, bytes)
  h.bytes = h.bytes + bytes
  if state ~= hold_format.RELEASED then h.open_bytes = h.open_bytes + bytes end
end

-- Whether no further hold can be made.
function hold_list.is_full(h) return h.open >= hold_list.MAX or h.is_summed and h.open_bytes >= hold_list.BYTES_MAX end

-- Adds a hold that was packed: an open one, or one that was released.
function hold_list.add(h, suffix, packed, is_released)
  h.count = h.count + 1
  if not is_released then h.open = h.open + 1 end
  count_bytes(h, is_released and hold_format.RELEASED or hold_format.CHARGES, #packed)
  local is_due = h.bytes > BUCKET_BYTES * h.buckets
  if not h.is_summed then is_due = h.count > BUCKET_HOLDS * h.buckets end
  if is_due then hold_buckets.split(h) end
  local bucket = hold_buckets.of(h.buckets, suffix)
  hold_buckets.change(h, bucket, hold_buckets.part(h, bucket) .. packed)
end

-- Keeps a hold that was given back and taken out, so that it may be settled. Returns when it is forgotten; NEVER when
-- there are too many. Slots stay free: a late settlement takes none.
function hold_list.release(h, hold, at)
  if h.count - h.open >= hold_list.MAX then return NEVER end
  if h.is_summed and h.bytes - h.open_bytes >= hold_list.BYTES_MAX then return NEVER end
  hold.state, hold.ttl, hold.slots = hold_format.RELEASED, at + hold_list.LATE_MS - hold.at, hold_format.EMPTY
  hold_list.add(h, hold.suffix, hold_format.repack(h, hold), true)
  return at + hold_list.LATE_MS
end

-- Replaces a hold that was found, or removes it where `changed` is nil. Its place is invalid afterwards.
function hold_list.replace(h, hold, changed)
  local part, packed = hold_buckets.part(h, hold.bucket), changed and hold_format.repack(h, changed) or ''
  hold_buckets.change(h, hold.bucket, string.sub(part, 1, hold.first - 1) .. packed .. string.sub(part, hold.last + 1))
  if not changed then h.count = h.count - 1 end
  count_bytes(h, hold.state, hold.first - hold.last - 1)
  count_bytes(h, changed and changed.state, #packed)
  local was_open, is_open = hold.state ~= hold_format.RELEASED, changed and changed.state ~= hold_format.RELEASED
  if was_open and not is_open then h.open = h.open - 1 end
end

-- The order of holds by expiry.
function hold_list.is_before(a, b)
  if a.due ~= b.due then return a.due < b.due end
  return a.suffix < b.suffix
end

-- Takes holds of a bucket that are due out of it, and adds them to `due`. Returns when the next one is due.
local function take_due_of(h, bucket, now, due, limit)
  local part, next_due, latest = hold_buckets.part(h, bucket), NEVER, now + HOLDS_DUE_WITHIN
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
    due[#due + 1] = hold_format.unpack(h, part, place[1])
    kept[#kept + 1], from = string.sub(part, from, place[1] - 1), place[2] + 1
  end
  kept[#kept + 1] = string.sub(part, from)
  hold_buckets.change(h, bucket, table.concat(kept))
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
    if hold.state ~= hold_format.RELEASED then h.open = h.open - 1 end
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
