-- The batches of a call, see lua/decide.lua. One function decides all kinds, and those of several workspaces, because
-- the requests of one turn of the event loop are sent as one call.

local deciders = {
  [KIND_VERIFY] = verify,
  [KIND_LIMIT] = ratelimit,
  [KIND_LEASE] = lease,
  [KIND_SETTLE] = settle,
  [KIND_HOLD] = verify_with_hold,
  [KIND_HOLD_CHANGE] = change_hold,
}

-- The batch: the end of the items; the answers and their lengths; the reply if it has more than the answers. The table
-- is used again by every batch, because creating it would take longer. `all_work` is that of all batches.
local batch = { items_end = 0, answers = {}, lengths = {}, reply = false, all_work = 0 }
-- The position of the next item, and the number of answers: every item changes them.
local next_item, answered = 1, 0

-- Decides the items of the batch from its position on. Before an item is decided, the position is set to the next one,
-- so that an item that fails is not decided again.
local function decide_items()
  local items, items_end, position, bytes_done = call_items, batch.items_end, next_item, 0
  local budget, answers, lengths = call_state.budget, batch.answers, batch.lengths
  while position <= items_end and call_work + bytes_done / 10 < budget do
    local bytes, kind, root, fields = struct.unpack(ITEM_HEAD, items, position)
    -- `bytes` counts from `kind` on.
    local last = position + (ITEM_HEAD_KIND_AT - 2) + bytes
    position = last + 1
    next_item = position
    local decide = deciders[kind]
    local answer, snapshot = decide(fields, last, root)
    if answer == AGAIN then
      answer, snapshot = decide_again(decide, fields, last, root, snapshot)
    end
    local count, length = answered + 1, #answer
    answered, answers[count], lengths[count] = count, answer, length
    bytes_done = bytes_done + bytes + length
    if snapshot then
      lengths[count] = length + WITH_SNAPSHOT
      batch.reply = batch.reply or { '', 0, 0, 0, '' }
      batch.reply[#batch.reply + 1] = snapshot
      add_work(#snapshot / 200)
    end
  end
  add_work(bytes_done / 10)
end

-- The format of the head, by the number of answers. For a single answer it includes the answer, so that one string is
-- made in place of three.
local formats = { BATCH_HEAD .. 'I2c0' }
local function pack_answers()
  local count, answers, lengths = answered, batch.answers, batch.lengths
  -- Each batch has a cost of its own.
  local work = call_work + 20
  batch.all_work = (batch.all_work + work) % 4294967296
  if work > 65535 then work = 65535 end
  if count == 1 then return struct.pack(formats[1], call_now, work, batch.all_work, 1, lengths[1], answers[1]) end
  local format = formats[count] or BATCH_HEAD .. string.rep('I2', count)
  formats[count] = format
  return struct.pack(format, call_now, work, batch.all_work, count, unpack(lengths, 1, count))
    .. table.concat(answers, '', 1, count)
end

-- The session could not be registered, so no change would wait for its leases: the answers grant none.
local function take_grants_back()
  local position, none = 1, struct.pack(GRANTED, 0, 0, 0, 0)
  for index = 1, answered do
    local bytes, kind, _ = struct.unpack(ITEM_HEAD, call_items, position)
    position = position + (ITEM_HEAD_KIND_AT - 2) + bytes + 1
    local answer = batch.answers[index]
    if kind == KIND_LEASE and string.byte(answer) < ITEM_ERROR_FROM then
      batch.answers[index] = none .. string.sub(answer, #none + 1)
    end
  end
end

-- `most`: the work that the batch may do, or less if its budget is smaller.
local function decide_batch(workspace, items, most)
  local packed_session, items_end = begin_batch(workspace, items)
  call_state.budget = math.min(call_state.budget, most)
  this_session.begin(packed_session)
  next_item, answered, batch.items_end, batch.reply = 1, 0, items_end, false
  -- An item that fails gets the error as its answer; the following items are decided.
  while next_item <= items_end and call_work < call_state.budget do
    local decided, problem = pcall(decide_items)
    if not decided then
      local answer = item_error('failed', error_text(problem))
      answered = answered + 1
      batch.answers[answered], batch.lengths[answered] = answer, #answer
    end
  end
  if this_session.is_read and not after_charge(this_session.close) then take_grants_back() end
  local answers, reply = pack_answers(), batch.reply
  write_api_totals()
  noted_refusals.write()
  local identifiers, tags = write_totals()
  if not reply and identifiers + tags + call_state.failures == 0 then return answers end
  reply = reply or {}
  reply[1], reply[2], reply[3], reply[4], reply[5] =
    answers, identifiers, tags, call_state.failures, call_state.failures > 0 and call_state.failure or ''
  return reply
end

-- The replies to the batches of a call. The table is used again by every call.
local replies = {}

-- Decides the batches of a call, see lua/decide.lua. A batch that fails gets the error as its reply; the following ones
-- are decided.
local function decide_batches(workspaces, settings, batches)
  begin_call(settings)
  local left, count = BUDGET_MAX, #batches - 1
  for index = 1, count do
    local reply = ''
    if left > 0 then
      local decided
      decided, reply = pcall(decide_batch, workspaces[index], batches[index + 1], left)
      if not decided then reply = { err = error_text(reply) } end
      left = left - call_work
    end
    replies[index] = reply
  end
  -- Redis looks in a table for each kind of reply first, which takes half as long as a command.
  if count == 1 then return replies[1] end
  replies[count + 1] = nil
  return replies
end
