-- The arguments of a call of decide, and the data that its items share. Only begin_call and add_work change these variables; the
-- files named below fill the tables.

-- @include "include/names"

-- The arguments, see the header of lua/decide.lua.
local call_workspace, call_retention, call_digests, call_items
-- The prefix of the names of key records.
local call_key_records
local call_bounds, call_tags_max, call_tag_bytes_max, call_identifiers_max, call_records_max
-- The time in milliseconds; its hour and day since 1970, and its hour of the day (`00` to `23`).
local call_now, call_hour, call_day, call_hour_of_day
-- Read once per call: root keys by index (roots.lua), APIs by the last 8 characters of their id (apis.lua), namespaces by name
-- (ratelimit.lua), {version} of permissions and roles (permitted.lua).
local call_roots, call_apis, call_namespaces
local call_rbac = { version = false }
-- Written at the end of the call (totals.lua): counts by record and field, and the limits of a record.
local call_totals, call_total_bounds
-- The work done so far, in units of about a microsecond.
local call_work

local function day_of(hour) return string.format('%d', hour / 24) end
local function hour_of_day(hour) return string.format('%02d', hour % 24) end

local function begin_call(workspace, retention, bounds, digests, items, now)
  call_workspace, call_retention, call_digests, call_items, call_now = workspace, retention, digests, items, now
  call_key_records = key_record(workspace, '')
  if bounds ~= call_bounds then
    local tags, tag_bytes, identifiers, records = string.match(bounds, '^(%d+) (%d+) (%d+) (%d+)$')
    call_bounds, call_tags_max, call_tag_bytes_max = bounds, tonumber(tags), tonumber(tag_bytes)
    call_identifiers_max, call_records_max = tonumber(identifiers), tonumber(records)
  end
  local hour = math.floor(now / HOUR_MS)
  if hour ~= call_hour then
    call_hour, call_day, call_hour_of_day = hour, day_of(hour), hour_of_day(hour)
  end
  call_roots, call_apis, call_namespaces, call_totals, call_total_bounds = {}, {}, {}, {}, {}
  call_rbac.version, call_work = false, 0
end

-- A coarse measure: work that grows with the data is added where the data is read, all other work by the bytes of an item and its
-- answer.
local function add_work(units) call_work = call_work + units end

local REASONS = REFUSAL_REASONS
local function refuse(reason, detail)
  detail = detail or ''
  return struct.pack(REFUSED, REASONS[reason], #detail, detail)
end
