#!lua flags=allow-oom
-- Delete a key, which can be restored for some time unless `permanent` (include/keyDeletion.lua).
--
-- derives  key, API and identity records, lists of keys and deleted keys, the indexes of starts and by expiry,
--          identity's key list, refill and purge queues, usage history, the audit stream
-- ARGV[1]  key_id
-- ARGV[2]  permanent     0 | 1
-- ARGV[3]  retention_ms  how long a deleted key's record is kept
-- ARGV[4]  usage_retention_ms
-- returns  {'deleted'} | {'key_not_found'}

local workspace, key_id, permanent, retention_ms = KEYS[1], ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local usage_retention_ms, actor, now = tonumber(ARGV[4]), ARGV[5], now_ms(ARGV[6])

local digest = digest_of(workspace, key_id)
local record, state = load_key(workspace, digest, now)
if not record then return { 'key_not_found' } end
local given = { permanent = permanent, retentionMs = retention_ms, usageRetentionMs = usage_retention_ms }
local delete = deleting_key(workspace, digest, record, state, given, now)
audit(workspace, now, actor, 'key', key_id, delete())
return { 'deleted' }
