-- The audit log of management changes: a stream, of which src/records/audit.ts reads the events.

-- Limits of an event, in bytes: of each value, and of all its changes. Further changes have no values.
local VALUE_BYTES_MAX, CHANGES_BYTES_MAX = 200, 2000

-- A value as text; nil for none. Long text is cut between characters, and ends with `…`.
local function value_text(value)
  if value == nil or value == '' or value == cjson.null then return nil end
  if type(value) == 'boolean' then return tostring(value) end
  if type(value) == 'number' then return int(value) end
  if #value <= VALUE_BYTES_MAX then return value end
  local last = VALUE_BYTES_MAX
  -- Bytes from 128 to 191 continue a character of UTF-8.
  while last > 1 and string.byte(value, last + 1) >= 128 and string.byte(value, last + 1) < 192 do
    last = last - 1
  end
  return string.sub(value, 1, last) .. '…'
end

-- The changes that differ as JSON [{field, before, after, keyIds}…], or nil for none. Each is {field, before, after,
-- whether they differ even if their texts do not, the ids of the keys if these are several}.
local function changes_text(changes)
  local list, bytes = {}, 0
  for _, change in ipairs(changes) do
    local before, after = change[2], change[3]
    if value_text(before) ~= value_text(after) or before ~= after and type(before) == type(after) or change[4] then
      local entry = { field = change[1], before = value_text(before), after = value_text(after), keyIds = change[5] }
      bytes = bytes + #(entry.before or '') + #(entry.after or '')
      list[#list + 1] = bytes <= CHANGES_BYTES_MAX and entry or { field = change[1], keyIds = change[5] }
    end
  end
  return #list > 0 and cjson.encode(list) or nil
end

-- Writes the event of a management change, in the script that makes the change. `actor` is JSON {rootKeyId, operation,
-- requestId, address, isQuiet (no event is written), auditEventsMax, recordsMax}. `changes` are those of changes_text;
-- they never have a secret. Redis removes the oldest events beyond auditEventsMax; with `~` it may keep a few more.
local function audit(workspace, now, actor, resource_type, resource_id, changes)
  local caller = cjson.decode(actor)
  if caller.isQuiet then return end
  -- stylua: ignore
  local fields = {
    'time', int(now), 'rootKeyId', caller.rootKeyId, 'operation', caller.operation,
    'type', resource_type, 'id', resource_id, 'requestId', caller.requestId,
  }
  local text = changes_text(changes)
  for name, value in pairs({ address = caller.address, changes = text }) do
    if value ~= '' then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  redis.call('XADD', name_of.audit_stream(workspace), 'MAXLEN', '~', caller.auditEventsMax, '*', unpack(fields))
end
