-- Changes windows of a key or an identity afterwards: gives back units of a lease or a hold in the slice in which they
-- were charged, whatever was changed since, or charges more.

local owned_windows = {}

-- A window with `units` more now, even above its limit, up to SAFE_INTEGER. If the clock has stepped back they are
-- charged in the newest slice: the next verification moves that.
local function with_units(bytes, duration, units)
  local charge, now = quota_log.charge_of(duration), call_now
  local total = charge(bytes, 1, #bytes, now, SAFE_INTEGER, duration, 0, false)
  if total == AHEAD then
    now = window_log.newest(bytes) - (duration < QUOTA_CODES and window_log.slice_of(duration) or 1)
    total = charge(bytes, 1, #bytes, now, SAFE_INTEGER, duration, 0, false)
  end
  units = math.min(units, SAFE_INTEGER - total)
  local _, _, _, kept, suffix = charge(bytes, 1, #bytes, now, SAFE_INTEGER, duration, units, true)
  return suffix and string.sub(bytes, 1, kept) .. suffix
end

-- Gives back units that were charged to windows of an owner; units below 0 are charged. `packed` is the state of the
-- owner, whose limits are from `limits_at` to `tail_bytes` before its end. Each window is there, in a record of its
-- own, or gone. Returns the new state.
--   wanted    each {duration, name, units, is_fine, at: when they were charged}. Slots are {duration = 0, name, units,
--             slot_end, moved_to (nil: they are given back), slice (see window_slots.without)}, and get `is_found`
--             and the real moved_to. Its `shifted` is that field of the owner.
--   records   by name, the records to write: {owner, member, bytes, counter (in the form of write_counters, if units
--             were charged)}. What was changed before is read there.
function owned_windows.returning(packed, limits_at, tail_bytes, owner, wanted, records)
  local limits, by_name, is_changed = read_limits(packed, limits_at, tail_bytes), {}, false
  add_work(20 * #wanted)
  for _, l in ipairs(limits) do
    by_name[l.name] = l
  end
  for _, w in ipairs(wanted) do
    local function changed(bytes)
      if w.slot_end then
        add_work(#bytes / 16)
        if bytes == '' then return nil end
        local window, moved_to = window_slots.without(bytes, w.slot_end, w.units, w.moved_to, w.slice)
        w.is_found, w.moved_to = window and true, moved_to
        return window
      end
      -- What belongs to a period that has ended changes nothing of the present one.
      if w.duration >= QUOTA_CODES and window_log.slice_end(w.at, 0, w.duration) <= call_now then return nil end
      if w.units < 0 then return with_units(bytes, w.duration, -w.units) end
      -- After the clock stepped back, windows have other slices.
      if w.units == 0 or w.at > call_now or shifted_charges.has(wanted.shifted, w.at) then return nil end
      return window_returns.without(bytes, w.at, call_now, w.duration, w.is_fine, w.units)
    end
    local limit = by_name[w.name]
    if limit and limit_list.counter_duration(limit) == w.duration then
      local window = changed(limit.window)
      if window then
        limit.window, is_changed = window, true
      end
    else
      local member = name_of.window_member(w.duration, w.name)
      local record = name_of.window_at(call_workspace, owner, member)
      local before = records[record] or { owner = owner, bytes = redis.call('GET', record) }
      local window = (before.bytes or w.units < 0) and changed(before.bytes or '')
      if window then
        local counter = before.counter
        if w.units < 0 then
          counter = counter or { member, '', w.duration, not before.bytes }
        elseif w.moved_to then
          -- So that the counter is kept until the slots end.
          counter = { member, '', DAY_MS, false }
        end
        if counter then counter[2] = window end
        records[record] = { owner = owner, member = member, bytes = window, counter = counter }
      end
    end
  end
  if not is_changed then return packed end
  local tail = string.sub(packed, #packed - tail_bytes + 1)
  return string.sub(packed, 1, limits_at - 1) .. (pack_limits(limits)) .. tail
end

function owned_windows.write(records)
  for record, changed in pairs(records) do
    if changed.bytes == '' then
      redis.call('DEL', record)
      redis.call('ZREM', name_of.window_list(call_workspace, changed.owner), changed.member)
    elseif changed.counter then
      write_counters(call_workspace, changed.owner, { changed.counter }, call_now)
    else
      redis.call('SET', record, changed.bytes, 'KEEPTTL')
    end
  end
end
