-- A call of decide, its batches, and the data that the items of a batch share; see also registers.lua.

-- Read once per batch: root keys by index (roots.lua). apis.lua has the APIs.
local call_roots = {}
-- `rbac_version`: of permissions and roles, false if it was not read (permitted.lua). `held`: held_slugs of the last
-- query that was evaluated. `is_filled`: the tables of namespaces and totals have entries, so the next batch needs new
-- ones. `budget`: the work after which no further item is begun. `failures`: writes after a charge that failed, and
-- `failure`: the last error.
local call_state = { rbac_version = false, is_filled = false, held = false, budget = 0, failures = 0, failure = '' }
-- Texts of an hour since 1970.
local function day_text(hour) return string.format('%d', hour / 24) end
local function hour_of_day_text(hour) return string.format('%02d', hour % 24) end

local function read_settings(text)
  local retention, tags, tag_bytes, identifiers, records, refusal_hours, refusal_bytes, data_version, time =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')
  call_settings = {
    text = text,
    retention = tonumber(retention),
    tags_max = tonumber(tags),
    tag_bytes_max = tonumber(tag_bytes),
    identifiers_max = tonumber(identifiers),
    records_max = tonumber(records),
    refusal_hours = tonumber(refusal_hours),
    refusal_bytes = tonumber(refusal_bytes),
    data_version = tonumber(data_version),
    time = time,
  }
end

-- Reads what is the same for all batches of a call.
local function begin_call(settings)
  -- They are the same in nearly all calls.
  if settings ~= call_settings.text then read_settings(settings) end
  call_now, call_work = now_ms(call_settings.time), 0
  local hour = math.floor(call_now / HOUR_MS)
  if hour ~= call_hour then
    call_hour, call_day, call_hour_of_day = hour, day_text(hour), hour_of_day_text(hour)
  end
end

-- Tables are kept for the next batch where they can be: one that every batch creates, fills and leaves to the garbage
-- collector costs as much as a read. Returns the packed session, '' for none, and the end of the items.
local function begin_batch(workspace, items)
  if workspace ~= call_workspace then
    call_workspace, call_key_records = workspace, name_of.key_record(workspace, '')
  end
  local high, low, roots, has_session = string.byte(items, -4, -1)
  call_items, call_roots_at = items, #items - 4 - 32 * roots
  for index = 1, roots do
    call_roots[index] = nil
  end
  local state = call_state
  if state.is_filled then
    call_namespaces, call_totals, call_total_bounds = {}, {}, {}
    state.is_filled = false
  end
  call_number, call_work, state.rbac_version, state.budget = call_number + 1, 0, false, 256 * high + low
  state.failures = 0
  if has_session == 0 then return '', call_roots_at end
  local items_end = call_roots_at - LEASE_SESSION_LENGTH
  return string.sub(items, items_end + 1, call_roots_at), items_end
end

-- Begins a call with one batch, for scripts that decide none.
local function begin_only_batch(workspace, settings, items)
  begin_call(settings)
  begin_batch(workspace, items)
end

-- A coarse measure: work that grows with the data is added where the data is read, all other work by the bytes of an
-- item and its answer.
local function add_work(units) call_work = call_work + units end

local function error_text(problem)
  return string.sub(type(problem) == 'table' and (problem.err or 'error') or tostring(problem), 1, 1000)
end

local function note_failure(problem)
  call_state.failures, call_state.failure = call_state.failures + 1, error_text(problem)
end

-- Runs a write after the first charge of an item: counts, notes and queues. The charge is answered even if this fails,
-- because of a broken record for example; the reply has the number of such failures. Returns the first two results of
-- `write`, nothing if it failed.
local function after_charge(write, ...)
  local is_done, first, second = pcall(write, ...)
  if is_done then return first, second end
  note_failure(first)
end

local ERRORS = ITEM_ERRORS
local function item_error(reason, detail)
  detail = detail or ''
  return struct.pack(ITEM_ERROR, ERRORS[reason], #detail, detail)
end
