-- Where leases of units are noted: those of a key or an identity in field `leased` of its record, those of a window of
-- a namespace in a record of its own. So a check that passes reads nothing of leases.

local noted_leases = {}

-- Limit of the leases that a refusal names: the others are named when it is decided again.
local NAMED_MAX = 256

-- Adds to `names` the leases in `stored` that may still return units. Returns `stored`, in which the recalled leases
-- are marked as overdue, and until when no others are granted.
local function await_leases(stored, names)
  local recent, _, paused_until, others = lease_list.recent(stored, call_now)
  local leases, position = {}, 1
  while position <= #recent do
    local session, number, at, overdue, units, charged
    session, number, at, overdue, units, charged, position = struct.unpack(NOTED_LEASE, recent, position)
    local name = string.format('%s.%.0f', session, number)
    if overdue == 0 and this_session.recalled[name] then
      overdue = 1
    elseif overdue == 0 and not names[name] and #names < NAMED_MAX then
      names[name], names[#names + 1] = true, name
    end
    leases[#leases + 1] = struct.pack(NOTED_LEASE, session, number, at, overdue, units, #charged, charged)
  end
  return table.concat(leases) .. others, paused_until
end

-- The longest term of the leases that may be out, in milliseconds: of the sessions that may hold some, or of all that
-- ever did. LEASE_TERM_MAX if the registry cannot be read.
local function longest_term()
  if not pcall(this_session.register) then return LEASE_TERM_MAX end
  local held, ever = this_session.held_term, this_session.longest
  return held > 0 and held or ever > 0 and ever or LEASE_TERM_MAX
end

-- Marks leases that were recalled as overdue. Returns the item error `leased`, which asks the server to recall the
-- others and to send the request again; nil when there are none, or when the request `has_passed`. `places` are where
-- leases are noted: {leases, write(leases)}.
function noted_leases.recall_of(places, has_passed)
  local names, problem, pauses_until = {}, nil, nil
  for _, place in ipairs(places) do
    place.awaited, place.paused_until = await_leases(place.leases, names)
  end
  if #names > 0 and not has_passed then
    local term = longest_term()
    problem = item_error('leased', string.format('%d,', term) .. table.concat(names, ','))
    pauses_until = lease_list.pause_until(call_now, term)
  end
  for _, place in ipairs(places) do
    local leases = lease_list.with_pause(place.awaited, pauses_until or place.paused_until)
    if leases ~= place.leases then place.write(leases) end
  end
  return problem
end

-- The leases of the key of this verification, and those of its identity; '' for none.
function noted_leases.of_key() return redis.call('HGET', key_name, 'leased') or '' end
local function identity_name() return name_of.identity_record(call_workspace, key_external_id) end
function noted_leases.of_identity() return key_identity and redis.call('HGET', identity_name(), 'leased') or '' end

-- noted_leases.recall_of for a verification: for the leases of its key and identity.
function noted_leases.recall_of_key(has_passed)
  local of_key, of_identity = noted_leases.of_key(), noted_leases.of_identity()
  if of_key == '' and of_identity == '' then return nil end
  local function place_in(record, leases)
    return { leases = leases, write = function(changed) lease_list.write(record, changed) end }
  end
  local places = { place_in(key_name, of_key) }
  if key_identity then places[2] = place_in(identity_name(), of_identity) end
  return noted_leases.recall_of(places, has_passed)
end

-- The leases of the window of a check ({namespace, duration, identifier}); '' for none.
local function record_of(check)
  return name_of.window_leases(
    call_workspace,
    check.namespace.id16,
    name_of.window_member(check.duration, check.identifier)
  )
end
function noted_leases.of_window(check) return redis.call('GET', record_of(check)) or '' end
function noted_leases.write_of_window(check, leases)
  local record = record_of(check)
  if leases == '' then
    redis.call('DEL', record)
  else
    redis.call('SET', record, leases, 'PX', window_log.ttl(check.duration, call_now))
  end
end
