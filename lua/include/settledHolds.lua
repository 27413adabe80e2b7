-- Settlements of holds, by hour: for an hour at least, a repeated settlement finds the result of the first one here.
-- With very many, the oldest are dropped. The last ones are in field `holds`, if that is written anyway: a record of
-- its own for each would be a tenth of the cost of a hold and its settlement.

local settled_holds = {}

local SETTLED_KEPT_MS, SETTLED_BYTES_MAX = 3 * HOUR_MS, 512 * 1024
-- Limit of the notes in field `holds`, which every hold writes again.
local NOTED_BYTES = 256

-- The hour since 1970 whose text was made last, and that text.
local settled_hour, settled_hour_text = 0, ''
local function settled_record(workspace, id24, hour)
  if settled_hour ~= hour then
    settled_hour, settled_hour_text = hour, string.format('%d', hour)
  end
  return name_of.settled_holds(workspace, id24, settled_hour_text)
end

local settled_pieces = {}
-- The units that a settlement charges to windows, packed.
function settled_holds.pack(windows)
  local count = #windows
  if count == 0 then return '' end
  for index = 1, count do
    local w = windows[index]
    settled_pieces[index] = struct.pack(SETTLED_WINDOW, w.settled, #w.name, w.name)
  end
  return table.concat(settled_pieces, '', 1, count)
end

-- Adds packed notes of settlements to the record of an hour.
function settled_holds.append(workspace, id24, hour, notes)
  local record = settled_record(workspace, id24, hour)
  local length = redis.call('APPEND', record, notes)
  if length == #notes then redis.call('PEXPIRE', record, SETTLED_KEPT_MS) end
  if length > SETTLED_BYTES_MAX then redis.call('RENAME', record, settled_record(workspace, id24, hour - 1)) end
end

-- Moves notes of field `holds` ({hour, notes} each) to their records, unless they are forgotten.
function settled_holds.move(workspace, id24, hour, moved)
  for _, each in ipairs(moved) do
    if each.notes ~= '' and hour - each.hour <= 1 then settled_holds.append(workspace, id24, each.hour, each.notes) end
  end
end

local SETTLED_AND_REST = SETTLED_HOLD .. 'c0'
-- A packed note of a settlement: {suffix, late, cost, balance (nil for an unlimited key), shared (the balance of the
-- identity, nil if it was not charged), windows, packed (settled_holds.pack of these)}.
local function pack_note(settled)
  local suffix, rest = settled.suffix, settled.packed
  local late, has_balance = settled.late and 1 or 0, settled.balance and 1 or 0
  if settled.shared then
    has_balance, rest = has_balance + HAS_BALANCE_OF_IDENTITY, rest .. struct.pack(IDENTITY_LEFT, settled.shared)
  end
  local cost, balance, windows = settled.cost, settled.balance or 0, #settled.windows
  local bytes = SETTLED_HOLD_LENGTH + #suffix + #rest
  return struct.pack(SETTLED_AND_REST, bytes, late, cost, has_balance, balance, #suffix, suffix, windows, rest)
end

local function leave(settling, hour, notes)
  settling.moved = settling.moved or {}
  table.insert(settling.moved, { hour = hour, notes = notes })
end

-- Notes a settlement with the holds `h` of the key, which are written next. Notes without room are left in
-- `settling.moved`, for settled_holds.move after that: a decision that fails has written none.
function settled_holds.note(settling, h, hour, settled)
  local note = pack_note(settled)
  if h.noted_hour ~= hour or #h.notes + #note > NOTED_BYTES then
    leave(settling, h.noted_hour, h.notes)
    h.notes, h.noted_hour = '', hour
  end
  if #note > NOTED_BYTES then return leave(settling, hour, note) end
  h.notes = h.notes .. note
end

-- The settlement in these notes of the hold with this suffix; nil if there is none.
local function settled_in(notes, wanted)
  -- A search for bytes takes a hundredth of the time of unpacking all.
  if not string.find(notes, string.char(#wanted) .. wanted, 1, true) then return nil end
  local first = 1
  while first <= #notes do
    local bytes, late, cost, has_balance, balance, suffix, windows, position = struct.unpack(SETTLED_HOLD, notes, first)
    if suffix == wanted then
      local settled = { suffix = suffix, late = late == 1, cost = cost, windows = {} }
      settled.balance = has_balance % HAS_BALANCE_OF_IDENTITY == 1 and balance or nil
      for index = 1, windows do
        local w = {}
        w.cost, w.name, position = struct.unpack(SETTLED_WINDOW, notes, position)
        settled.windows[index], w.settled = w, w.cost
      end
      settled.packed = settled_holds.pack(settled.windows)
      if has_balance >= HAS_BALANCE_OF_IDENTITY then settled.shared = struct.unpack(IDENTITY_LEFT, notes, position) end
      return settled
    end
    first = first + bytes + 2
  end
end

-- The settlement of a hold, as it was noted; nil if there is none, or it was dropped.
function settled_holds.find(h, workspace, id24, hour, wanted)
  local settled = hour - h.noted_hour <= 1 and settled_in(h.notes, wanted)
  for hours_ago = 0, 1 do
    if settled then return settled end
    local stored = redis.call('GET', settled_record(workspace, id24, hour - hours_ago))
    settled = stored and settled_in(hold_buckets.note_bytes(stored), wanted)
  end
  return settled or nil
end
