-- The credits and units that open holds of a key hold, in steps of some milliseconds, because a key may have a megabyte
-- of holds.

-- Reads holds in the buckets from `bucket` ('' for the last one) down. `balances` is the number of the key's balance.
-- Returns the number of open holds, and a step of the reply HeldUnits (src/scripts/calls.ts):
--   credits   of the open holds that were read
--   returned  of these, what the balance of the key gets back at their expiry
--   units     each {name of the limit, duration (0 for slots), end of the slice of the key's window that gets them back
--             at the expiry (0 for none), units}
--   bucket    to continue with, '' after the last one
local function held_units(record, balances, bucket, now)
  local h, shifted = hold_list.read(record), redis.call('HGET', record, 'shifted')
  local credits, returned, units, sums = 0, 0, {}, {}
  local function add(name, duration, slice_end, count)
    local place = string.format('%.0f %.0f %s', duration, slice_end, name)
    local sum = sums[place] or { name, int(duration), int(slice_end), 0 }
    if sum[4] == 0 then units[#units + 1] = sum end
    sums[place], sum[4] = sum, sum[4] + count
  end
  local next = hold_list.each(h, tonumber(bucket) or h.buckets - 1, function(hold)
    if hold.state == hold_format.RELEASED then return end
    local gives_back = hold.state == hold_format.RELEASES
    credits = credits + hold.cost
    if gives_back and hold.balance == balances then returned = returned + hold.cost end
    gives_back = gives_back and hold.at <= now and not shifted_charges.has(shifted, hold.at)
    for _, w in ipairs(hold.windows) do
      local has_slice = gives_back and not w.of_identity
      add(w.name, w.duration, has_slice and window_log.charged_end(hold.at, w.is_fine, w.duration) or 0, w.cost)
    end
    for _, slot in ipairs(hold.slots) do
      add(slot.name, 0, 0, slot.cost)
    end
  end)
  for _, sum in ipairs(units) do
    sum[4] = int(sum[4])
  end
  return h.open, { int(credits), int(returned), units, next and int(next) or '' }
end
