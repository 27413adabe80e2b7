#!lua flags=no-writes
-- Read a key by id or digest, with a due refill applied.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key, API and identity records, permissions, roles
-- ARGV[1]  key_id     '' to read by digest
-- ARGV[2]  digest     SHA-256 of the key string, or ''
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  KeyReply (src/store/records.ts), or false

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/keyIds"
-- @include "include/keyRecords"

local workspace, key_id, digest, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
if key_id ~= '' then digest = digest_of(workspace, key_id) end
local record, state, api_id = load_key(workspace, digest, now)
if not record then return false end
return named((key_reply(workspace, record, state, api_id)))
