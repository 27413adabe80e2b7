-- Makes the hold of a verification, in memory, and writes it with the state of the key.

-- The hold that is made. Variables and one table are used again by every hold, because a table for each would be much
-- of its cost. A field without a value is false: if it were nil, adding it later might make Lua allocate the table
-- again.
--
-- The fields of HOLD_ITEM; the ttl is false for as long as its slots allow.
local making_ttl, making_on_expiry, making_id = false, 0, ''
-- The holds of the key (hold_list.of), and the expiry of the new hold.
local making_holds, making_expires = false, 0
-- When the key has to be looked at without the hold. Times to write: for hold_times.queue, and for note_identity.
local making_due, making_queued, making_noted_until = 0, false, false
-- In the table:
--   expires                   when a hold with slots ends, and gives them back; false until this is known
--   suffix                    of the hold
--   identity_until            hold_times.identity_until
--   answer, snapshot          if there is no new hold, see hold_maker.is_decided
local making = { expires = false }

local hold_maker = {}

-- Begins a hold as the request asks for it; without a ttl it lasts as long as its slots allow. Returns `making`.
function hold_maker.begin(ttl, on_expiry, id)
  making_ttl, making_on_expiry, making_id, making.expires = ttl, on_expiry, id, false
  return making
end

-- A digest of the fields in which a repeated request must equal the first one. JSON has 14 digits: numbers that may
-- have more, as the codes of quotas, have a digest of their own after that.
function hold_maker.shape_of(cost, requested)
  local shape, large = string.sub(redis.sha1hex(int(cost) .. cjson.encode(requested or {})), 1, 8), ''
  for _, wanted in ipairs(requested or {}) do
    for _, value in ipairs(wanted) do
      if type(value) == 'number' and value >= 1e14 then large = large .. int(value) .. ' ' end
    end
  end
  return large == '' and shape or shape .. string.sub(redis.sha1hex(large), 1, 8)
end

-- The packed fields that only some holds have; '' for none.
function hold_maker.pack_more(h, cost, request, shared, of_identity)
  local tags = (key_flags.limited or shared) and request and request.tags or nil
  if not of_identity and not shared and not tags and making_id == '' then return '' end
  local more = { tags = tags, shape = making_id ~= '' and hold_maker.shape_of(cost, request and request.limits) or nil }
  if of_identity or shared then
    more.externalId, more.identity = key_external_id, string.sub(key_identity, 1, 16)
  end
  if shared then
    more.number, more.alone = identity_balance.number_of(shared), not key_flags.limited or nil
  end
  return hold_format.pack_more(h, more)
end

-- The expiry of the new hold, its credits, and the number of the balance. `shared` is the balance of the identity,
-- false or nil for none.
function hold_maker.terms(cost, shared)
  local expires, credits = making.expires or call_now + (making_ttl or 0), (key_flags.limited or shared) and cost or 0
  if not key_flags.extended then
    making_due = NEVER
    return expires, credits, 0
  end
  making_due = loaded_key.due
  return expires, credits, loaded_key.balances
end

-- The packed rest of a hold by the last check of limits, the number of windows and slots in it, and whether one is of
-- the identity.
function hold_maker.pack_rest(h, cost, request, shared, expires)
  local rest, windows, of_identity = packed_charges.pack(h, request and request.limits, expires)
  return rest .. hold_maker.pack_more(h, cost, request, shared, of_identity), windows, of_identity
end

-- The packed hold; then its suffix, its expiry, its credits, and whether it charged the identity.
function hold_maker.new_hold(h, cost, request, shared)
  local suffix = making_id ~= '' and '_' .. making_id or hold_list.next_suffix(making_holds, call_now)
  local expires, credits, balances = hold_maker.terms(cost, shared)
  local rest, windows, of_identity = hold_maker.pack_rest(h, cost, request, shared, expires)
  local ttl = expires - call_now
  local hold = hold_format.pack(making_on_expiry, call_now, ttl, credits, balances, suffix, windows, rest)
  return hold, suffix, expires, credits, of_identity
end

-- Whether the hold of a request would take too many bytes, if it names no texts: the hold is made to know them.
function hold_maker.is_too_large(cost, request)
  local shared = key_identity and identity_credits.of_key() or nil
  if look_at_limits(request and request.limits) or charge_ahead then return false end
  return #hold_maker.new_hold(false, cost, request, shared) > HOLD_BYTES_MAX
end

