#!lua name=decide
-- Decide a batch: verifications of keys and limit checks of one workspace, in order, each authorised by its root key. Each item is
-- decided, charged and counted on its own; a broken record fails only its own item.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  key, API, identity, namespace and root key records, permissions, roles, window counters, usage counts
-- ARGV[1]  retention   milliseconds for which usage counts are kept
-- ARGV[2]  bounds      four limits, separated by spaces: tags of an API, bytes of an API's counts by tag in a day, identifiers
--                      that a namespace counts in a day, records of the workspace (0 is no limit)
-- ARGV[3]  digests     SHA-256 of each distinct root key of the batch, 32 bytes each
-- ARGV[4]  items       one after the other: ITEM_HEAD with the index of its root key in digests (from 1), then VERIFY_ITEM or
--                      a number of checks (1) and each LIMIT_CHECK; or of a session LEASE_ITEM and one of these, or SETTLE_ITEM
-- ARGV[5]  session     LEASE_SESSION; '' for a batch without items of leases
-- ARGV[6]  now_ms      '' for Redis's clock
-- returns  {answers, number of counts by identifier that were left out, the same by tag, then the snapshots of keys whose version
--          in VERIFY_ITEM is out of date, in the order of their answers}
--   answers   BATCH_HEAD, the length of each (2; plus WITH_SNAPSHOT if its snapshot follows), then each:
--   verify    VERIFIED and each VERIFIED_LIMIT; NOT_FOUND alone (1)
--   lease     GRANTED and the answer to the item that follows
--   settle    LEASE_DONE (1)
--   limit     LIMITED and each LIMITED_CHECK
--   refused   REFUSED
--   snapshot  SNAPSHOT, then SNAPSHOT_IDENTITY if the key has an identity. The server caches it by its version, and sends that
--             with the next verification of the key.
--
-- The structures in capitals are declared in src/store/layout.ts.
--
-- One function decides both kinds, because the requests of one turn of the event loop are sent as one call.
--
-- It is a library (FUNCTION LOAD, FCALL), because a script creates its functions again with every call, which took longer than
-- deciding a small batch. Those of a library are created once.

-- @include "include/clock"
-- @include "include/decide/apis"
-- @include "include/decide/call"
-- @include "include/decide/lease"
-- @include "include/decide/ratelimit"
-- @include "include/decide/session"
-- @include "include/decide/totals"
-- @include "include/decide/verify"

-- After this much work a call leaves the remaining items to the next call, so that a batch of expensive items does not block Redis
-- for long.
local WORK_MAX = 2500

local deciders = {
  [ITEM_VERIFY] = verify,
  [ITEM_LIMIT] = ratelimit,
  [ITEM_LEASE] = lease,
  [ITEM_SETTLE] = settle,
}

-- Decides the items of a batch from `batch.position` on. Before an item is decided, `batch.position` is set to the next one, so
-- that an item that fails is not decided again. `answers` has the head at 1 and the answers from 2 on.
local function decide_items(batch)
  local items, answers, lengths, position, bytes_done = call_items, batch.answers, batch.lengths, batch.position, 0
  while position <= #items and call_work + bytes_done / 10 < WORK_MAX do
    local bytes, kind, root, fields = struct.unpack(ITEM_HEAD, items, position)
    -- `bytes` counts from `kind` on.
    local last = position + (ITEM_HEAD_KIND_AT - 2) + bytes
    position = last + 1
    batch.position = position
    local answer, snapshot = deciders[kind](fields, last, root)
    -- Nil: the windows have been settled, and the item is decided now.
    if not answer then
      answer, snapshot = deciders[kind](fields, last, root)
    end
    bytes_done = bytes_done + bytes + #answer
    local number = #lengths + 1
    answers[number + 1], lengths[number] = answer, #answer
    if snapshot then
      lengths[number] = #answer + WITH_SNAPSHOT
      batch.reply[#batch.reply + 1] = snapshot
      add_work(#snapshot / 200)
    end
  end
  add_work(bytes_done / 10)
end

-- Formats of the head by the number of answers.
local head_formats = {}
local function pack_head(lengths)
  local count = #lengths
  local format = head_formats[count] or BATCH_HEAD .. string.rep('I2', count)
  head_formats[count] = format
  return struct.pack(format, call_now, count, unpack(lengths))
end

local function decide_batch(KEYS, ARGV)
  local workspace, retention, bounds, digests, items = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
  local packed_session, now = ARGV[5], now_ms(ARGV[6])
  begin_call(workspace, retention, bounds, digests, items, now)
  begin_session(packed_session)
  local batch = { position = 1, answers = { '' }, lengths = {}, reply = { '', 0, 0 } }
  -- An item that fails gets an answer that states so; the following items are decided.
  while batch.position <= #items and call_work < WORK_MAX do
    local decided, problem = pcall(decide_items, batch)
    if not decided then
      local message = type(problem) == 'table' and (problem.err or 'error') or tostring(problem)
      local answer = refuse('failed', string.sub(message, 1, 1000))
      batch.answers[#batch.answers + 1], batch.lengths[#batch.lengths + 1] = answer, #answer
    end
  end
  local reply = batch.reply
  batch.answers[1] = pack_head(batch.lengths)
  reply[1] = table.concat(batch.answers)
  add_api_totals()
  end_session()
  reply[2], reply[3] = write_totals()
  return reply
end

redis.register_function('decide', decide_batch)
