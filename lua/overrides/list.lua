#!lua flags=no-writes
-- A page of a namespace's overrides in order of creation, or the one for exactly one identifier.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  namespaces, overrides and their list
-- ARGV[1]  namespace   name or id
-- ARGV[2]  identifier  of one override, or '' for a page
-- ARGV[3]  after       the last id of the page before (without `rlor_`), or ''
-- ARGV[4]  count       limit of the page
-- returns  {{OverrideReply (src/records/overrides.ts)…}, 1 if there are more, else 0}, or false when there is no such
--          namespace

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/names"
-- @include "include/overrides"

local workspace, name, identifier, after, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local namespace = find_namespace(workspace, name)
if not namespace then return false end

local identifiers = { identifier }
if identifier == '' then
  -- An id is followed by its identifier of at most 2048 bytes, none of which is above this.
  local from = after == '' and '-' or '(' .. after .. '\255'
  for index, member in
    ipairs(
      redis.call('ZRANGE', name_of.override_list(workspace, namespace.id16), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
    )
  do
    identifiers[index] = string.sub(member, 17)
  end
  if identifiers[1] == '' then identifiers = {} end
end
local replies = {}
for index = 1, math.min(count, #identifiers) do
  local override = read_override(workspace, namespace, identifiers[index])
  if override then
    replies[#replies + 1] = named({
      id = override.id16,
      identifier = identifiers[index],
      limit = int(override.limit),
      duration = int(override.duration),
      created = int(override.created),
    })
  end
end
return { replies, #identifiers > count and 1 or 0 }
