-- The bytes of a hold, see HOLD of src/scripts/layout.ts.

local hold_format = {
  -- States of a HOLD. What was released, at its expiry or by its caller, may be settled until it is forgotten.
  RELEASES = 0,
  CHARGES = 1,
  RELEASED = 2,
  -- The bits of a window: of the identity, in slices of a millisecond, a HELD_WIDE_WINDOW, and slots.
  OF_IDENTITY = 1,
  FINE = 2,
  WIDE = 4,
  SLOTS = 8,
  -- In the place of a list that is empty, as most are. Never changed.
  EMPTY = {},
}
-- The parts of what is packed next. Used again, because a table for each hold would be much of its cost.
local hold_pieces = {}

-- The charge of a hold to a window, or its slots (with `slot_end`): {duration, cost, name, of_identity, is_fine,
-- settled (units that a settlement charges)}, and the position after it. All fields are made together, because Lua
-- allocates a table again when it grows.
local function read_held_window(texts, part, position)
  local bits, duration, cost, name, _ = string.byte(part, position), nil, nil, nil, nil
  if bits >= KNOWN / 256 then
    local place
    place, cost, position = struct.unpack(HELD_KNOWN_WINDOW, part, position)
    bits, duration, _, name = struct.unpack(HELD_WINDOW, texts, place - KNOWN)
    if bits >= hold_format.SLOTS then
      duration, position = struct.unpack(HELD_SLOT_END, part, position)
    end
  elseif bits % hold_format.SLOTS < hold_format.WIDE then
    bits, duration, cost, name, position = struct.unpack(HELD_WINDOW, part, position)
  else
    bits, duration, cost, name, position = struct.unpack(HELD_WIDE_WINDOW, part, position)
  end
  local slot_end = bits >= hold_format.SLOTS and duration or nil
  local of_identity, is_fine = bits % 2 == 1, bits % 4 >= hold_format.FINE
  local w = { duration = duration, cost = cost, name = name, of_identity = of_identity, is_fine = is_fine, settled = 0 }
  w.slot_end = slot_end
  return w, position
end

-- The bytes after the windows of a hold, see HOLD.
local function read_more(texts, more)
  if more == '' then return nil end
  if string.byte(more) == JSON_BEGIN then return cjson.decode(more) end
  local place = struct.unpack(HELD_PLACE, more)
  local json = struct.unpack(HELD_IDENTITY, texts, place)
  return cjson.decode(json .. string.sub(more, HELD_PLACE_LENGTH + 1))
end

-- The hold at `first` in a bucket: {state, at, ttl, due, cost, balance, suffix, windows, slots, more}, in `into` if
-- that is given. Also returns where it ends.
function hold_format.unpack(h, part, first, into)
  local bytes, state, at, ttl, cost, balance, suffix, windows, position = struct.unpack(HOLD, part, first)
  local hold, last = into or {}, first + bytes + 1
  hold.state, hold.at, hold.ttl, hold.due = state, at, ttl, at + ttl
  hold.cost, hold.balance, hold.suffix = cost, balance, suffix
  hold.windows, hold.slots = hold_format.EMPTY, hold_format.EMPTY
  for _ = 1, windows do
    local w
    w, position = read_held_window(h.texts, part, position)
    local kind = w.slot_end and 'slots' or 'windows'
    local list = hold[kind]
    if list == hold_format.EMPTY then
      hold[kind] = { w }
    else
      list[#list + 1] = w
    end
  end
  hold.more = read_more(h.texts, string.sub(part, position, last))
  return hold, last
end

-- The place of a packed text among those of the key, to which it is added; nil if it has no room. A text that is found
-- in the middle of others can be read as well. `h` is false for none.
local function place_of(h, text)
  if not (h and h.is_summed) then return nil end
  local place = string.find(h.texts, text, 1, true)
  if not place and #h.texts + #text <= HELD_TEXTS_BYTES then
    place, h.texts = #h.texts + 1, h.texts .. text
  end
  return place
end

-- Packs what a hold charged to a window, or the slots that it takes until `duration`.
function hold_format.pack_window(h, bits, duration, cost, name)
  if cost >= 2 ^ 32 then return struct.pack(HELD_WIDE_WINDOW, bits + hold_format.WIDE, duration, cost, #name, name) end
  local has_slots = bits >= hold_format.SLOTS
  local place = h and place_of(h, struct.pack(HELD_WINDOW, bits, has_slots and 0 or duration, 0, #name, name))
  if not place then return struct.pack(HELD_WINDOW, bits, duration, cost, #name, name) end
  local packed = struct.pack(HELD_KNOWN_WINDOW, KNOWN + place, cost)
  return has_slots and packed .. struct.pack(HELD_SLOT_END, duration) or packed
end

-- Packs what only some holds have, see HOLD.
function hold_format.pack_more(h, more)
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
function hold_format.pack(state, at, ttl, cost, balance, suffix, windows, rest)
  -- The length of the bytes after the field `bytes`.
  local bytes = HOLD_LENGTH + #suffix + #rest
  return struct.pack(HOLD_AND_REST, bytes, state, at, ttl, cost, balance, #suffix, suffix, windows, rest)
end

-- Packs a hold that was unpacked, and may have been changed.
function hold_format.repack(h, hold)
  local count, windows, slots = 0, hold.windows, hold.slots
  for index = 1, #windows do
    local w = windows[index]
    local bits = (w.of_identity and hold_format.OF_IDENTITY or 0) + (w.is_fine and hold_format.FINE or 0)
    count = count + 1
    hold_pieces[count] = hold_format.pack_window(h, bits, w.duration, w.cost, w.name)
  end
  for index = 1, #slots do
    local slot = slots[index]
    count = count + 1
    local bits = hold_format.SLOTS + (slot.of_identity and hold_format.OF_IDENTITY or 0)
    hold_pieces[count] = hold_format.pack_window(h, bits, slot.slot_end, slot.cost, slot.name)
  end
  local rest = table.concat(hold_pieces, '', 1, count) .. hold_format.pack_more(h, hold.more)
  return hold_format.pack(hold.state, hold.at, hold.ttl, hold.cost, hold.balance, hold.suffix, count, rest)
end

-- The position of the hold with this suffix in holds that begin at `first`; nil if it is not there. A search for bytes
-- takes a part of the time of unpacking all suffixes. The match may be in another field, or in a longer suffix: so
-- holds are passed by their lengths up to there.
function hold_format.place_in(part, suffix, first)
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
