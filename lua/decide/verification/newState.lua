-- The new states of the key and the identity of a verification, with what it charged (charge.lua).

-- Formats to pack a state by the number of old bytes that it keeps. So it is created as one string: joining would
-- create and hash its parts too. Most states have one of a few hundred lengths, but 65,000 are possible: a thousand
-- formats of a kind are cached.
local tail_formats, key_formats, extended_formats = { made = 0 }, { made = 0 }, { made = 0 }
local WINDOW_END = 'c0' .. WINDOW_BYTES_FIELDS
local function new_format(formats, kept, rest)
  if formats.made == 1000 then
    for length in pairs(formats) do
      formats[length] = nil
    end
    formats.made = 0
  end
  local format = '>c' .. kept .. rest
  formats.made = formats.made + 1
  formats[kept] = format
  return format
end

local pieces = {}
-- A state with the charged windows of several limits: `count` of them, from place `places` + 1 on. `tail` replaces the
-- same number of bytes at its end. Nil when nothing is charged.
local function joined_state(packed, count, places, lengths, tail)
  local copied, made = 0, 0
  for place = places + 1, places + count do
    local suffix = charge_suffix[place]
    if suffix then
      pieces[made + 1] = string.sub(packed, copied + 1, charge_kept_until[place])
      pieces[made + 2] = suffix
      copied, made = charge_window_end[place], made + 2
    end
  end
  if made == 0 then return nil end
  pieces[made + 1] = string.sub(packed, copied + 1, #packed - #tail - WINDOW_BYTES_LENGTH * count)
  pieces[made + 2] = struct.pack(lengths_format(count), unpack(lengths, 1, count))
  pieces[made + 3] = tail
  return table.concat(pieces, '', 1, made + 3)
end

-- key_state of an extended key that has one limit, which is charged. One string, too: saves 3 to 5 % of Redis's
-- instructions per verification of such a key (callgrind, 2026-11-25).
local function extended_state(...)
  local formats, packed, kept = extended_formats, key_packed, charge_kept_until[1]
  local format = formats[kept]
    or new_format(formats, kept, WINDOW_END .. 'c' .. KEY_EXTENSION_LENGTH .. KEY_TAIL_FIELDS)
  local extension = string.sub(packed, #packed - key_flags.tail_bytes + 1, key_tail_at - 1)
  return struct.pack(format, packed, charge_suffix[1], charge_lengths[1], extension, ...)
end

-- The new state of the key: with these values of KEY_TAIL and, if `is_charged`, the new windows of its limits.
local function key_state(is_charged, balance, refill_due, last_used, hour, valid, refusals, spent)
  local packed, kept = key_packed, key_tail_at - 1
  if is_charged and charge_count > 0 then
    local count = charge_stored
    local suffix, window_kept = charge_suffix[1], charge_kept_until[1]
    if count == 1 and suffix then
      if key_flags.extended then return extended_state(balance, refill_due, last_used, hour, valid, refusals, spent) end
      -- One string: saves 9 % of Redis's instructions per verification (callgrind, 2026-11-22).
      local format = key_formats[window_kept] or new_format(key_formats, window_kept, WINDOW_END .. KEY_TAIL_FIELDS)
      return struct.pack(
        format,
        packed,
        suffix,
        charge_lengths[1],
        balance,
        refill_due,
        last_used,
        hour,
        valid,
        refusals,
        spent
      )
    elseif count > 0 then
      local extension = string.sub(packed, #packed - key_flags.tail_bytes + 1, kept)
      local tail = struct.pack(KEY_TAIL, balance, refill_due, last_used, hour, valid, refusals, spent)
      local state = joined_state(packed, count, PLACES_OF_KEY, charge_lengths, extension .. tail)
      if state then return state end
    end
  end
  local format = tail_formats[kept] or new_format(tail_formats, kept, KEY_TAIL_FIELDS)
  return struct.pack(format, packed, balance, refill_due, last_used, hour, valid, refusals, spent)
end

-- The new state of the identity, or nil when nothing is charged to its limits.
local function identity_state()
  local count = string.byte(key_identity, IDENTITY_LIMITS_AT)
  return joined_state(key_identity, count, PLACES_OF_IDENTITY, charge_identity_lengths, '')
end

local function write_identity(state)
  redis.call('HSET', name_of.identity_record(call_workspace, key_external_id), 'state', state)
end
