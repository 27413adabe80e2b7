-- Reads all entries of a counter, for inspection and export.

-- A counter as {kind, base, step, ends and units of its entries, sum}. If the bytes do not
-- fit the format: nil, the first field that does not fit, and its position.
local function read_window(text)
  local number = string.byte(text)
  local kind = WINDOW_KINDS[number]
  if not kind then return nil, 'kind', 1 end
  local count = (#text - WINDOW_HEAD_BYTES - 7) / kind.bytes
  if count < 1 or count % 1 ~= 0 then return nil, 'entries', WINDOW_HEAD_BYTES + 1 end
  local _, base, step = struct.unpack(WINDOW_HEAD, text)
  local window, total = { kind = number, base = base, step = step, ends = {}, units = {} }, 0
  for index = 1, count do
    local steps, units = struct.unpack(kind.entry, text, WINDOW_HEAD_BYTES + 1 + (index - 1) * kind.bytes)
    window.ends[index], window.units[index], total = base + steps * step, units, total + units
  end
  window.sum = struct.unpack('>I7', text, #text - 6)
  if window.sum ~= total then return nil, 'sum', #text - 6 end
  return window
end