-- The answer to a verification with a hold.
function hold_maker.answer_of(answer, suffix, expires)
  return struct.pack('>c0c0' .. HELD_FIELDS, answer, suffix, expires, #suffix)
end

-- Makes the hold of a verification that is VALID, in memory. Returns a number to add to its outcome. `shared` is the
-- balance of the identity, false or nil for none.
function hold_maker.make(cost, request, shared)
  if call_settings.data_version >= 7 then hold_list.sum_up(making_holds) end
  local packed, suffix, expires, credits, of_identity = hold_maker.new_hold(making_holds, cost, request, shared)
  making.suffix = suffix
  hold_list.add(making_holds, suffix, packed)
  making_expires, making_noted_until = expires, of_identity and expires
  making_queued = expires < making_due and hold_times.look_by(expires, making_due)
  if shared and making_on_expiry == hold_format.RELEASES then shared.held = shared.held + credits end
  return WITH_HOLD
end

-- Writes a key with the hold that was made. Returns the answer of the verification with it.
function hold_maker.write(state, answer)
  redis.call('HSET', key_name, 'state', state, hold_list.fields(making_holds))
  if making_queued then hold_times.queue(making_queued) end
  if making_noted_until then
    local identity = name_of.identity_record(call_workspace, key_external_id)
    hold_times.note_identity(identity, making_noted_until, making.identity_until)
  end
  return hold_maker.answer_of(answer, making.suffix, making_expires)
end

-- The answer to a request whose hold is open: the verification as it is now, without a charge.
function hold_maker.repeat_hold(hold, cost, request, text, ip)
  local requested = request and request.limits
  local stored, shape = hold.more.shape, hold_maker.shape_of(cost, requested)
  -- An earlier release stored the first eight characters only.
  if stored ~= shape and stored ~= string.sub(shape, 1, 8) then return item_error('hold_differs', hold.suffix) end
  local outcome = precheck(request, text, ip)
  if outcome == VALID then
    local problem = look_at_limits(requested)
    if problem then return problem end
    if charge_ahead then
      repair_windows(requested)
      return AGAIN
    end
    -- A limit whose units the hold itself took is not exceeded.
    for index = 0, charge_count - 1 do
      charge_results[RESULT_FIELDS * index + RESULT_EXCEEDED] = 0
    end
  end
  local dependencies = (key_identity or key_flags.permissions) and key_snapshot.dependencies() or ''
  local answer = pack_verified(outcome, key_flags.limited, key_counts.balance() or 0, outcome == VALID)
  local shared = key_identity and identity_credits.of_key()
  if shared then answer = identity_credits.added(answer, VERIFIED_HAS_BALANCE_AT, shared.balance) end
  if outcome == VALID then
    local first = string.char(string.byte(answer) + WITH_HOLD)
    answer = hold_maker.answer_of(first .. string.sub(answer, 2), hold.suffix, hold.at + hold.ttl)
  end
  return answer, key_snapshot.pack(dependencies)
end

-- Looks for a hold of the key that was loaded with the id of the request (`''` for none). Returns the item error if no
-- hold can be made, else nil; and the open hold that has the id.
function hold_maker.find_repeated(h, id)
  if id ~= '' then
    local suffix = '_' .. id
    local hold = hold_list.find(h, suffix)
    if hold and hold.state ~= hold_format.RELEASED then return nil, hold end
    if hold or settled_holds.find(h, call_workspace, key24(), call_hour, suffix) then
      return item_error('hold_ended', suffix)
    end
  end
  if hold_list.is_full(h) then return item_error('too_many_holds') end
end

-- The hold of a verification that takes slots: `hold`, which its request asks for, or without one (nil) a hold that
-- lasts as long as the limits allow.
function hold_maker.with_slots(hold, requested)
  if not hold then
    hold = hold_maker.begin(false, hold_format.RELEASES, '')
    loaded_key.stored_holds = redis.call('HGET', key_name, 'holds')
  end
  local limits, taken = {}, {}
  look_at_limits(requested, limits)
  for _, limit in ipairs(limits) do
    if limit.cost > 0 then taken[#taken + 1] = limit end
  end
  hold.expires = slots_expiry(making_ttl, taken)
  return hold
end

-- As is_decided, in the rare cases: the request has an id for its hold, its hold may be too large (`may_be_large`), or
-- no further hold can be made.
function hold_maker.is_decided_slowly(cost, fields, last, may_be_large)
  local request, text, ip, repeated
  if fields <= last then
    request, text, ip = read_request(call_items, fields, last)
  end
  making.answer, repeated = hold_maker.find_repeated(making_holds, making_id)
  making.snapshot = false
  add_work(hold_buckets.work())
  if making.answer then return true end
  if repeated then
    making.answer, making.snapshot = hold_maker.repeat_hold(repeated, cost, request, text, ip)
    return true
  end
  if not may_be_large or not hold_maker.is_too_large(cost, request) then return false end
  making.answer = item_error('hold_too_large')
  return true
end

-- Examines the holds of the key that was loaded, for a verification with a hold, which an earlier request may have
-- made. Returns whether no new hold is made: then early_answer returns the answer, and a snapshot.
function hold_maker.is_decided(cost, fields, last)
  -- The hold has at most this many bytes: the names of limits and tags are in the states and in the text of the
  -- request, and the number of the balance of an identity takes less than 64.
  local bytes = #key_packed + 2 * (last + 1 - fields)
  if key_identity then
    bytes = bytes + #key_identity + 64
    making.identity_until = hold_times.identity_until(name_of.identity_record(call_workspace, key_external_id))
  end
  making_holds = hold_list.of(key_name, loaded_key.stored_holds)
  add_work(hold_buckets.work())
  local may_be_large = bytes > HOLD_BYTES_MAX
  if making_id == '' and not may_be_large and not hold_list.is_full(making_holds) then return false end
  return hold_maker.is_decided_slowly(cost, fields, last, may_be_large)
end

function hold_maker.early_answer() return making.answer, making.snapshot or nil end
