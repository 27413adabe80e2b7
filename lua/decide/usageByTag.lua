-- Usage counts by tag.

local usage_by_tag = {}

-- The distinct tags of a request that are counted, for the key that was read last; `new` has those that were not
-- counted before. The tags of an API are limited in number, so that no caller fills Redis with names.
function usage_by_tag.counted(tags)
  local names = name_of.tag_names(call_workspace, key_api8)
  local room, seen, counted, new = nil, {}, {}, {}
  for _, tag in ipairs(tags) do
    if not seen[tag] then
      seen[tag] = true
      local is_new = redis.call('SISMEMBER', names, tag) == 0
      if is_new then
        room = (room or call_settings.tags_max - redis.call('SCARD', names)) - 1
        if room >= 0 then new[#new + 1] = tag end
      end
      if not is_new or room >= 0 then counted[#counted + 1] = tag end
    end
  end
  counted.new = new
  return counted
end

-- Counts `count` of an outcome of the key in an hour, and the credits that they spent, for each of these tags. Under
-- the tag '' all but one of them are counted again: the other counts by tag, less this one, are of all verifications.
-- `tags` is of usage_by_tag.counted.
function usage_by_tag.count(tags, external_id, outcome, spent, count, hour)
  if #tags == 0 then return end
  local id24, api8, day = key24(), key_api8, call_day
  local text = call_hour_of_day
  if hour ~= call_hour then
    day, text = day_text(hour), hour_of_day_text(hour)
  end
  local names, record = name_of.tag_names(call_workspace, api8), name_of.tag_usage(call_workspace, api8, day)
  if #tags.new > 0 then redis.call('SADD', names, unpack(tags.new)) end
  local bounded_by = call_total_bounds[record]
  if not bounded_by then
    bounded_by = { tags = name_of.api_usage(call_workspace, api8, day), spent = {}, again = {} }
    redis.call('PEXPIRE', names, int(call_settings.retention))
  end
  -- TAG_FIELD up to the tag.
  local head = text .. outcome .. id24 .. struct.pack('>Bc0', #external_id, external_id)
  for _, tag in ipairs(tags) do
    local field = head .. tag
    add_total(record, field, count, bounded_by)
    if spent > 0 then bounded_by.spent[field] = (bounded_by.spent[field] or 0) + spent end
  end
  local times, again = #tags - 1, bounded_by.again
  if times == 0 or call_settings.data_version < 7 then return end
  again[head] = (again[head] or 0) + times * count
  if spent > 0 then bounded_by.spent[head] = (bounded_by.spent[head] or 0) + times * spent end
end

-- Adds credits that a hold spent to the counts of its tags, as far as these are counted in this hour. `added` has what
-- is added by field.
function usage_by_tag.spend(added, tags, cost)
  local record, times = name_of.tag_usage(call_workspace, key_api8, call_day), -1
  local head = call_hour_of_day .. VALID .. key24() .. struct.pack('>Bc0', #key_external_id, key_external_id)
  local function add(field) added[field] = (added[field] or 0) + cost end
  local seen = {}
  for _, tag in ipairs(tags) do
    local is_first = not seen[tag]
    seen[tag] = true
    if is_first and redis.call('HEXISTS', record, head .. tag) == 1 then
      times = times + 1
      add('s' .. head .. tag)
    end
  end
  if times <= 0 or call_settings.data_version < 7 then return end
  cost = cost * times
  add('s' .. head)
  -- An export has credits of counts only.
  added[head] = 0
end
