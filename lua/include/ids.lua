-- Ids and versions. Both are made from a time and a sequence of the workspace, which never decrease. So ascending ids
-- are the order of creation, with any number of servers, and no version repeats. This holds after the clock stepped
-- back, and after the last second of the append-only file was lost (the milliseconds then differ).

local BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'

-- `number` below 58^8 as eight base58 characters.
local function base58_8(number)
  local bytes = {}
  for position = 8, 1, -1 do
    local digit = number % 58
    bytes[position] = string.byte(BASE58, digit + 1)
    number = (number - digit) / 58
  end
  return string.char(unpack(bytes))
end

-- The number of the eight base58 characters of `text` from `first` on; nil if one of them is not base58.
local function number_at(text, first)
  local number = 0
  for position = first, first + 7 do
    local byte, digit = string.byte(text, position) or 0, nil
    -- 1 to 9, A to Z without I and O, a to z without l.
    if byte >= 97 then
      digit = byte < 108 and byte - 64 or byte > 108 and byte < 123 and byte - 65
    elseif byte >= 80 then
      digit = byte < 91 and byte - 58
    elseif byte >= 65 then
      digit = byte < 73 and byte - 56 or byte > 73 and byte < 79 and byte - 57
    else
      digit = byte > 48 and byte < 58 and byte - 49
    end
    if not digit then return nil end
    number = number * 58 + digit
  end
  return number
end

-- The time in an id (without its prefix), Unix milliseconds.
local function time_in(id) return number_at(id, 1) end

-- The first 16 characters of an id as 12 bytes, which sort in the same order; nil if they are not base58.
local PACKED_ID = '>I6I6'
local PACKED_ID_BYTES = 12

local function pack_id(id16)
  local time, number = number_at(id16, 1), number_at(id16, 9)
  return time and number and struct.pack(PACKED_ID, time, number)
end

local function unpack_id(packed)
  local time, number = struct.unpack(PACKED_ID, packed)
  return base58_8(time) .. base58_8(number)
end

-- Reserves `count` numbers of the workspace's sequence. Returns two functions, each of whose calls uses one:
--   next_id()       sixteen characters, ascending: eight of time, eight of sequence
--   next_version()  VERSION, unlike any other version of the workspace
-- With `is_later` a script calls the third one, which stores the reservation, before its other writes.
local function take_stamps(workspace, now, count, is_later)
  local stored = redis.call('HMGET', workspace, 'sequence', 'last')
  local sequence, last = tonumber(stored[1]) or 0, tonumber(stored[2]) or 0
  local at = math.max(now, last)
  -- A version has the two low bytes of its number. Its time is increased whenever these overflow, so that versions
  -- differ even if the clock does not move.
  local round = math.floor(sequence / 65536)
  local last_time = at + math.floor((sequence + count) / 65536) - round
  local reserved = int(sequence + count)
  local function reserve() redis.call('HSET', workspace, 'sequence', reserved, 'last', int(last_time)) end
  if not is_later then reserve() end
  local time = base58_8(at)
  local function next_number()
    sequence = sequence + 1
    return sequence
  end
  -- Consecutive ids usually differ in their last character only.
  local head, head_of
  local function next_id()
    local number = next_number() % 128063081718016
    local digit = number % 58
    if number - digit ~= head_of then
      head, head_of = time .. string.sub(base58_8(number), 1, 7), number - digit
    end
    return head .. string.sub(BASE58, digit + 1, digit + 1)
  end
  local function next_version()
    local number = next_number()
    return struct.pack('>I6I2', at + math.floor(number / 65536) - round, number % 65536)
  end
  return next_id, next_version, reserve
end
