-- Recent refusals of verifications (analytics.listRefusals): a list per workspace and day, in the order of the refusals. A call
-- with refusals adds all of its entries with one command.
--
-- A flood must neither cost much nor push all other entries out of the list. Of a key, the first four refusals of a minute have an
-- entry each, then the 8th, the 16th and so on. A workspace has an allowance of entries, which grows with time. An entry of
-- a key has the number of its refusals since the entry before it in that minute.

-- @include "include/clock"
-- @include "include/decide/call"
-- @include "include/decide/charge"
-- @include "include/decide/key"
-- @include "include/names"
-- @include "include/state"

-- Entries of a list, and how many more it may have before it is cut.
local ENTRIES_MAX, ENTRIES_SPARE = 10000, 500
-- The allowance of a workspace: its maximum, and what it grows by in a millisecond. A flood over all keys then fills the list in
-- half an hour.
local ALLOWANCE_MAX, ALLOWANCE_PER_MS = 500, 5 / 1000
-- Refusals of a key in a minute that have an entry each.
local EACH_UNTIL = 4
-- Limits of the keys that are counted in a minute, of the workspaces with an allowance below its maximum, and of the bytes of an
-- entry's tags as JSON.
local COUNTED_MAX, ALLOWANCES_MAX, TAG_BYTES_MAX = 10000, 1000, 256

-- By the name of the record of a key: refusals until the next one that should have an entry, all refusals of this minute when the last
-- one should, and those that have none because the allowance was used up. Kept as long as the library.
local until_noted, key_refusals, unnoted = {}, {}, {}
local counted_keys, minute_starts, minute_ends = 0, 0, 0
-- By workspace: the allowance at a time.
local allowance, allowance_at, allowances = {}, {}, 0
-- The entries of a call, by its number.
local new_entries, entries_call = {}, 0

local function begin_minute()
  until_noted, key_refusals, unnoted, counted_keys = {}, {}, {}, 0
  minute_starts = call_now - call_now % 60000
  minute_ends = minute_starts + 60000
end

-- Takes one entry of the workspace's allowance. Returns whether there was one.
local function take_allowance()
  local left = allowance[call_workspace]
  if not left then
    if allowances == ALLOWANCES_MAX then
      allowance, allowance_at, allowances = {}, {}, 0
    end
    allowances, left = allowances + 1, ALLOWANCE_MAX
  else
    -- The clock may have been set back.
    local grown = math.max(0, call_now - allowance_at[call_workspace]) * ALLOWANCE_PER_MS
    left = math.min(ALLOWANCE_MAX, left + grown)
  end
  local has_one = left >= 1
  allowance[call_workspace], allowance_at[call_workspace] = has_one and left - 1 or left, call_now
  return has_one
end

-- The number of refusals that an entry of the key would have now; nil if the workspace has no allowance left. Decides when the key should
-- have the next one.
local function refusals_of_entry()
  local before = key_refusals[key_name]
  if not before then
    if counted_keys == COUNTED_MAX then begin_minute() end
    counted_keys, before = counted_keys + 1, 0
  end
  -- note_refusals counted down from 1 or from `before` to 0; leases count several at once, so that it may be less.
  local all = before + (before < EACH_UNTIL and 1 or before) - (until_noted[key_name] or 0)
  local count = all - before + (unnoted[key_name] or 0)
  key_refusals[key_name], until_noted[key_name] = all, all < EACH_UNTIL and 1 or all
  local has_entry = take_allowance()
  unnoted[key_name] = not has_entry and count or nil
  return has_entry and count
end

-- The first limit that is exceeded, of the results of the last check: its name, limit and duration. '', 0, 0 for none.
local function exceeded_limit(requested)
  for index = 1, charge_count do
    local place = charge_results[4 * index - 3]
    if charge_results[4 * index - 2] == 1 then
      if place > PLACES_OF_REQUEST then
        local limit = requested[place - PLACES_OF_REQUEST]
        return limit[1], limit[3], limit[4]
      end
      local limits = place > PLACES_OF_IDENTITY and read_limits(key_identity, IDENTITY_LIMITS_AT, 0)
        or read_limits(key_packed, key_limits_at, KEY_TAIL_LENGTH)
      local limit = limits[place > PLACES_OF_IDENTITY and place - PLACES_OF_IDENTITY or place]
      return limit.name, limit.limit, limit.duration
    end
  end
  return '', 0, 0
end

-- The first tags of a request as JSON, as many as fit; '' for none.
local function noted_tags(request)
  local texts, bytes = {}, 1
  for _, tag in ipairs(request and request.tags or {}) do
    local text = cjson.encode(tag)
    bytes = bytes + #text + 1
    if bytes > TAG_BYTES_MAX then break end
    texts[#texts + 1] = text
  end
  return #texts > 0 and '[' .. table.concat(texts, ',') .. ']' or ''
end

local function add_entry(count, outcome, request, external_id, at, leased)
  local name, limit, duration = '', 0, 0
  if outcome == RATE_LIMITED and not leased then
    name, limit, duration = exceeded_limit(request and request.limits)
  end
  local tags = noted_tags(request)
  -- A call that failed may have left entries of another workspace.
  if entries_call ~= call_number then
    new_entries, entries_call = {}, call_number
  end
  -- stylua: ignore
  new_entries[#new_entries + 1] = struct.pack(NOTED_REFUSAL, at, outcome, leased and 1 or 0, count, limit, duration, key24(),
    #external_id, external_id, #name, name, #tags, tags)
end

-- Notes `count` refusals of the key that was read last, of which the last one was at `at`. `leased`: by a lease, whose exceeded
-- limit is not known. Called before the key is written.
local function note_refusals(count, outcome, request, external_id, at, leased)
  if call_now >= minute_ends or call_now < minute_starts then begin_minute() end
  local left = (until_noted[key_name] or 1) - count
  until_noted[key_name] = left
  -- In a flood this is all that most refusals cost.
  if left > 0 then return end
  local all = refusals_of_entry()
  if all then add_entry(all, outcome, request, external_id, at, leased) end
end

-- Adds the entries of this call to the list of its day.
local function write_refusals()
  if entries_call ~= call_number then return end
  local list, count = refusal_list(call_workspace, call_day), #new_entries
  local length = redis.call('RPUSH', list, unpack(new_entries))
  new_entries, entries_call = {}, 0
  -- An entry is listed for 24 hours.
  if length == count then redis.call('PEXPIRE', list, int(2 * DAY_MS)) end
  if length > ENTRIES_MAX + ENTRIES_SPARE then redis.call('LTRIM', list, -ENTRIES_MAX, -1) end
end
