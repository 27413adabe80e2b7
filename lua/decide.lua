#!lua name=decide
-- Decide a batch: verifications of keys, ends of holds, and limit checks of one workspace, in order, each authorised by
-- its root key. Each item is decided, charged and counted on its own; a broken record fails only its own item.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  key, API, identity, namespace and root key records, permissions, roles, window counters, holds, leases,
--          usage counts, refusals
-- ARGV[1]  settings    separated by spaces: milliseconds for which usage counts are kept; four limits: tags of an API,
--                      bytes of an API's counts by tag in a day, identifiers that a namespace counts in a day, records
--                      of the workspace (0 is no limit); hours for which refusals are kept, and the limit of their
--                      bytes in an hour; the version of the stored data; the time, for tests (nothing is Redis's clock)
-- ARGV[2]  items       one after the other: ITEM_HEAD with the index of its root key (from 1), then VERIFY_ITEM;
--                      HOLD_ITEM and VERIFY_ITEM; HOLD_CHANGE_ITEM and each SETTLED_WINDOW; or a number of checks (1)
--                      and each LIMIT_CHECK. Of a session LEASE_ITEM and one of these, or SETTLE_ITEM and each TALLY.
--                      After the items LEASE_SESSION if there are items of leases; the SHA-256 of each distinct root
--                      key (32); the budget, the work after which the call leaves the remaining items to the next call
--                      (2); the number of root keys (1); 1 with a session, else 0 (1)
-- returns  answers, or with more than these {answers, number of counts by identifier that were left out, the same by
--          tag, number of writes after a charge that failed, the last error of these, then the snapshots of keys whose
--          version in VERIFY_ITEM is out of date, in the order of their answers}
--   answers   BATCH_HEAD, the length of each (2; plus WITH_SNAPSHOT if its snapshot follows), then each:
--   verify    VERIFIED and each VERIFIED_LIMIT, IDENTITY_LEFT if its identity has a balance, and the suffix of its
--             hold and HELD if it made one; NOT_FOUND alone (1)
--   hold      CHANGED_HOLD and each SETTLED_WINDOW, and IDENTITY_LEFT if it charged the identity
--   lease     GRANTED and the answer to the item that follows
--   settle    LEASE_DONE (1)
--   limit     LIMITED and each LIMITED_CHECK
--   error     ITEM_ERROR
--   snapshot  SNAPSHOT, then SNAPSHOT_IDENTITY if the key has an identity. The server caches it by its version, and
--             sends that with the next verification of the key.
--
-- The structures in capitals are declared in src/scripts/layout.ts.
--
-- One function decides all kinds, because the requests of one turn of the event loop are sent as one call.
--
-- It is a library (FUNCTION LOAD, FCALL), because a script creates its functions again with every call, which took
-- longer than deciding a small batch. Those of a library are created once.

-- @include "decide/apis"
-- @include "decide/call"
-- @include "decide/lease"
-- @include "decide/limitChecks/ratelimit"
-- @include "decide/refusals"
-- @include "decide/session"
-- @include "decide/totals"
-- @include "decide/verification/charge"
-- @include "decide/verification/hold"
-- @include "decide/verification/verify"

charge_hold.instead = hold_kinds.decide_slots

local deciders = {
  [KIND_VERIFY] = verify,
  [KIND_LIMIT] = ratelimit,
  [KIND_LEASE] = lease,
  [KIND_SETTLE] = settle,
  [KIND_HOLD] = hold_kinds.decide,
  [KIND_HOLD_CHANGE] = hold_kinds.change,
}

-- The call: the position of the next item, and of the end of the items; the number of answers, the answers and their
-- lengths; the reply if it has more than the answers. The table is used again by every call, because creating it would
-- take longer. `all_work` is that of all calls.
local batch = { position = 1, items_end = 0, count = 0, answers = {}, lengths = {}, reply = false, all_work = 0 }

local function add_answer(answer)
  local count = batch.count + 1
  batch.count, batch.answers[count], batch.lengths[count] = count, answer, #answer
end

-- Decides the items of the batch from its position on. Before an item is decided, the position is set to the next one,
-- so that an item that fails is not decided again.
local function decide_items()
  local items, items_end, position, bytes_done = call_items, batch.items_end, batch.position, 0
  local budget = call_state.budget
  while position <= items_end and call_work + bytes_done / 10 < budget do
    local bytes, kind, root, fields = struct.unpack(ITEM_HEAD, items, position)
    -- `bytes` counts from `kind` on.
    local last = position + (ITEM_HEAD_KIND_AT - 2) + bytes
    position = last + 1
    batch.position = position
    local answer, snapshot = deciders[kind](fields, last, root)
    -- Nil: its windows have been repaired, and it is decided now.
    if not answer then
      answer, snapshot = deciders[kind](fields, last, root)
    end
    bytes_done = bytes_done + bytes + #answer
    add_answer(answer)
    if snapshot then
      batch.lengths[batch.count] = #answer + WITH_SNAPSHOT
      batch.reply = batch.reply or { '', 0, 0, 0, '' }
      batch.reply[#batch.reply + 1] = snapshot
      add_work(#snapshot / 200)
    end
  end
  add_work(bytes_done / 10)
end

-- The format of the head, by the number of answers. That of a single answer includes the answer, so that one string is
-- made in place of three.
local formats = { BATCH_HEAD .. 'I2c0' }
local function pack_answers()
  local count, answers, lengths = batch.count, batch.answers, batch.lengths
  -- Each call has a cost of its own.
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
function batch.take_grants_back()
  local position, none = 1, struct.pack(GRANTED, 0, 0, 0, 0)
  for index = 1, batch.count do
    local bytes, kind, _ = struct.unpack(ITEM_HEAD, call_items, position)
    position = position + (ITEM_HEAD_KIND_AT - 2) + bytes + 1
    local answer = batch.answers[index]
    if kind == KIND_LEASE and string.byte(answer) < ITEM_ERROR_FROM then
      batch.answers[index] = none .. string.sub(answer, #none + 1)
    end
  end
end

local function decide_batch(KEYS, ARGV)
  local workspace, settings, items = KEYS[1], ARGV[1], ARGV[2]
  local packed_session, items_end = begin_call(workspace, settings, items)
  this_session.begin(packed_session)
  batch.position, batch.items_end, batch.count, batch.reply = 1, items_end, 0, false
  -- An item that fails gets the error as its answer; the following items are decided.
  while batch.position <= items_end and call_work < call_state.budget do
    -- An item that failed, or a call that was killed, may have been making a hold.
    if charge_hold.is_held then charge_hold.set(false, false) end
    local decided, problem = pcall(decide_items)
    if not decided then add_answer(item_error('failed', call_state.error_text(problem))) end
  end
  if this_session.is_read and not after_charge(this_session.close) then batch.take_grants_back() end
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

redis.register_function('decide', decide_batch)
