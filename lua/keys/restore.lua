-- Restore a deleted key, with everything that it had (include/keyDeletion.lua).
--
-- derives  key and API records, lists of keys and deleted keys, the index by expiry, identity's record and key
--          list, refill and purge queues, lists of former keys, the audit stream
-- ARGV[1]  key_id
-- returns  {'restored'} | {'key_not_found'} when there is no such deleted key, its API was deleted, or a key has its id

local workspace, key_id, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])

local digest = deleted_digest_of(workspace, key_id)
local record, state = load_key(workspace, digest, now, true)
local restore = record and restoring_key(workspace, key_id, digest, record, state, now)
if not restore then return { 'key_not_found' } end
local _, next_version = take_stamps(workspace, now, 1)
audit(workspace, now, actor, 'key', key_id, restore(next_version))
return { 'restored' }
