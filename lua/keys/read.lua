#!lua flags=no-writes
-- Read a key, or a deleted key, by id or digest, with a due refill applied.
--
-- derives  key, API and identity records, permissions, roles
-- ARGV[1]  key_id     '' to read by digest
-- ARGV[2]  digest     SHA-256 of the key string, or ''
-- ARGV[3]  deleted    1 for a deleted key, else 0
-- returns  KeyReply (src/records/records.ts), or false

local workspace, key_id, digest, is_deleted, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1', now_ms(ARGV[4])
if key_id ~= '' then digest = (is_deleted and deleted_digest_of or digest_of)(workspace, key_id) end
local record, state, api_id = load_key(workspace, digest, now, is_deleted)
if not record then return false end
return named((key_reply(workspace, record, state, api_id, now)))
