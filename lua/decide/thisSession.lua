-- The session of a call. A session is a server process that may hold leases in this workspace. The registry of a
-- workspace lists its sessions, and a change waits for all of them.

-- Limit of the sessions of a workspace.
local SESSIONS_MAX = 64
-- A shorter lease would end before its answer arrives.
local TERM_MIN = 4
-- A lease of units leaves room in the limit for this many leases of its size for each session, so that no session is
-- refused while another one has units left. A long lease leaves LONG_LEFT times as much: units of a limit or balance
-- that may soon be reached are not out for long.
local LEASES_LEFT, LONG_LEFT = 4, 4

-- The session of this call. The functions in this file change it, and those of leases.
--
--   id (nil for none), credits, leaves   of LEASE_SESSION
--   term, long_term                      the whole terms of its leases
--   recalled                             leases that its requests have recalled and waited for, by `session.number`
--   grants, granted_term                 whether the call has granted a lease; the longest whole term of those
--
-- Once the registry `is_read`:
--
--   granted, settled, own_term           of the entry of the session
--   longest                              the longest term that any session ever had
--   held_term                            the longest term of the sessions that may hold leases
--   may_grant                            whether it may get another lease
--   left, long_left                      how many units must be left for each unit of a lease, and of a long one
--
-- Of the lease that is asked for:
--
--   is_hot                               as in LEASE_ITEM
--   whole, long                          its whole term; 1 if that is the long one, else 0
--   cut                                  1 if it ends before its whole term, else 0
--   required                             `left` or `long_left`
local NONE = {}
local this_session = { recalled = NONE, required = 0 }

-- `packed` is a LEASE_SESSION, or '' for a batch without leases.
function this_session.begin(packed)
  this_session.id, this_session.is_read, this_session.grants, this_session.recalled = nil, false, false, NONE
  if packed == '' then return end
  this_session.recalled = {}
  local id, term, long, added, credits, leaves = struct.unpack(LEASE_SESSION, packed)
  added = math.min(added, LEASE_ADDED_MAX)
  this_session.id, this_session.credits, this_session.leaves = id, credits, leaves
  this_session.term = math.min(term + added, LEASE_TERM_MAX)
  this_session.long_term = math.min(math.max(term, long) + added, LEASE_TERM_MAX)
  this_session.granted_term = this_session.term
end

-- Reads the entry of the session in the registry, and how many sessions may hold leases, once per call.
function this_session.register()
  if this_session.is_read then return end
  local entries, inactive, count = redis.call('HGETALL', name_of.registry(call_workspace)), {}, 1
  this_session.is_read, this_session.granted, this_session.settled = true, 0, 0
  this_session.longest, this_session.held_term, this_session.own_term = 0, 0, 0
  for index = 1, #entries, 2 do
    local id = entries[index]
    local term, granted, settled = struct.unpack(REGISTERED, entries[index + 1])
    if id ~= LONGEST_TERM then this_session.held_term = math.max(this_session.held_term, term) end
    if id == this_session.id then
      this_session.granted, this_session.settled, this_session.own_term = granted, settled, term
    elseif id == LONGEST_TERM then
      this_session.longest = term
    elseif term > 0 then
      count = count + 1
    else
      inactive[#inactive + 1] = id
    end
  end
  this_session.left, this_session.may_grant = LEASES_LEFT * count, count <= SESSIONS_MAX
  this_session.long_left = LONG_LEFT * this_session.left
  -- An inactive session may still send a settlement again, so its entry stays while there is room.
  if #entries >= 2 * SESSIONS_MAX and #inactive > 0 then
    redis.call('HDEL', name_of.registry(call_workspace), unpack(inactive))
  end
end

-- Writes the entry of the session, which was read: one that cannot be read fails an item, and not the call. Returns
-- true. The longest term stays until the session leaves, because its terms may get shorter while longer leases are out,
-- and calls may arrive late.
function this_session.close()
  if not this_session.id then return true end
  -- The longest term stays when Redis forgets a session that was registered last.
  local granted_term = this_session.granted_term
  if this_session.grants and this_session.longest < granted_term then
    redis.call('HSET', name_of.registry(call_workspace), LONGEST_TERM, struct.pack(REGISTERED, granted_term, 0, 0))
  end
  if this_session.leaves > this_session.granted then
    redis.call('HDEL', name_of.registry(call_workspace), this_session.id)
  elseif this_session.granted + this_session.settled > 0 then
    local term = math.max(granted_term, this_session.own_term)
    local entry = struct.pack(REGISTERED, term, this_session.granted, this_session.settled)
    redis.call('HSET', name_of.registry(call_workspace), this_session.id, entry)
  end
  return true
end

-- Whether long terms are longer than others.
function this_session.has_long() return this_session.long_term > this_session.term end

-- The term of a lease that must end by `ends`, by a clock that may be 1 % slower than that of Redis, whose time is
-- rounded down; 0 for none. A request that is not hot gets a long one only, of LEASE_MS at least.
function this_session.term_until(ends, is_long)
  is_long = is_long and this_session.has_long()
  local whole = is_long and this_session.long_term or this_session.term
  local is_cut = ends < call_now + whole
  this_session.whole, this_session.cut, this_session.long = whole, is_cut and 1 or 0, is_long and 1 or 0
  if not this_session.is_hot and (not is_long or ends - call_now < this_session.term) then return 0 end
  local term = math.floor((math.min(ends, call_now + whole) - call_now - 1) / 1.01)
  return term >= TERM_MIN and term or 0
end
