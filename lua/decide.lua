#!lua name=decide
-- Decide a batch: verifications of keys and limit checks of one workspace, each under its root key, in the order given. Each
-- item is decided, charged and counted on its own; a broken record fails its own item only.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  key, API, identity, namespace and root key records, permissions, roles, window counters, usage counts
-- ARGV[1]  retention   milliseconds for which usage counts are kept
-- ARGV[2]  bounds      four numbers with a blank between them: tags that an API may count, bytes of its counts by tag in a day,
--                      identifiers that a namespace may count in a day, records of the workspace (0 is no bound)
-- ARGV[3]  digests     SHA-256 of each distinct root key of the batch, 32 bytes each
-- ARGV[4]  items       one after the other: ITEM_HEAD with the index of its root key in digests (from 1), then VERIFY_ITEM or
--                      a number of checks (1) and each LIMIT_CHECK
-- ARGV[5]  now_ms      '' for Redis's clock
-- returns  {answers, counts by identifier and by tag that were left out, then in the same order the snapshot of each key whose
--          known version is out of date}
--   answers   BATCH_HEAD, the length of each (2; plus WITH_SNAPSHOT if its snapshot follows), then each:
--   verify    VERIFIED and each VERIFIED_LIMIT; NOT_FOUND alone (1)
--   limit     LIMITED and each LIMITED_CHECK
--   refused   REFUSED
--   snapshot  SNAPSHOT, then SNAPSHOT_IDENTITY if there is one. A caller caches it with its version, and sends that back.
--
-- The structures in capitals are declared in src/store/layout.ts.
--
-- Why one function for both: what arrives in one turn of the event loop is sent, and answered, as one call.
--
-- Why a library (FUNCTION LOAD, FCALL): a script makes its functions again with every call, which took longer than deciding a
-- small batch; those of a library stay.

-- @include "include/clock"
-- @include "include/decide/apis"
-- @include "include/decide/call"
-- @include "include/decide/ratelimit"
-- @include "include/decide/totals"
-- @include "include/decide/verify"

-- Once a call has done this much work the items that are left are the next call's, so that no mixture of expensive items
-- keeps Redis for as long as all of them take.
local WORK_MAX = 2500

local deciders = { [ITEM_VERIFY] = verify, [ITEM_LIMIT] = ratelimit }

-- Decides the items of a batch from `batch.position` on, and notes where the next begins before it decides one. Answers are
-- numbered from 1, and stored from 2 on: the head is first.
local function decide_items(batch)
  local items, answers, lengths, position = call_items, batch.answers, batch.lengths, batch.position
  while position <= #items and call_work < WORK_MAX do
    local bytes, kind, root, fields = struct.unpack(ITEM_HEAD, items, position)
    -- `bytes` are those from `kind` on.
    local last = position + ITEM_HEAD_KIND_AT - 2 + bytes
    position = last + 1
    batch.position = position
    local answer, snapshot = deciders[kind](fields, last, root)
    -- Windows were settled: the item is decided again.
    if not answer then
      answer, snapshot = deciders[kind](fields, last, root)
    end
    add_work((bytes + #answer) / 10)
    local number = #lengths + 1
    answers[number + 1], lengths[number] = answer, #answer
    if snapshot then
      lengths[number] = #answer + WITH_SNAPSHOT
      batch.reply[#batch.reply + 1] = snapshot
      add_work(#snapshot / 200)
    end
  end
end

-- How the head of so many answers is packed.
local head_formats = {}
local function pack_head(lengths)
  local count = #lengths
  local format = head_formats[count] or BATCH_HEAD .. string.rep('I2', count)
  head_formats[count] = format
  return struct.pack(format, call_now, count, unpack(lengths))
end

local function decide_batch(KEYS, ARGV)
  local workspace, retention, bounds, digests, items = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
  local now = now_ms(ARGV[5])
  begin_call(workspace, retention, bounds, digests, items, now)
  local batch = { position = 1, answers = { '' }, lengths = {}, reply = { '', 0, 0 } }
  -- An item that fails is answered so, and the others follow.
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
  reply[2], reply[3] = write_totals()
  return reply
end

redis.register_function('decide', decide_batch)
