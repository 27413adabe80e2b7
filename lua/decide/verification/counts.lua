-- The balance and the counts of a key, as a verification and settlements change them.

-- @include "decide/call"
-- @include "decide/verification/key"
-- @include "decide/verification/newState"
-- @include "decide/verification/restriction"
-- @include "include/calendar"
-- @include "include/names"
-- @include "include/usage"

local key_counts = {}

-- The balance of a key with a refill, and the time of the next refill. A time more than two periods away was set while
-- the clock was ahead: it is computed again.
function key_counts.refilled(digest, balance, due)
  local now, refill_day = call_now, key_refill_day
  if now >= due then
    key_extension.next_balance()
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
  local is_unlinked, is_first, usage = key_external_id ~= key_linked_id, false, nil
  if count + spent_more > 0 then
    if hour ~= call_hour or is_unlinked then
      usage = string.sub(key_packed, key_tail_at + KEY_LIVE_LENGTH)
      hour, valid, refusals, spent = call_hour, restriction.begin_hour()
    end
    if outcome == VALID then
      valid, spent = valid + count, math.min(spent + spent_more, SAFE_INTEGER)
    else
      refusals, is_first = key_counts.more_refusals(refusals, outcome, count)
    end
  end
  local state =
    key_state(false, balance, next_refill or refill_due, math.max(last_used, valid_at), hour, valid, refusals, spent)
  if usage and is_unlinked then state = key_counts.without_link(state) end
  redis.call('HSET', key_name, 'state', state, ...)
  key_written(state)
  if usage then
    local former = restriction.former
    local retention = call_settings.retention
    after_charge(flush_usage, call_workspace, key24(), key_linked_id, usage, former, retention, call_hour)
  end
  return is_first
end
