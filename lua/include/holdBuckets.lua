-- The buckets of the holds of a key (holdList.lua).

local hold_buckets = {}

-- The work of reading holds and settlements since it was asked for, in units of about a microsecond (decide/call): with
-- 10,000 settlements a search reads a megabyte.
local noted_bytes = 0
-- Called by library.lua before each script: what an earlier one read, maybe of another workspace, is not its work.
function hold_buckets.begin() noted_bytes = 0 end
function hold_buckets.work()
  local bytes = noted_bytes
  noted_bytes = 0
  return bytes / 400
end
function hold_buckets.note_bytes(text)
  noted_bytes = noted_bytes + #text
  return text
end

function hold_buckets.part(h, bucket)
  if bucket == 0 and not h.is_summed then return h.part end
  local parts = h.parts or {}
  h.parts = parts
  local part = parts[bucket] or hold_buckets.note_bytes(redis.call('HGET', h.record, 'holds' .. bucket) or '')
  parts[bucket] = part
  return part
end

-- A bucket in field `holds` is always written.
function hold_buckets.change(h, bucket, part)
  if bucket == 0 and not h.is_summed then
    h.part = part
    return
  end
  h.parts, h.changed = h.parts or {}, h.changed or {}
  h.parts[bucket], h.changed[bucket] = part, true
end

-- The bucket of a hold, of `buckets`.
function hold_buckets.of(buckets, suffix)
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
function hold_buckets.each_in(part, visit)
  local position = 1
  while position <= #part do
    local bytes = struct.unpack(HOLD_BYTES, part, position)
    local last = position + bytes + 1
    local suffix = struct.unpack('>Bc0', part, position + HOLD_SUFFIX_AT - 1)
    if visit(suffix, position, last) then return end
    position = last + 1
  end
end

-- Moves holds of one bucket to a new one.
function hold_buckets.split(h)
  local level = 1
  while level * 2 <= h.buckets do
    level = level * 2
  end
  local old, new = h.buckets - level, h.buckets
  local part, kept, moved = hold_buckets.part(h, old), {}, {}
  h.buckets = h.buckets + 1
  hold_buckets.each_in(part, function(suffix, first, last)
    local to = hold_buckets.of(h.buckets, suffix) == old and kept or moved
    to[#to + 1] = string.sub(part, first, last)
  end)
  hold_buckets.change(h, old, table.concat(kept))
  hold_buckets.change(h, new, table.concat(moved))
end
