-- The APIs of a call. Each is read once.

-- The APIs of recent calls, by the last 8 characters of their id. An entry with the number of this call was read in it;
-- the others are only tables to be used again. `last_api` is the one that was read last, `previous` the one before.
local APIS_MAX = 256
local apis, apis_made, last_api = {}, 0, nil

-- Sets the names of the records and fields of an API. They are the same in nearly all calls.
local function name_api(api, api8)
  api.workspace, api.hour = call_workspace, call_hour
  api.record, api.usage = name_of.api_record(call_workspace, api8), name_of.api_usage(call_workspace, api8, call_day)
  api.valid_field, api.spent_field = call_hour_of_day .. VALID, 's' .. call_hour_of_day .. VALID
end

local function new_api(api8)
  if apis_made == APIS_MAX then
    apis, apis_made = {}, 0
  end
  local api = {}
  apis[api8], apis_made = api, apis_made + 1
  return api
end

local function read_api(api8)
  local api = apis[api8] or new_api(api8)
  if api.workspace ~= call_workspace or api.hour ~= call_hour then name_api(api, api8) end
  api.id = redis.call('HGET', api.record, 'id')
  api.previous = last_api and last_api.call == call_number and last_api or nil
  api.valid, api.spent, api.refused, api.snapshots = 0, 0, nil, nil
  api.call, last_api = call_number, api
  return api
end

-- An API: `id`, false when it was deleted; then the counts of this call: `valid`, `spent` (credits), `refused` (by
-- outcome) and `snapshots` (digests of the keys whose snapshot it returned), both nil for none.
local function api_of(api8)
  local api = apis[api8]
  if api and api.call == call_number then return api end
  return read_api(api8)
end

-- Counts a verification that is not VALID.
local function count_refused(api, outcome)
  local refused = api.refused or {}
  refused[outcome] = (refused[outcome] or 0) + 1
  api.refused = refused
end

-- Adds the counts of an API to its record.
local function write_api_total(api)
  local record, is_new = api.usage, false
  if api.valid > 0 then is_new = increase(record, api.valid_field, api.valid) end
  -- Only VALID verifications spend credits.
  if api.spent > 0 then is_new = increase(record, api.spent_field, api.spent) or is_new end
  if api.refused then
    for outcome, count in pairs(api.refused) do
      is_new = increase(record, call_hour_of_day .. outcome, count) or is_new
    end
  end
  if is_new then redis.call('PEXPIRE', record, int(call_settings.retention + DAY_MS)) end
end

local function write_api_totals()
  local api = last_api
  if not api or api.call ~= call_number then return end
  while api do
    write_api_total(api)
    api = api.previous
  end
end
