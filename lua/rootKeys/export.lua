#!lua flags=no-writes
-- A page of root keys with their digests, in order of creation. A page ends early when its root keys have many grants.
--
-- derives  root key list and records
-- ARGV[1]  after      the last id of the page before (without `root_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{{digest, RootKeyReply (src/records/rootKeys.ts)}…}, 1 if there are more, else 0}

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
return page_of_root_keys(workspace, after, count, function(digest, fields) return { digest, fields } end)
