#!lua name=decide
-- Decide a batch: verifications of keys and rate-limit checks of one workspace, each under its root key, in the order
-- given. Each item is decided, charged and counted on its own; a bad record fails its own item only.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  key, API, identity, namespace and root key records, permissions, roles, window counters, usage counts
-- ARGV[1]  retention   milliseconds for which usage counts are kept
-- ARGV[2]  usage_max   how many tags an API may count, how many bytes its counts by tag may take a day, and how many identifiers
--                      a namespace may count a day, and how many records the workspace may have (0 is no bound); with a blank
--                      between them
-- ARGV[3]  digests     SHA-256 of each distinct root key of the batch, 32 bytes each
-- ARGV[4]  items       packed, one after the other: bytes that follow (4), kind (1), root (1, index into digests from 1), then
--   1 verify  key digest (32), cost (7), known version, then nothing or JSON {query, limits: [[name, cost] or
--             [name, cost, limit, duration]], tags}
--   2 limit   number of checks (1), each: cost (7), limit (7), duration (7), namespace and identifier (each its length
--             in 2, then itself). All checks pass and are charged, or none is.
-- ARGV[5]  now_ms      '' for Redis's clock
-- returns  {head and packed answers, how many counts by identifier and by tag were left out, then in the same order shown of each
--          whose known version is out of date}
--   head      now (6), number of answers (1), each: its length, plus 32768 if its shown follows the answers (2). There are
--             fewer answers than items when the call took long, see WORK_MAX: the caller sends the other items again.
--   verify    outcome (1), 128 more if its shown was returned with an answer before; 1 if the key has
--             a balance (1), balance (7), number of limits (1), each: which (1: up to 50 of the key, 100 + n of the
--             identity, 200 + n the request's n-th), exceeded (1), remaining (7), reset (7)
--   limit     outcome (1), number of checks (1), each: passed (1), limit (7), remaining (7), reset (7), the override's id
--             (its length in 1, then itself)
--   not found its outcome (1)
--   refused   see REFUSED (1), what it is about as text (its length in 2, then itself)
--   shown     version, key id (24), 1 if enabled (1), expires or NEVER (6), name (length + 1
--             in 2, then itself; 0 for none), meta (the same in 4), slugs, or lists of numbers, as effective_slugs
--             answers them, joined by line breaks (their length in 4, then themselves), names of roles (how many in 2, each
--             its length in 2, then itself), limits as they are configured in a state; then, if there is an identity, its
--             id (16), externalId (length in 2, then itself), meta as above, and limits
--   version   that of the key (8), then those of its identity and of permissions if it has them (their length in 1, then
--             themselves). Zeros are no version. A caller keeps it as it is and sends it back.
--
-- Why one script for both: what arrives in one turn of the event loop travels, and is answered, as one call.
--
-- Why a library (FUNCTION LOAD, FCALL): a script makes its functions anew with every call, which took longer than deciding
-- a small batch; those of a library stay. What a call is about is set by decide_batch, at the end of the file.

-- @include "include/clock"
-- @include "include/outcomes"
-- @include "include/names"
-- @include "include/grants"
-- @include "include/state"
-- @include "include/window"
-- @include "include/counters"
-- @include "include/calendar"
-- @include "include/permissions"
-- @include "include/usage"
-- @include "include/ids"
-- @include "include/overrides"
-- @include "include/records"

-- What a call is about.
local workspace, retention, digests, items, now, hour, day, hour_of_day
local usage_max, tags_max, tag_bytes_max, identifiers_max
-- What several items of a call share is read once.
local roots, apis, namespaces, totals, bounds, rbac_version

local REFUSED = {
  unauthorized = 20, root_key_disabled = 21, root_key_expired = 22, insufficient_permissions = 23,
  limit_not_found = 24, namespace_not_found = 25, create_namespace = 26, too_many_counters = 27, too_many_records = 28, failed = 30,
}
local ok_limit, ok_blocked = 10, 11
-- Added to an outcome, and to the length of an answer.
local SHOWN_BEFORE, WITH_SHOWN = 128, 32768
-- The fixed part of a state from its version on, and the length of its link.
local DECIDES = '>I6I2c8BI6I7BI2'

local function refuse(reason, about)
  about = about or ''
  return struct.pack('>BI2c0', REFUSED[reason], #about, about)
end

-- What was worked out once stays with the library: texts of at most so many bytes, and so many bytes of them in all. Many keys
-- are asked the same, and reading a query and holding it against permissions took longer than all the rest.
local REMEMBERED_BYTES_MAX, REMEMBERED_TOTAL_MAX = 1024, 524288
local remembered, remembered_bytes = {}, 0
local function remember(text, value)
  if #text > REMEMBERED_BYTES_MAX then return end
  -- The value and its place in the table are counted as 256 bytes.
  remembered_bytes = remembered_bytes + #text + 256
  if remembered_bytes > REMEMBERED_TOTAL_MAX then remembered, remembered_bytes = {}, #text + 256 end
  remembered[text] = value
end

-- The work that a call has done, in units of about a microsecond, and how much of it ends a call: the items that are left are
-- the next call's, so that no mixture of expensive items keeps Redis for as long as all of them take. Counted coarsely: what
-- grows with the data, where it is read; all else by the bytes of an item and of its answer.
local work = 0
local WORK_MAX = 2500

-- What a root key with these grants may do to everything, and to anything at all. It is shared: do not change it.
local function held_of(grants)
  local held = remembered[grants]
  if not held then
    held = { verifies = holds(grants, 'api', '*', 'verify_key'), limits = holds(grants, 'ratelimit', '*', 'limit'),
      verifies_any = holds_any(grants, 'verify_key'), limits_any = holds_any(grants, 'limit') }
    remember(grants, held)
  end
  return held
end

-- What is met for the first time in a call: those who ask look it up by themselves before.
local function root_at(index)
  local status, grants = authenticate(workspace, string.sub(digests, index * 32 - 31, index * 32), now)
  local held = held_of(grants)
  work = work + #grants / 400
  local root = { status = status, grants = grants, verifies_all = held.verifies, limits_all = held.limits,
    verifies_any = held.verifies_any, limits_any = held.limits_any }
  roots[index] = root
  return root
end

-- An API with what this batch counts for it: {id or false when it was deleted, counts by outcome, credits spent, digests of its
-- keys of which what is shown was told}.
local function api_at(api8)
  local counts = {}
  for outcome = 1, OUTCOMES_COUNTED do counts[outcome] = 0 end
  local api = { id = redis.call('HGET', api_record(workspace, api8), 'id'), counts = counts, spent = 0, told = {} }
  apis[api8] = api
  return api
end

-- May it, which may not do so to all, do so to the resource with this id? Found out once a call.
local function may(root, resource, id, action)
  root.held = root.held or {}
  local held = root.held[id]
  if held == nil then
    held = lists(root.grants, resource .. '.' .. id .. '.' .. action)
    work = work + #root.grants / 4000
    root.held[id] = held
  end
  return held
end

-- Another when a permission or role of the workspace went or became another; new ones are on no list of a key yet. Read once
-- a call, and only if wanted.
local function rbac_version_now()
  rbac_version = rbac_version or redis.call('HGET', workspace, 'rbac') or ''
  return rbac_version
end

-- The flags of a state, by their number.
local flag_sets = {}
local function flags_at(number)
  local flags = { enabled = has_flag(number, ENABLED), limited = has_flag(number, LIMITED), refilled = has_flag(number, REFILLED),
    deleted = has_flag(number, DELETED), permissions = has_flag(number, DIRECT) or has_flag(number, ROLES) }
  flag_sets[number] = flags
  return flags
end

-- Adds to a total of this call, written at its end. `bounded_by` names the record that knows how much there is already:
-- {identifiers}, or {tags, spent: credits by field}.
local function add_total(record, field, amount, bounded_by)
  local fields = totals[record]
  if not fields then
    fields = {}
    totals[record], bounds[record] = fields, bounded_by
  end
  fields[field] = (fields[field] or 0) + amount
end

-- The limits that a verification takes part in are weighed one after the other, and what they would hold with it counted is
-- made at once: nearly always all of them pass. What is known of them lies in tables that every item of the batch uses again,
-- as a table for each limit of each verification would be most of the work.
--   selected, over   how many take part, and whether one of them is exceeded
--   taking           whether units are taken at all
--   ahead            whether a window was charged by a clock that was ahead: then `over` is set, and nothing else to be believed
--   told             what is answered of each, one after the other: which, exceeded, remaining, reset
--   owned            counters of the request's own limits as they will be, as write_counters takes them, or nil
-- and of the limits that a state keeps, by their number there, an identity's from 101:
--   follows_of       what follows the old bytes that stay of its window; false where nothing is taken
--   kept_of, last_of the last of these bytes, and of the window
local selected, over, taking, owned, ahead = 0, false, true, nil, false
local told, follows_of, kept_of, last_of = {}, {}, {}, {}

-- A limit takes part. Answers what window_taken does of its bytes; settled ones when the clock was ahead.
local function weigh(as, limit, duration, cost, text, first, last)
  local total, live, oldest, kept, follows = window_taken(text, first, last, now, limit, duration, cost, taking and not over)
  if not total then
    over, ahead = true, true
    return first - 1, settled_window(string.sub(text, first, last), now, duration)
  end
  local remaining, at = limit - total, 4 * selected
  selected = selected + 1
  told[at + 1] = as
  if remaining < cost then
    over = true
    told[at + 2], told[at + 3] = 1, remaining > 0 and remaining or 0
    told[at + 4] = window_free_at(text, first, total, live, now, limit, duration, cost)
  else
    told[at + 2], told[at + 3] = 0, follows and remaining - cost or remaining
    told[at + 4] = window_reset(oldest, duration)
  end
  return kept, follows
end

-- Weighs those limits of a state that take part. `costs` has what the request wants by name (nil where it names none):
-- {name, cost, limit of its own}; `names` collects the names that were met, so that the first of a name wins. A limit of the
-- request's own replaces the key's of that name, and not the identity's. Answers the lengths of all its windows as they will be.
local sole, identity_sole = {}, {}
local function select_packed(packed, position, tail_bytes, offset, costs, names)
  local count = string.byte(packed, position)
  position = position + 1
  -- One window alone lies between its limit and its length (2).
  local lengths, window_first, window_last = offset == 0 and sole or identity_sole, nil, nil
  if count > 1 then lengths, window_first = window_lengths(packed, count, tail_bytes) end
  for number = offset + 1, offset + count do
    local limit, duration, auto, name_bytes = struct.unpack(LIMIT, packed, position)
    local name_at = position + LIMIT_BYTES + LIMIT_ID_BYTES
    position = name_at + name_bytes
    if count > 1 then window_last = window_first + lengths[number - offset] - 1 else window_first, window_last = position, #packed - tail_bytes - 2 end
    follows_of[number] = false
    local name = names and string.sub(packed, name_at, position - 1)
    if not names or not names[name] then
      if names then names[name] = true end
      local wanted = costs and costs[name]
      if wanted and wanted[3] and offset > 0 then wanted = nil end
      if wanted and not wanted[3] or auto == 1 and not wanted then
        local kept, follows = weigh(number, limit, duration, wanted and wanted[2] or 1, packed, window_first, window_last)
        if follows then
          follows_of[number], kept_of[number], last_of[number] = follows, kept, window_last
          lengths[number - offset] = kept - window_first + 1 + #follows
        end
      end
    end
    window_first = window_last + 1
  end
  return lengths
end

-- Where the window lies that a state keeps for this name and duration, and of which limit it is; or nil.
local function find_window(packed, position, tail_bytes, wanted_name, wanted_duration)
  local count
  count, position = struct.unpack('>B', packed, position)
  local lengths, window_first = window_lengths(packed, count, tail_bytes)
  for index = 1, count do
    local _, duration, _, name_bytes = struct.unpack(LIMIT, packed, position)
    local name_at = position + LIMIT_BYTES + LIMIT_ID_BYTES
    position = name_at + name_bytes
    if duration == wanted_duration and string.sub(packed, name_at, position - 1) == wanted_name then
      return window_first, window_first + lengths[index] - 1, index
    end
    window_first = window_first + lengths[index]
  end
end

-- Selects the limits of a verification: every autoApply limit and every one the request names, the key's before the
-- identity's of the same name. `wanted` is the request's list or nil. Answers the lengths of the key's windows and of its
-- identity's, and a refusal, if any.
local function select_limits(packed, limits_at, identity_packed, wanted, api8)
  ahead = false
  if not wanted and not identity_packed then return select_packed(packed, limits_at, TAIL_BYTES, 0) end
  local costs, names, identity_lengths, room = nil, {}, nil, nil
  if wanted then
    costs = {}
    for _, item in ipairs(wanted) do costs[item[1]] = item end
  end
  local lengths = select_packed(packed, limits_at, TAIL_BYTES, 0, costs, names)
  if identity_packed then
    identity_lengths = select_packed(identity_packed, IDENTITY_LIMITS_AT, 0, 100, costs, names)
  end
  for index, item in ipairs(wanted or {}) do
    local name, cost, limit, duration = item[1], item[2], item[3], item[4]
    if limit then
      -- For this call only, on the key's counter of that name and duration, wherever that is kept.
      local first, last, number = find_window(packed, limits_at, TAIL_BYTES, name, duration)
      if number then
        local kept, follows = weigh(200 + index, limit, duration, cost, packed, first, last)
        if follows then
          follows_of[number], kept_of[number], last_of[number] = follows, kept, last
          lengths[number] = kept - first + 1 + #follows
        end
      else
        local key24, member = string.sub(packed, 1, 16) .. api8, window_member(duration, name)
        local window = redis.call('GET', window_at(workspace, key24, member)) or ''
        local kept, follows = weigh(200 + index, limit, duration, cost, window, 1, #window)
        if follows then
          owned = owned or {}
          owned[#owned + 1] = { member, string.sub(window, 1, kept) .. follows, duration, window == '' }
          if window == '' then
            room = (room or counters_room(workspace, key24, now)) - 1
            if room < 0 then return lengths, identity_lengths, refuse('too_many_counters', name) end
          end
        end
      end
    elseif not names[name] then
      return lengths, identity_lengths, refuse('limit_not_found', name)
    end
  end
  return lengths, identity_lengths, nil
end

-- How a state is packed of which so many bytes stay: one string is made of it all, where joining would make and hash the
-- parts as well. What follows is the end of one window, its length, and of a key the tail; or the tail alone.
local tail_formats, key_formats, identity_formats = {}, {}, {}
local WINDOW_END = 'c0I2'
local KEY_END = WINDOW_END .. TAIL
-- Most states have one of a few hundred lengths, but there are 65,000: a thousand formats of a kind are kept.
local function new_format(formats, kept, rest)
  formats.made = (formats.made or 0) + 1
  if formats.made > 1000 then
    for length in pairs(formats) do formats[length] = nil end
    formats.made = 1
  end
  local format = '>c' .. kept .. rest
  formats[kept] = format
  return format
end

-- The state of a key, or of its identity, with what is taken of its limits, `count` of them and the first of number
-- `offset` + 1; `lengths` are those of all its windows. Of a key the numbers of its tail follow. nil when nothing is taken.
local pieces = {}
local function charged_state(packed, count, offset, lengths, ...)
  if count == 1 then
    local follows, kept = follows_of[offset + 1], kept_of[offset + 1]
    if not follows then return nil end
    local format = offset == 0 and (key_formats[kept] or new_format(key_formats, kept, KEY_END))
      or identity_formats[kept] or new_format(identity_formats, kept, WINDOW_END)
    return struct.pack(format, packed, follows, lengths[1], ...)
  end
  local copied, made = 0, 0
  for number = offset + 1, offset + count do
    local follows = follows_of[number]
    if follows then
      pieces[made + 1] = string.sub(packed, copied + 1, kept_of[number])
      pieces[made + 2] = follows
      copied, made = last_of[number], made + 2
    end
  end
  if made == 0 then return nil end
  local tail = offset == 0 and struct.pack(LIVE_USAGE, ...) or ''
  pieces[made + 1] = string.sub(packed, copied + 1, #packed - #tail - 2 * count)
  pieces[made + 2] = struct.pack(lengths_format(count), unpack(lengths, 1, count))
  pieces[made + 3] = tail
  return table.concat(pieces, '', 1, made + 3)
end

-- Writes a state, its identity's, and counters of the key, with the windows settled that were charged by a clock that was ahead.
local function settle_states(record, packed, limits_at, external_id, identity_packed, wanted, api8)
  -- As `over` is set, nothing is taken this time.
  owned = nil
  local lengths, identity_lengths = select_limits(packed, limits_at, identity_packed, wanted, api8)
  local state = charged_state(packed, string.byte(packed, limits_at), 0, lengths, struct.unpack(LIVE_USAGE, packed, #packed - TAIL_BYTES + 1))
  if state then redis.call('HSET', record, 'state', state) end
  local identity_state = identity_packed and charged_state(identity_packed, string.byte(identity_packed, IDENTITY_LIMITS_AT), 100, identity_lengths)
  if identity_state then redis.call('HSET', identity_record(workspace, external_id), 'state', identity_state) end
  if owned then write_counters(workspace, string.sub(packed, 1, 16) .. api8, owned, now) end
end

-- Lua allows 200 locals at a time: what only one function uses ends with its block.
local shown_of
do
local function pack_texts(texts)
  local parts = { struct.pack('>I2', #texts) }
  for index, text in ipairs(texts) do parts[index + 1] = struct.pack('>I2c0', #text, text) end
  return table.concat(parts)
end

-- The limits of a state as they are configured, how many before them.
local function packed_limits(packed, limits_at, tail_bytes)
  local count = string.byte(packed, limits_at)
  if count == 0 then return '\0' end
  local _, windows_at = window_lengths(packed, count, tail_bytes)
  return string.sub(packed, limits_at, windows_at - 1)
end

-- What an answer shows beside the decision; told only when the caller does not hold this version yet. With more keys than
-- a caller remembers that is most verifications, so it is made as one string. `cold` is {state, name, meta} of the key and
-- `identity_cold` {state, meta} of its identity, where they were read already.
local SHOWN = '>I6I2Bc0c16c20BI6I2c0I4c0I4c0c0c0'
local SHOWN_WITH_IDENTITY = SHOWN .. 'c16I2c0I4c0c0'
shown_of = function(record, version_time, version_number, more, packed, api_id, flags, expires, limits_at, external_id, identity_packed, cold, identity_cold)
  local slugs, names = '', '\0\0'
  if flags.permissions then
    local held = redis.call('HMGET', record, 'direct', 'roles')
    local found, given = effective_slugs(workspace, held[1] or '', held[2] or '')
    slugs = table.concat(found, '\n')
    names = pack_texts(names_of_roles(workspace, held[2] or ''))
    work = work + 3 * #found + given / 50
  end
  cold = cold or redis.call('HMGET', record, 'state', 'name', 'meta')
  local name, meta = cold[2], cold[3]
  local format, identity_meta, identity_limits = SHOWN, nil, nil
  if identity_packed then
    format = SHOWN_WITH_IDENTITY
    identity_meta = (identity_cold or redis.call('HMGET', identity_record(workspace, external_id), 'state', 'meta'))[2]
    identity_limits = packed_limits(identity_packed, IDENTITY_LIMITS_AT, 0)
  end
  -- What a format does not name is passed over.
  return struct.pack(format, version_time, version_number, #more, more, packed, api_id, flags.enabled and 1 or 0, expires,
    name and #name + 1 or 0, name or '', meta and #meta + 1 or 0, meta or '', #slugs, slugs, names, packed_limits(packed, limits_at, TAIL_BYTES),
    identity_packed, #external_id, external_id, identity_meta and #identity_meta + 1 or 0, identity_meta or '', identity_limits)
end
end

-- The tags that are counted, each once. A caller cannot fill the store with names: beyond so many tags an API counts no
-- new ones.
local function counted_tags(tags, api8)
  local known = tag_names(workspace, api8)
  local room, seen, counted = tags_max - redis.call('SCARD', known), {}, {}
  for _, tag in ipairs(tags) do
    if not seen[tag] then
      seen[tag] = true
      local is_known = redis.call('SISMEMBER', known, tag) == 1
      if is_known or room > 0 then counted[#counted + 1] = tag end
      if not is_known then room = room - 1 end
    end
  end
  return counted
end

local function count_tags(tags, key24, external_id, outcome, spent)
  if #tags == 0 then return end
  local api8 = string.sub(key24, 17)
  local known, record = tag_names(workspace, api8), tag_usage(workspace, api8, day)
  local bounded_by = bounds[record] or { tags = api_usage(workspace, api8, day), spent = {} }
  redis.call('SADD', known, unpack(tags))
  redis.call('PEXPIRE', known, int(retention))
  local head = hour_of_day .. outcome .. key24 .. struct.pack('>Bc0', #external_id, external_id)
  for _, tag in ipairs(tags) do
    local field = head .. tag
    add_total(record, field, 1, bounded_by)
    if spent > 0 then bounded_by.spent[field] = (bounded_by.spent[field] or 0) + spent end
  end
end

-- Lua allows 200 locals at a time: what only one function uses ends with its block.
local limit
do
-- A namespace that is met, with where this call counts for it and for its identifiers; false where there is none.
local function meet_namespace(name, namespace)
  if namespace then
    namespace.usage, namespace.identifiers = namespace_usage(workspace, namespace.id16, day), identifier_usage(workspace, namespace.id16, day)
    namespace.bounded_by = { identifiers = identifiers_counted(workspace, namespace.id16, day) }
  end
  namespaces[name] = namespace or false
  return namespace
end

-- The counter of a check, one of `counters` by name: {name, before, text, duration, asked} and, once it is weighed, total, live and oldest as
-- window_taken answers them. `before` is what it held and `text` what it is to hold; a namespace `is_new` has nothing to read.
-- `asked` is the cost of the checks so far that fit.
local function counter_of(counters, namespace, check, is_new)
  local name = window_at(workspace, namespace.id16, window_member(check.duration, check.identifier))
  local counter = counters[name]
  if not counter then
    local text = not is_new and redis.call('GET', name) or ''
    counter = { name = name, before = text, text = text, duration = check.duration, asked = 0, total = 0, live = false, oldest = 0 }
    counters[name] = counter
  end
  return counter
end

limit = function(position, _last, root_index)
  local root, count = roots[root_index] or root_at(root_index), nil
  count, position = struct.unpack('>B', items, position)
  if root.status ~= 'ok' then return refuse(root.status) end
  if not root.limits_any then
    return refuse('insufficient_permissions', 'ratelimit.*.limit')
  end

  -- Permission for all of it comes before anything is made.
  local checks, missing = {}, {}
  for index = 1, count do
    local cost, most, duration, name, identifier
    cost, most, duration, name, identifier, position = struct.unpack('>I7I7I7I2c0I2c0', items, position)
    local namespace = namespaces[name]
    if namespace == nil then namespace = meet_namespace(name, find_namespace(workspace, name)) end
    if not namespace then
      if string.sub(name, 1, 5) == 'rlns_' then return refuse('namespace_not_found', name) end
      if not root.limits_all then return refuse('insufficient_permissions', 'ratelimit.*.limit') end
      if not holds(root.grants, 'ratelimit', '*', 'create_namespace') then return refuse('create_namespace', name) end
      if not missing[name] then missing[name], missing[#missing + 1] = true, name end
    elseif not root.limits_all and not may(root, 'ratelimit', 'rlns_' .. namespace.id16, 'limit') then
      return refuse('insufficient_permissions', 'ratelimit.*.limit or ratelimit.rlns_' .. namespace.id16 .. '.limit')
    end
    -- With all that it will have: a table that grows is made anew.
    checks[index] = { cost = cost, limit = most, duration = duration, namespace = namespace, name = name, identifier = identifier,
      override = '', counter = false, fits = false, together = 0 }
  end

  -- All that is read is read before the first write. A namespace that is yet to be made has nothing to read.
  local counters = {}
  for index = 1, count do
    local check = checks[index]
    local namespace = check.namespace
    if namespace then
      local is_parsed = namespace.wildcards
      local override = override_for(workspace, namespace, check.identifier)
      if namespace.wildcards then work = work + #namespace.wildcards * (is_parsed and 1 or 3) end
      if override then check.limit, check.duration, check.override = override.limit, override.duration, override.id16 end
      check.counter = counter_of(counters, namespace, check, false)
    end
  end
  if #missing > 0 then
    local records_max = string.match(usage_max, '%d+$')
    if not has_room_for_records(workspace, #missing, tonumber(records_max)) then return refuse('too_many_records', records_max) end
    local next_id = take_stamps(workspace, now, #missing)
    for _, name in ipairs(missing) do
      if not namespaces[name] then meet_namespace(name, create_namespace(workspace, name, next_id())) end
    end
    for _, check in ipairs(checks) do
      if not check.namespace then
        check.namespace = namespaces[check.name]
        check.counter = counter_of(counters, check.namespace, check, true)
      end
    end
  end

  -- Checks on one counter add up, so they are weighed one after the other on the same window.
  local passed = true
  for index = 1, count do
    local check = checks[index]
    local counter, cost, most = check.counter, check.cost, check.limit
    local text = counter.text
    -- A limit of 0 blocks completely, a look included.
    local total, _, oldest, kept, follows = window_taken(text, 1, #text, now, most, check.duration, cost, most > 0)
    if not total then
      text = settled_window(text, now, check.duration)
      redis.call('SET', counter.name, text, 'PX', window_ttl(check.duration))
      counter.before, counter.text = text, text
      total, _, oldest, kept, follows = window_taken(text, 1, #text, now, most, check.duration, cost, most > 0)
    end
    local fits = most > 0 and total + cost <= most
    if follows then
      counter.text = string.sub(text, 1, kept) .. follows
      total = total + cost
    end
    check.together = counter.asked + cost
    if fits then counter.asked = check.together end
    counter.total, counter.oldest, check.fits = total, oldest, fits
    passed = passed and fits
  end
  if passed then
    for name, counter in pairs(counters) do
      if counter.text ~= counter.before then redis.call('SET', name, counter.text, 'PX', window_ttl(counter.duration)) end
    end
  else
    for _, counter in pairs(counters) do
      local before = counter.before
      counter.total, counter.live, counter.oldest = window_taken(before, 1, #before, now, 0, counter.duration, 0, false)
    end
  end

  local answer, field = { struct.pack('>BB', passed and ok_limit or ok_blocked, count) }, hour_of_day .. (passed and 'p' or 'b')
  for index = 1, count do
    local check = checks[index]
    local counter, namespace, fits, most, override = check.counter, check.namespace, check.fits, check.limit, check.override
    local remaining, reset = most - counter.total, nil
    if fits then
      reset = window_reset(counter.oldest, check.duration)
    else
      -- What earlier checks of this call ask for of the counter has to fit as well.
      reset = window_free_at(counter.before, 1, counter.total, counter.live, now, most, check.duration, check.together)
    end
    answer[index + 1] = struct.pack('>BI7I7I7Bc0', fits and 1 or 0, most, remaining > 0 and remaining or 0, reset, #override, override)
    add_total(namespace.usage, field, 1)
    add_total(namespace.identifiers, field .. check.identifier, 1, namespace.bounded_by)
  end
  return table.concat(answer)
end
end

-- The counts of a key's outcomes beside VALID (4 bytes each), with one more of this outcome.
local NO_REFUSALS = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local function one_more(refusals, outcome)
  local at = 4 * (outcome - DISABLED)
  return string.sub(refusals, 1, at) .. struct.pack('>I4', struct.unpack('>I4', refusals, at + 1) + 1) .. string.sub(refusals, at + 5)
end

-- How the answer of a verification with so many limits is packed.
local answer_formats = {}
local function verified(outcome, has_balance, balance)
  if selected == 1 then
    return struct.pack('>BBI7BBBI7I7', outcome, has_balance and 1 or 0, balance, 1, told[1], told[2], told[3], told[4])
  end
  local format = answer_formats[selected]
  if not format then
    format = '>BBI7B' .. string.rep('BBI7I7', selected)
    answer_formats[selected] = format
  end
  return struct.pack(format, outcome, has_balance and 1 or 0, balance, selected, unpack(told, 1, 4 * selected))
end

-- What a verification asks for beside its key. Nobody may change it.
local function request_of(text)
  local request = remembered[text]
  if not request then
    request = cjson.decode(text)
    remember(text, request)
  end
  return request
end

-- Does the query of this request, whose text this is, hold for the key? While the version of permissions and roles and the
-- key's own lists are the same, the answer is.
local function is_permitted(query, text, record, has_permissions)
  local direct, roles = '', ''
  if has_permissions then
    local lists = redis.call('HMGET', record, 'direct', 'roles')
    direct, roles = lists[1] or '', lists[2] or ''
  end
  local question = table.concat({ workspace, rbac_version_now(), text, direct, roles }, '\n')
  local permitted = remembered[question]
  if permitted == nil then
    local bytes
    permitted, bytes = permits(workspace, query, direct, roles)
    work = work + bytes / 50
    remember(question, permitted)
  end
  return permitted
end

-- The balance of a key with a refill, and when the next is due. A due time more than two periods away was set by a clock that
-- was ahead: the next is due as it would be without.
local function refilled(digest, balance, amount, due, refill_day)
  if now >= due then return amount, refill_after(now, refill_day) end
  if due - now > (refill_day == 0 and 2 or 62) * DAY_MS then
    due = refill_after(now, refill_day)
    redis.call('ZADD', refill_queue(workspace), due, digest)
  end
  return balance, due
end

-- The functions that decide an item take where its fields begin in `items`, where they end, and which root key it came
-- under. They answer the packed answer, and what is shown if that is wanted; nothing when windows had to be settled first and
-- the item is to be decided again.
local function verify(position, last, root_index)
  local root = roots[root_index] or root_at(root_index)
  local digest, cost, known_time, known_number, known_more
  digest, cost, known_time, known_number, known_more, position = struct.unpack('>c32I7I6I2Bc0', items, position)
  if root.status ~= 'ok' then return refuse(root.status) end
  if not root.verifies_any then
    return refuse('insufficient_permissions', 'api.*.verify_key')
  end

  local record = key_record(workspace, digest)
  -- A caller that holds no version will be told what is shown: that is read in the same breath.
  local packed, cold, identity_cold
  if known_time > 0 then
    packed = redis.call('HGET', record, 'state')
  else
    cold = redis.call('HMGET', record, 'state', 'name', 'meta')
    packed = cold[1]
  end
  if not packed then return struct.pack('>B', NOT_FOUND) end
  -- The first 16 characters of the id are rarely wanted.
  local version_time, version_number, api8, flag_number, expires, amount, refill_day, link_bytes = struct.unpack(DECIDES, packed, 17)
  local tail_at, limits_at = #packed - TAIL_BYTES + 1, LINK_AT + 2 + link_bytes
  local balance, due, last_used, counted_hour, valid, refusals, spent = struct.unpack(LIVE_USAGE, packed, tail_at)
  local flags = flag_sets[flag_number] or flags_at(flag_number)
  local api = apis[api8] or api_at(api8)
  if flags.deleted or not api.id or not (root.verifies_all or may(root, 'api', api.id, 'verify_key')) then return struct.pack('>B', NOT_FOUND) end

  local text = position <= last and string.sub(items, position, last)
  local request = text and request_of(text)
  local identity_packed, external_id, former_id = nil, '', ''
  if link_bytes > 0 then
    external_id = string.sub(packed, LINK_AT + 18, limits_at - 1)
    if cold then
      identity_cold = redis.call('HMGET', identity_record(workspace, external_id), 'state', 'meta')
      identity_packed = identity_cold[1]
    else
      identity_packed = redis.call('HGET', identity_record(workspace, external_id), 'state')
    end
    -- A deleted identity is gone from its keys at once; a new one of the same name is another. What was counted under it
    -- stays with it; what follows is not its.
    if not identity_packed or string.sub(identity_packed, 1, 16) ~= string.sub(packed, LINK_AT + 2, LINK_AT + 17) then
      identity_packed, external_id, former_id = nil, '', external_id
    else
      former_id = external_id
    end
  end
  local forgotten = external_id ~= former_id

  if flags.refilled then balance, due = refilled(digest, balance, amount, due, refill_day) end

  -- Decide, in the order of docs/contract.md §6; the first hit wins.
  local outcome = VALID
  selected, over, owned = 0, false, nil
  if not flags.enabled then
    outcome = DISABLED
  elseif now >= expires then
    outcome = EXPIRED
  elseif request and request.query then
    if not is_permitted(request.query, text, record, flags.permissions) then outcome = INSUFFICIENT_PERMISSIONS end
  end
  local lengths, identity_lengths, refused
  if outcome == VALID then
    local wanted, affordable = request and request.limits, not flags.limited or balance >= cost
    taking = affordable
    lengths, identity_lengths, refused = select_limits(packed, limits_at, identity_packed, wanted, api8)
    if refused then return refused end
    if over then
      if ahead then return settle_states(record, packed, limits_at, external_id, identity_packed, wanted, api8) end
      outcome = RATE_LIMITED
      -- What was taken of others before is not; they are answered as they are.
      if selected > 1 then
        selected = 0
        select_limits(packed, limits_at, identity_packed, wanted, api8)
      end
    elseif not affordable then
      outcome = USAGE_EXCEEDED
    end
  end

  -- All that is read is read before the first write, so that a broken record charges nothing.
  local shown, shown_before
  local more = identity_packed and string.sub(identity_packed, 17, IDENTITY_LIMITS_AT - 1) or ''
  if flags.permissions then more = more .. rbac_version_now() end
  if version_time ~= known_time or version_number ~= known_number or more ~= known_more then
    -- Once a call: who asks many times at once for a key of which nothing is known yet would be told as often.
    shown_before = api.told[digest]
    shown = not shown_before and shown_of(record, version_time, version_number, more, packed, api.id, flags, expires, limits_at, external_id, identity_packed, cold, identity_cold)
  end
  local tags = request and request.tags and counted_tags(request.tags, api8)

  -- Count, in the hour this falls into.
  local rolled = counted_hour ~= hour or forgotten
  if rolled then valid, refusals, spent = 0, NO_REFUSALS, 0 end

  -- Charge, all of it or nothing.
  if outcome == VALID then
    valid = valid + 1
    if flags.limited then balance, spent = balance - cost, spent + cost end
    last_used = now
  else
    refusals = one_more(refusals, outcome)
  end
  local state, identity_state
  if outcome == VALID and selected > 0 then
    state = charged_state(packed, string.byte(packed, limits_at), 0, lengths,
      balance, due, last_used, hour, valid, refusals, spent)
    if identity_packed then identity_state = charged_state(identity_packed, string.byte(identity_packed, IDENTITY_LIMITS_AT), 100, identity_lengths) end
  end
  state = state or struct.pack(tail_formats[tail_at - 1] or new_format(tail_formats, tail_at - 1, TAIL), packed,
    balance, due, last_used, hour, valid, refusals, spent)
  if forgotten then state = string.sub(state, 1, FIXED_BYTES) .. '\0\0' .. string.sub(state, limits_at) end

  local answer = verified(outcome + (shown_before and SHOWN_BEFORE or 0), flags.limited, balance)

  -- Write. What comes after the first line is only what cannot fail once that has not.
  redis.call('HSET', record, 'state', state)
  if identity_state then redis.call('HSET', identity_record(workspace, external_id), 'state', identity_state) end
  if outcome == VALID and owned then write_counters(workspace, string.sub(packed, 1, 16) .. api8, owned, now) end
  if rolled then
    flush_usage(workspace, string.sub(packed, 1, 16) .. api8, former_id, string.sub(packed, tail_at + LIVE_BYTES), retention)
  end
  if tags then
    count_tags(tags, string.sub(packed, 1, 16) .. api8, external_id, outcome, outcome == VALID and flags.limited and cost or 0)
  end

  if shown then api.told[digest] = true end
  local counts = api.counts
  counts[outcome] = counts[outcome] + 1
  if outcome == VALID and flags.limited then api.spent = api.spent + cost end
  return answer, shown
end

local decide = { verify, limit }

-- `answers` begins with the head, which is packed when all of their lengths are known.
local position, answers, answer_lengths, reply

-- Decides the items from `position` on, and notes where the next begins before it decides one.
local function decide_items()
  while position <= #items and work < WORK_MAX do
    local bytes, kind, root, fields = struct.unpack('>I4BB', items, position)
    local last = position + 3 + bytes
    position = last + 1
    local answer, shown = decide[kind](fields, last, root)
    if not answer then answer, shown = decide[kind](fields, last, root) end
    work = work + (bytes + #answer) / 10
    local number = #answers
    answers[number + 1], answer_lengths[number] = answer, #answer
    if shown then
      work, answer_lengths[number] = work + #shown / 200, #answer + WITH_SHOWN
      reply[#reply + 1] = shown
    end
  end
end

-- Takes back counts of identifiers that are new today and find no room. What there is, commands that write reply, so that nothing
-- is read here.
local function bound_identifiers(record, fields, identifiers)
  local new, count = {}, 0
  for _, field in ipairs(fields) do
    local identifier = string.sub(field, 4)
    if redis.call('HSETNX', identifiers, identifier, '') == 1 then
      count = count + 1
      new[count] = identifier
    end
  end
  if count == 0 then return end
  local total = redis.call('HINCRBY', identifiers, '', count)
  if total == count then redis.call('PEXPIRE', identifiers, int(retention + DAY_MS)) end
  local beyond, left_out = math.min(total - identifiers_max, count), {}
  if beyond <= 0 then return end
  for index = count - beyond + 1, count do
    redis.call('HDEL', identifiers, new[index])
    left_out[new[index]] = true
  end
  redis.call('HINCRBY', identifiers, '', -beyond)
  -- Of one that passed and was blocked in this call there are two.
  for _, field in ipairs(fields) do
    if left_out[string.sub(field, 4)] then
      redis.call('HDEL', record, field)
      reply[2] = reply[2] + 1
    end
  end
end

-- Adds the totals of this call to a record. Of counts by tag, those that are new today and find no room are left out, with the
-- credits of theirs.
local function write_totals(record, fields, bounded_by)
  local new, tags, spent = {}, bounded_by and bounded_by.tags, bounded_by and bounded_by.spent or {}
  for field, amount in pairs(fields) do
    -- Redis prints a number with seventeen digits: `int` would be one more text to make.
    local is_new = redis.call('HINCRBY', record, field, amount) == amount
    -- A count takes 64 bytes beside its field.
    local bytes = is_new and tags and (#field + 64) * (spent[field] and 2 or 1)
    if bytes and redis.call('HINCRBY', tags, 'tags', bytes) > tag_bytes_max then
      redis.call('HINCRBY', tags, 'tags', -bytes)
      redis.call('HDEL', record, field)
      reply[3] = reply[3] + 1
    else
      if is_new then new[#new + 1] = field end
      if spent[field] then redis.call('HINCRBY', record, 's' .. field, spent[field]) end
    end
  end
  if #new == 0 then return end
  redis.call('PEXPIRE', record, int(retention + DAY_MS))
  if bounded_by and bounded_by.identifiers then bound_identifiers(record, new, bounded_by.identifiers) end
end

-- How the head of so many answers is packed.
local head_formats = {}

local function decide_batch(KEYS, ARGV)
  workspace, retention, digests, now, items = KEYS[1], tonumber(ARGV[1]), ARGV[3], now_ms(ARGV[5]), ARGV[4]
  if ARGV[2] ~= usage_max then
    usage_max = ARGV[2]
    local tags, tag_bytes, identifiers = string.match(usage_max, '^(%d+) (%d+) (%d+) ')
    tags_max, tag_bytes_max, identifiers_max = tonumber(tags), tonumber(tag_bytes), tonumber(identifiers)
  end
  if hour ~= math.floor(now / HOUR_MS) then
    hour = math.floor(now / HOUR_MS)
    day, hour_of_day = string.format('%d', hour / 24), string.format('%02d', hour % 24)
  end
  roots, apis, namespaces, totals, bounds, rbac_version = {}, {}, {}, {}, {}, nil

  answers, answer_lengths, reply, position, work = { '' }, {}, { '', 0, 0 }, 1, 0
  -- An item that fails answers so, and the rest follows.
  while position <= #items and work < WORK_MAX do
    local decided, problem = pcall(decide_items)
    if not decided then
      local answer = refuse('failed', string.sub(type(problem) == 'table' and (problem.err or 'error') or tostring(problem), 1, 1000))
      answers[#answers + 1], answer_lengths[#answers] = answer, #answer
    end
  end
  local count = #answer_lengths
  local head_format = head_formats[count] or '>I6B' .. string.rep('I2', count)
  head_formats[count] = head_format
  answers[1] = struct.pack(head_format, now, count, unpack(answer_lengths))
  reply[1] = table.concat(answers)

  for api8, api in pairs(apis) do
    local record = api_usage(workspace, api8, day)
    for outcome, count in ipairs(api.counts) do
      if count > 0 then add_total(record, hour_of_day .. outcome, count) end
    end
    -- Only what is valid spends.
    if api.spent > 0 then add_total(record, 's' .. hour_of_day .. VALID, api.spent) end
  end
  for record, fields in pairs(totals) do write_totals(record, fields, bounds[record]) end
  return reply
end

redis.register_function('decide', decide_batch)
