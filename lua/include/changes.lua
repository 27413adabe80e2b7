-- The fields that a change of a key or an identity changed, for its audit event.

-- At most this many items of a list are named.
local ITEMS_MAX = 20

-- Names as text.
local function names_text(names)
  if #names <= ITEMS_MAX then return table.concat(names, ', ') end
  return table.concat(names, ', ', 1, ITEMS_MAX) .. string.format(', … (%d in all)', #names)
end

-- Grants (include/rootGrants) as text.
local function grants_list(grants)
  local list = {}
  for grant in string.gmatch(grants, '[^\n]+') do
    list[#list + 1] = grant
  end
  return names_text(list)
end

-- The own limits of a state that are in force, as text.
local function limits_text(limits, now)
  local texts = {}
  for index, l in ipairs(limit_list.own((limit_ends.in_force(limits, now)))) do
    local applied, ends = l.autoApply == 1 and ', autoApply' or '', l.ends and ', until ' .. int(l.ends) or ''
    local lasts = l.duration < QUOTA_CODES and int(l.duration) .. ' ms' or quota_periods.audited(l.duration)
    local format = l.type == 1 and '%s %s slots for %s' or '%s %s per %s'
    texts[index] = string.format(format, l.name, int(l.limit), lasts) .. applied .. ends
  end
  return names_text(texts)
end

local function refill_text(state)
  if not state.refilled then return nil end
  local day = state.refill_day > 0 and string.format('monthly on day %d', state.refill_day) or 'daily'
  return int(state.refill_amount) .. ' ' .. day
end

-- The slugs of a list of permission numbers (`,3,17,`).
local function slugs_of(workspace, list) return values_of(name_of.permission_slugs(workspace), numbers_in(list), true) end

-- The text of a packed address (src/domain/ipRange.ts).
local function address_text(digits)
  if #digits == 8 then
    local bytes = string.gsub(digits, '..', function(byte) return int(tonumber(byte, 16)) .. '.' end)
    return string.sub(bytes, 1, -2)
  end
  local groups = ':'
    .. string.gsub(digits, '....', function(group) return string.format('%x:', tonumber(group, 16)) end)
  for count = 8, 2, -1 do
    local first, last = string.find(groups, ':' .. string.rep('0:', count), 1, true)
    if first then return table.concat({ string.sub(groups, 2, first - 1), string.sub(groups, last + 1, -2) }, '::') end
  end
  return string.sub(groups, 2, -2)
end

-- Packed ranges as text; nil for none.
local function ranges_text(ranges)
  if not ranges then return nil end
  local texts, position = {}, 1
  while position <= #ranges do
    local digits_max, length = 8, tonumber(string.sub(ranges, position + 1, position + 2), 16)
    if string.sub(ranges, position, position) == '6' then digits_max = 32 end
    local last = position + 2 + math.ceil(length / 4)
    local digits = string.sub(ranges, position + 3, last)
    local text = address_text(digits .. string.rep('0', digits_max - #digits))
    texts[#texts + 1] = length == 4 * digits_max and text or text .. '/' .. int(length)
    position = last + 1
  end
  return names_text(texts)
end

-- The value of a field of a key's record, as it is stored, as text; nil for none.
local function field_text(field, stored) return field == 'allowedIps' and ranges_text(stored) or stored end

-- The values of a state by the names of their fields in the interface.
local function state_values(state, now)
  local values = {
    enabled = state.enabled,
    externalId = string.sub(state.link, LINK_EXTERNAL_ID_AT),
    ['credits.remaining'] = state.limited and state.balance or 'unlimited',
    ['credits.refill'] = refill_text(state),
    ratelimits = limits_text(state.limits, now),
  }
  for name, none in pairs(KEY_TIMES) do
    values[name] = state[name] ~= none and state[name] or nil
  end
  return values
end

-- The values of a new key, of which its event has only those that differ.
local NEW_VALUES = { enabled = true, ['credits.remaining'] = 'unlimited' }

-- The changes between two results of state_values.
local function state_changes(before, after)
  local changes = {}
  local fields = { 'enabled', KEY_TIME_NAMES, 'externalId', 'credits.remaining', 'credits.refill', 'ratelimits' }
  for index, field in ipairs(fields) do
    changes[index] = { field, before[field], after[field] }
  end
  return changes
end
