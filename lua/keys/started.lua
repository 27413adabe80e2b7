#!lua flags=no-writes
-- The keys of several APIs, also deleted ones, whose string begins with a text, by the index of starts. It ends early
-- when it has read many entries.
--
-- derives  the index of starts, lists of keys and deleted keys
-- ARGV[1]  source     keys | deleted: which keys are counted
-- ARGV[2]  start      the beginning of the key string, more or less of it than is stored
-- ARGV[3]  apis       the last 8 characters of the id of each API
-- returns  {for each API that was read {the packed ids of the keys in no order, maybe repeated, or false if they are in
--          too many leaves of the index; how many keys the list has}}

local workspace, source, start, apis = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
-- Limits of the leaves of an API, and of the entries of all: some milliseconds.
local LEAVES_MAX, ENTRIES_MAX = 32, 8192

local replies, entries = {}, 0
for at = 1, #apis, 8 do
  local api8 = string.sub(apis, at, at + 7)
  local ids, read = ids_with_start(workspace, api8, start, LEAVES_MAX)
  local list = source == 'deleted' and name_of.deleted_keys(workspace, api8) or name_of.key_list(workspace, api8)
  replies[#replies + 1] = { ids and table.concat(ids), redis.call('ZCARD', list) }
  -- An API without keys costs as much as some entries.
  entries = entries + (read or 0) + 50
  if entries > ENTRIES_MAX or not ids then break end
end
return replies
