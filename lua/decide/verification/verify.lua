-- Verifications: decides whether a key is valid for a request, charges it and counts it.

-- @include "decide/apis"
-- @include "decide/call"
-- @include "decide/verification/charge"
-- @include "decide/verification/counts"
-- @include "decide/verification/due"
-- @include "decide/verification/key"
-- @include "decide/memo"
-- @include "decide/permitted"
-- @include "decide/refusals"
-- @include "decide/verification/restriction"
-- @include "decide/roots"
-- @include "decide/verification/snapshot"
-- @include "decide/tags"
-- @include "include/usage"

-- The request of a verification without its key. Cached and shared: treat as immutable.
local function request_of(text)
  local request = memo[text]
  if not request then
    request = cjson.decode(text)
    memoize(text, request)
  end
  return request
end

-- The outcome by the checks before those of limits and balance.
local function precheck(request, text, ip)
  if not key_flags.enabled then return DISABLED end
  if call_now >= key_expires then return EXPIRED end
  if key_flags.extended and restriction.refuses(ip) then return FORBIDDEN end
  if request and request.query and not is_permitted(request.query, text, key_name, key_flags.permissions) then
    return INSUFFICIENT_PERMISSIONS
  end
  return VALID
end

-- Counts a refusal in the packed counts of the hour's refusals, and in the rows of recent refusals.
local function count_refusal(refusals, outcome, request, cost, balance)
  local more, is_first = key_counts.more_refusals(refusals, outcome, 1)
  note_refusals(1, outcome, is_first, request, key_external_id, call_now, false, cost, balance)
  return more
end

-- Moves the counts of an earlier hour, or of an identity that was deleted, from the state to the log of the key.
local function flush_former_counts()
  local usage = string.sub(key_packed, key_tail_at + KEY_LIVE_LENGTH)
  flush_usage(call_workspace, key24(), key_linked_id, usage, restriction.former, call_settings.retention, call_hour)
end

-- Decides an item whose fields are at `position` to `last` of the items. Returns the packed answer, and the snapshot of
-- the key if the caller has none of this version; nothing when windows had to be repaired first, or a verification that
-- is held has to know its expiry, and the item has to be decided again.
local function verify(position, last, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  local digest, cost, cached_time, cached_number, cached_dependencies, fields =
    struct.unpack(VERIFY_ITEM, call_items, position)
  if not root.may_verify then return root_error(root, 'api.*.verify_key') end
  if not key_holds.read_key(digest, cached_time > 0) then return struct.pack('>B', NOT_FOUND) end
  local flags, api = key_flags, key_api
  if not root.verifies_all and not allows(root, 'api', api.id, 'verify_key') then
    return struct.pack('>B', NOT_FOUND)
  end
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  if flags.refilled then
    balance, refill_due = key_counts.refilled(digest, balance, refill_due)
  end

  -- Decide, in the order of docs/contract.md §6: the first reason to refuse wins.
  local text = fields <= last and string.sub(call_items, fields, last)
  local ip = text and string.sub(text, 1, 1) ~= '{' and restriction.address_in(text)
  if ip then text = restriction.without_address(text) end
  local request = text and (memo[text] or request_of(text))
  local requested = request and request.limits
  local outcome = precheck(request, text, ip)
  local is_checked = outcome == VALID
  if is_checked then
    local problem
    outcome, problem = check_limits_and_balance(requested, not flags.limited or balance >= cost)
    if problem then return problem end
    if not outcome then return charge_hold.undecided(position, last, root_index, requested) end
  end
  -- Everything is read before the first charge is written, so that a broken record charges nothing.
  local is_valid, snapshot, is_sent = outcome == VALID, nil, nil
  local dependencies = (key_identity or flags.permissions) and snapshot_dependencies() or ''
  if key_version_time ~= cached_time or key_version_number ~= cached_number or dependencies ~= cached_dependencies then
    -- Returned once per call. Otherwise many verifications of a key that is not cached would each return its snapshot.
    is_sent = api.snapshots and api.snapshots[digest]
    if not is_sent then snapshot = pack_snapshot(dependencies) end
  end
  local tags = request and request.tags and counted_tags(request.tags)

  -- Count in the current hour; charge everything or nothing.
  local is_unlinked = key_external_id ~= key_linked_id
  local is_new_hour = hour ~= call_hour or is_unlinked
  if is_new_hour then
    valid, refusals, spent = restriction.begin_hour()
  end
  local charged = is_valid and flags.limited and cost or 0
  balance, charged = balance - charged, charge_hold.is_held and 0 or charged
  spent = spent + charged
  if is_valid then
    valid, last_used = valid + 1, call_now
  else
    refusals = count_refusal(refusals, outcome, request, cost, balance)
  end
  local state = key_state(is_valid, balance, refill_due, last_used, call_hour, valid, refusals, spent)
  if is_unlinked then state = without_link(state) end
  local new_identity = is_valid and key_identity and identity_state()
  local answer = pack_verified(outcome + (is_sent and SNAPSHOT_BEFORE or 0), flags.limited, balance, is_checked)

  -- Write. If the first command succeeds, none of the following can fail.
  redis.call('HSET', key_name, 'state', state)
  if new_identity then write_identity(new_identity) end
  if is_valid and charge_counters then write_charged_counters() end
  if is_new_hour then flush_former_counts() end
  if tags then count_tags(tags, key_external_id, outcome, charged, 1, call_hour) end
  if snapshot then api.snapshots[digest] = true end
  count_verification(api, outcome, charged)
  key_written(state, new_identity)
  return answer, snapshot
end
