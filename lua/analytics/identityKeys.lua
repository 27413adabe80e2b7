#!lua flags=no-writes
-- A page of the keys of an identity. A deleted identity has a list of its keys as long as their usage is kept.
--
-- derives  identity record and list of keys
-- ARGV[1]  external_id
-- ARGV[2]  id16         of a deleted identity with this externalId, without `id_`; '' for the one that exists
-- ARGV[3]  after        the second value that the page before returned, or ''
-- ARGV[4]  count        number of members of the list to read
-- returns  {{key id without `key_`…}, where the next page begins, or false after the last page}

local workspace, external_id, id16, after, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local keys, next_after = identity_keys_page(workspace, external_id, id16, after, count)
return { keys, next_after }
