-- The balance and the counts of a key, as a verification and settlements change them.

-- `former`: the FORBIDDEN verifications of the hour before the one that begin_hour began.
local key_counts = { former = 0 }

-- The balance of a key with a refill, and the time of the next refill. A time more than two periods away was set while
-- the clock was ahead: it is computed again.
function key_counts.refilled(digest, balance, due)
  local now, refill_day = call_now, key_refill_day
  if now >= due then
    loaded_key.next_balance()
    return key_refill_amount, refill_after(now, refill_day)
  end
  local next_due = refill_due_of(due, now, refill_day)
  if next_due ~= due then redis.call('ZADD', name_of.refill_queue(call_workspace), next_due, digest) end
  return balance, next_due
end

-- The balance of the key that was loaded, with a refill that is due; nil for an unlimited key. Changes nothing.
function key_counts.balance()
  local balance, refill_due, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if key_flags.refilled and call_now >= refill_due then balance = key_refill_amount end
  return key_flags.limited and balance or nil
end

-- The packed counts of an hour's refusals, with `more` of this outcome; FORBIDDEN is counted in KEY_EXTENSION. Also
-- returns whether they are the first ones.
function key_counts.more_refusals(refusals, outcome, more)
  if outcome == FORBIDDEN then return refusals, restriction.count(more) end
  local at = COUNT_LENGTH * (outcome - FIRST_REFUSAL)
  local count = struct.unpack(COUNT, refusals, at + 1)
  return string.sub(refusals, 1, at) .. struct.pack(COUNT, count + more) .. string.sub(
    refusals,
    at + (COUNT_LENGTH + 1)
  ),
    count == 0
end

-- Counts a refusal in the packed counts of the hour's refusals, and in the rows of recent refusals. `shared` is the
-- balance of the identity, if it has one. Returns the packed counts.
function key_counts.refused(refusals, outcome, request, cost, balance, shared)
  local more, is_first = key_counts.more_refusals(refusals, outcome, 1)
  -- The row names the first balance that is too small: that of the key, or else that of the identity.
  local of_identity = shared and (not key_flags.limited or balance >= cost)
  if of_identity then balance = shared.balance end
  noted_refusals.note(1, outcome, is_first, request, key_external_id, call_now, false, cost, balance, of_identity)
  return more
end

-- Begins an hour. Returns its counts: VALID, the packed refusals, credits spent.
function key_counts.begin_hour()
  key_counts.former = key_flags.extended and loaded_key.count_forbidden(nil) or 0
  return 0, NO_REFUSALS, 0
end

-- Moves the counts of an earlier hour, or of an identity that was deleted, from the state to the log of the key: before
-- key_written.
function key_counts.flush_former()
  local usage = string.sub(key_packed, key_tail_at + KEY_LIVE_LENGTH)
  flush_usage(call_workspace, key24(), key_linked_id, usage, key_counts.former, call_settings.retention, call_hour)
end

-- A new state of the key without its link to a deleted identity, which is noted if that can be restored.
function key_counts.without_link(state)
  local link = string.sub(state, LINK_ID_FROM, key_limits_at - 1)
  local deleted = name_of.deleted_identity(call_workspace, string.sub(link, 1, 16))
  if redis.call('EXISTS', deleted) == 1 then redis.call('HSET', key_name, 'formerLink', link) end
  return string.sub(state, 1, KEY_LINK_AT - 1) .. '\0\0' .. string.sub(state, key_limits_at)
end

-- Writes the key with this balance, and with `count` more decisions of this outcome and `spent_more` credits in this
-- hour. `valid_at`: when the last of them was VALID, 0 for none. `next_refill`: given if a refill was applied. More
-- fields of the record may follow. Returns whether these are the first refusals of the hour with this outcome.
function key_counts.write(balance, count, outcome, spent_more, valid_at, next_refill, ...)
  local _, refill_due, last_used, hour, valid, refusals, spent = struct.unpack(KEY_TAIL, key_packed, key_tail_at)
  local is_unlinked, is_first, is_new_hour = key_external_id ~= key_linked_id, false, false
  if count + spent_more > 0 then
    if hour ~= call_hour or is_unlinked then
      is_new_hour, hour = true, call_hour
      valid, refusals, spent = key_counts.begin_hour()
    end
    if outcome == VALID then
      valid, spent = valid + count, math.min(spent + spent_more, SAFE_INTEGER)
    else
      refusals, is_first = key_counts.more_refusals(refusals, outcome, count)
    end
  end
  local state =
    key_state(false, balance, next_refill or refill_due, math.max(last_used, valid_at), hour, valid, refusals, spent)
  if is_new_hour and is_unlinked then state = key_counts.without_link(state) end
  redis.call('HSET', key_name, 'state', state, ...)
  if is_new_hour then after_charge(key_counts.flush_former) end
  key_written(state)
  return is_first
end
