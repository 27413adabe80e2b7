-- The APIs of a call. Each is read once.

-- @include "include/decide/call"
-- @include "include/decide/totals"
-- @include "include/names"

-- Reads an API, if call_apis does not have it yet (callers check that). Returns {id, or false when it was deleted; counts of this
-- call by outcome; spent: credits; snapshots: digests of the keys whose snapshot this call returned}.
local function read_api(api8)
  local outcome_counts = {}
  for outcome = 1, OUTCOMES_COUNTED do
    outcome_counts[outcome] = 0
  end
  local api = {
    id = redis.call('HGET', api_record(call_workspace, api8), 'id'),
    counts = outcome_counts,
    spent = 0,
    snapshots = {},
  }
  call_apis[api8] = api
  return api
end

-- Adds the counts of APIs to the totals of the call.
local function add_api_totals()
  for api8, api in pairs(call_apis) do
    local record = api_usage(call_workspace, api8, call_day)
    for outcome, count in ipairs(api.counts) do
      if count > 0 then add_total(record, call_hour_of_day .. outcome, count) end
    end
    -- Only VALID verifications spend credits.
    if api.spent > 0 then add_total(record, 's' .. call_hour_of_day .. VALID, api.spent) end
  end
end
