-- Counts that are added up during a call and written at its end.

-- Texts of small numbers, because Redis takes longer to format one than to add it.
local number_texts = {}
local function text_of(number)
  local text = int(math.min(number, SAFE_INTEGER))
  if number <= 1000 then number_texts[number] = text end
  return text
end

-- Adds to a field of a record now, up to SAFE_INTEGER, so that a sum stays exact as a number of JSON. Returns whether
-- the field is new. A failure is noted, without `after_charge`: every batch calls this.
local function increase(record, field, amount)
  local sum = redis.pcall('HINCRBY', record, field, number_texts[amount] or text_of(amount))
  if sum == amount then return true end
  local is_error = not tonumber(sum)
  if is_error and not string.find(sum.err, 'overflow', 1, true) then
    note_failure(sum)
  elseif is_error or sum > SAFE_INTEGER then
    redis.call('HSET', record, field, int(SAFE_INTEGER))
  end
  return false
end

-- Adds to a field of a record at the end of the call. `bounded_by` names the record that counts what is limited:
-- {identifiers: its name}, or {tags: its name, spent: credits by field, again: counts that are repeated by their field
-- without the tag}.
local function add_total(record, field, amount, bounded_by)
  local fields = call_totals[record]
  if not fields then
    fields, call_state.is_filled = {}, true
    call_totals[record], call_total_bounds[record] = fields, bounded_by
  end
  fields[field] = (fields[field] or 0) + amount
end

-- Queues the counts by tag or identifier of a day for the sweeper, which sets the time at which it adds up their hours.
local function queue_record(kind, record)
  local id, day = string.match(record, ':(%w+):(%d+)$')
  local queue, member = name_of.rollup_queue(call_workspace, kind, id, day)
  redis.call('ZADD', queue, int(call_now), member)
end

-- Removes new counts of identifiers beyond the limit of the day; returns their number. It uses the replies of commands
-- that write, because nothing is read after the first write.
local function bound_identifiers(record, fields, identifiers)
  local new, count = {}, 0
  for _, field in ipairs(fields) do
    local identifier = string.sub(field, 4)
    if redis.call('HSETNX', identifiers, identifier, '') == 1 then
      count = count + 1
      new[count] = identifier
    end
  end
  if count == 0 then return 0 end
  local total = redis.call('HINCRBY', identifiers, '', count)
  if total == count then
    redis.call('PEXPIRE', identifiers, int(call_settings.retention + DAY_MS))
    queue_record('i', record)
  end
  local beyond, is_left_out, left_out = math.min(total - call_settings.identifiers_max, count), {}, 0
  if beyond <= 0 then return 0 end
  for index = count - beyond + 1, count do
    redis.call('HDEL', identifiers, new[index])
    is_left_out[new[index]] = true
  end
  redis.call('HINCRBY', identifiers, '', -beyond)
  -- An identifier that passed and was blocked in this call has two fields.
  for _, field in ipairs(fields) do
    if is_left_out[string.sub(field, 4)] then
      redis.call('HDEL', record, field)
      left_out = left_out + 1
    end
  end
  return left_out
end

-- The counts that the counts by tag repeat (usage_by_tag.count), less a count that is left out.
local function repeat_less(field, amount, again, spent)
  for head, count in pairs(again) do
    if string.sub(field, 1, #head) == head then
      again[head], spent[head] = count - amount, (spent[head] or 0) - (spent[field] or 0)
    end
  end
end

local function write_repeated(record, tags, again, spent)
  for head, count in pairs(again) do
    local credits = spent[head] or 0
    local is_new = count > 0 and increase(record, head, count)
    if credits > 0 then increase(record, 's' .. head, credits) end
    if is_new then redis.call('HINCRBY', tags, 'tags', (#head + 64) * (credits > 0 and 2 or 1)) end
  end
end

-- Adds the totals of this call to a record. New counts by tag beyond the limit of the day are left out, with the
-- credits of their fields. Returns the number of counts by identifier and by tag that were left out.
local function write_total(record, fields, bounded_by)
  local new, tags, spent = {}, bounded_by and bounded_by.tags, bounded_by and bounded_by.spent or {}
  local tags_left_out = 0
  for field, amount in pairs(fields) do
    local is_new = increase(record, field, amount)
    -- A count takes 64 bytes besides its field.
    local bytes = is_new and tags and (#field + 64) * (spent[field] and 2 or 1)
    local all_bytes = bytes and redis.call('HINCRBY', tags, 'tags', bytes)
    if bytes and all_bytes == bytes then queue_record('t', record) end
    if bytes and all_bytes > call_settings.tag_bytes_max then
      redis.call('HINCRBY', tags, 'tags', -bytes)
      redis.call('HDEL', record, field)
      tags_left_out = tags_left_out + 1
      repeat_less(field, amount, bounded_by.again, spent)
    else
      if is_new then new[#new + 1] = field end
      if spent[field] then increase(record, 's' .. field, spent[field]) end
    end
  end
  if tags then write_repeated(record, tags, bounded_by.again, spent) end
  if #new == 0 then return 0, tags_left_out end
  redis.call('PEXPIRE', record, int(call_settings.retention + DAY_MS))
  if not bounded_by or not bounded_by.identifiers then return 0, tags_left_out end
  return bound_identifiers(record, new, bounded_by.identifiers), tags_left_out
end

-- Writes all totals. Returns the number of counts by identifier and by tag that were left out.
local function write_totals()
  if not call_state.is_filled then return 0, 0 end
  local identifiers_left_out, tags_left_out = 0, 0
  for record, fields in pairs(call_totals) do
    local identifiers, tags = after_charge(write_total, record, fields, call_total_bounds[record])
    identifiers_left_out, tags_left_out = identifiers_left_out + (identifiers or 0), tags_left_out + (tags or 0)
  end
  return identifiers_left_out, tags_left_out
end
