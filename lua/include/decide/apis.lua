-- The APIs of a call, each read once.

-- @include "include/decide/call"
-- @include "include/decide/totals"
-- @include "include/names"

-- Reads an API that no earlier item of the call was about; callers check call_apis first. Returns {id or false when it was
-- deleted, counts of this call by outcome, credits spent, digests of the keys whose snapshot this call returned}.
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

-- Adds what this call counted for APIs to its totals.
local function add_api_totals()
  for api8, api in pairs(call_apis) do
    local record = api_usage(call_workspace, api8, call_day)
    for outcome, count in ipairs(api.counts) do
      if count > 0 then add_total(record, call_hour_of_day .. outcome, count) end
    end
    -- Only a VALID verification spends.
    if api.spent > 0 then add_total(record, 's' .. call_hour_of_day .. VALID, api.spent) end
  end
end
