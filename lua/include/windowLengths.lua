-- Where the windows of a state are.

-- Formats of the lengths of windows, by the number of windows.
local lengths_formats = {}
local function lengths_format(count)
  local format = lengths_formats[count]
  if not format then
    format = '>' .. string.rep(WINDOW_BYTES_FIELDS, count)
    lengths_formats[count] = format
  end
  return format
end

-- The lengths of the windows of `count` limits, and the positions of the first window and of the first length. The
-- limits end `tail_bytes` before the end of `packed`.
local function window_lengths(packed, count, tail_bytes)
  local lengths_at = #packed - tail_bytes - WINDOW_BYTES_LENGTH * count + 1
  local lengths, windows_at = { struct.unpack(lengths_format(count), packed, lengths_at) }, lengths_at
  for index = 1, count do
    windows_at = windows_at - lengths[index]
  end
  return lengths, windows_at, lengths_at
end
