-- Verifications: decides whether a key is valid for a request, charges it and counts it.

-- The position of the byte in the state of an identity that has the flag of its balance.
local FLAG_AT = IDENTITY_HEAD_VERSION_AT

-- A verification without an outcome, of which check_limits_and_balance returned the reason: its answer.
local function undecided(reason, problem, hold, requested)
  if reason == FAILED then return problem end
  if reason == TAKES_SLOTS then return AGAIN, hold_maker.with_slots(hold, requested) end
  repair_windows(requested)
  return AGAIN, hold
end

-- Decides an item whose fields are at `position` to `last` of the items. `hold` is the hold to make, nil for none: what
-- it charges is held, and credits are counted as spent when it is settled. Returns the packed answer, and the snapshot
-- of the key if the caller has none of this version; or AGAIN, and the hold to make then.
local function verify(position, last, root_index, hold)
  local root, expires = call_roots[root_index] or read_root(root_index), hold and hold.expires
  local digest, cost, cached_time, cached_number, cached_dependencies, fields =
    struct.unpack(VERIFY_ITEM, call_items, position)
  if not root.may_verify then return root_error(root, 'api.*.verify_key') end
  -- When the expiry of the hold is known, it is decided again, and its key is loaded.
  local is_found = (expires or read_current_key(digest, cached_time > 0, hold))
    and (root.verifies_all or allows(root, 'api', key_api.id, 'verify_key'))
  if not is_found then return struct.pack('>B', NOT_FOUND) end
  local request, text, ip
  if fields <= last then
    request, text, ip = read_request(call_items, fields, last)
    if request and request.keyspaces and not request.keyspaces[key_api.id] then return struct.pack('>B', NOT_FOUND) end
  end
  if hold and hold_maker.is_decided(cost, fields, last) then return hold_maker.early_answer() end
  local flags, limited, api = key_flags, key_flags.limited, key_api
  local balance, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  if flags.refilled then
    balance, refill_due = key_counts.refilled(digest, balance, refill_due)
  end
  local shared = key_identity and string.byte(key_identity, FLAG_AT) >= WITH_BALANCE and identity_credits.of_key()
  -- Decide, in the order of docs/contract.md §6: the first reason to refuse wins.
  local outcome = precheck(request, text, ip)
  local is_checked, problem = outcome == VALID, nil
  if is_checked then
    local is_affordable = (not limited or balance >= cost) and (not shared or shared.balance >= cost)
    outcome, problem = check_limits_and_balance(request and request.limits, is_affordable, expires)
    if outcome < 0 then return undecided(outcome, problem, hold, request and request.limits) end
  end
  -- Everything is read before the first charge is written, so that a broken record charges nothing.
  local is_valid, snapshot, marks = outcome == VALID, nil, 0
  local dependencies = (key_identity or flags.permissions) and key_snapshot.dependencies() or ''
  if key_version_time ~= cached_time or key_version_number ~= cached_number or dependencies ~= cached_dependencies then
    snapshot, marks = key_snapshot.missing(digest, dependencies)
  end
  local tags = request and request.tags and usage_by_tag.counted(request.tags)
  local held = hold and is_valid and hold_maker.make(cost, request, shared)
  -- Count in the current hour; charge everything or nothing.
  local is_unlinked = key_external_id ~= key_linked_id
  local is_new_hour = is_unlinked or hour ~= call_hour
  if is_new_hour then
    valid, refusals, spent = key_counts.begin_hour()
  end
  local charged = is_valid and (limited or shared) and cost or 0
  if limited then balance = balance - charged end
  local counted = held and 0 or charged
  if is_valid then
    valid, last_used, spent = valid + 1, call_now, spent + counted < SAFE_INTEGER and spent + counted or SAFE_INTEGER
  else
    refusals = key_counts.refused(refusals, outcome, request, cost, balance, shared)
  end
  local state = key_state(is_valid, balance, refill_due, last_used, call_hour, valid, refusals, spent)
  if is_unlinked then state = key_counts.without_link(state) end
  local new_identity = is_valid and key_identity and identity_state()
  local answer = pack_verified(outcome + marks + (held or 0), limited, balance, is_checked)
  if shared then answer = identity_credits.charge(answer, charged) end
  -- Write. If the first command succeeds, none of the following fails the item.
  if held then answer = hold_maker.write(state, answer) end
  if not held then redis.call('HSET', key_name, 'state', state) end
  if new_identity then write_identity(new_identity) end
  if shared then identity_credits.write() end
  if is_valid and charge_counters then adhoc_limits.write() end
  if is_new_hour then after_charge(key_counts.flush_former) end
  if tags then usage_by_tag.count(tags, key_external_id, outcome, counted, 1, call_hour) end
  if snapshot then api.snapshots[digest] = true end
  if not is_valid then count_refused(api, outcome) end
  api.valid, api.spent = api.valid + (is_valid and 1 or 0), api.spent + counted
  key_written(state, new_identity)
  return answer, snapshot
end

-- Decides an item: a verification with a hold.
local function verify_with_hold(position, last, root_index, hold)
  local ttl, on_expiry, id, fields = struct.unpack(HOLD_ITEM, call_items, position)
  return verify(fields, last, root_index, hold or hold_maker.begin(ttl, on_expiry, id))
end
