-- Ids and versions. Both come from the workspace's own clock and sequence, which only move forward: ascending id is
-- order of creation whichever server asked, and no version is ever given twice, not even after a clock stepped back
-- or the last second of an append-only file was lost (the milliseconds then differ).

-- @include "include/clock"

local BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'

-- `number` below 58^8 as eight base58 characters.
local function base58_8(number)
  local text = ''
  for _ = 1, 8 do
    local digit = number % 58
    text = string.sub(BASE58, digit + 1, digit + 1) .. text
    number = (number - digit) / 58
  end
  return text
end

-- The number that the eight characters of `text` from `first` on stand for; nil where one of them is not base58.
local function number_at(text, first)
  local number = 0
  for position = first, first + 7 do
    local digit = string.find(BASE58, string.sub(text, position, position), 1, true)
    if not digit then return nil end
    number = number * 58 + digit - 1
  end
  return number
end

-- The milliseconds that an id (without its prefix) begins with.
local function time_in(id) return number_at(id, 1) end

-- Sixteen characters of an id as twelve bytes, which sort alike. Nil when they are of no id.
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

-- Takes `count` numbers of the workspace's sequence. Answers two functions:
--   next_id()       sixteen characters, ascending: eight of time, eight of sequence
--   next_version()  eight bytes, opaque, unlike any other version of the workspace
local function take_stamps(workspace, now, count)
  local stored = redis.call('HMGET', workspace, 'sequence', 'last')
  local sequence, last = tonumber(stored[1]) or 0, tonumber(stored[2]) or 0
  local at = math.max(now, last)
  -- A version holds the two low bytes of its number; its time counts how often these rolled over, so that they may roll
  -- over while the clock stands still.
  local round = math.floor(sequence / 65536)
  local last_time = at + math.floor((sequence + count) / 65536) - round
  redis.call('HSET', workspace, 'sequence', int(sequence + count), 'last', int(last_time))
  local time = base58_8(at)
  local function next_number()
    sequence = sequence + 1
    return sequence
  end
  -- Ids that follow one another mostly differ in their last character.
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
  return next_id, next_version
end
