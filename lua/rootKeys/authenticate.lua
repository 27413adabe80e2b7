#!lua full=no-writes
-- Read the grants of a root key, and record that it was used.
--
-- derives  root key record
-- ARGV[1]  digest     SHA-256 of the root key string
-- returns  {'ok' | 'unauthorized' | 'root_key_disabled' | 'root_key_expired', grants, root key id, milliseconds until
--          it expires or ''}

local workspace, digest, now = KEYS[1], ARGV[1], now_ms(ARGV[2])
return { authenticate(workspace, digest, now) }
