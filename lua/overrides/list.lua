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
-- @include "include/pages"

local workspace, name, identifier, after, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local namespace = find_namespace(workspace, name)
if not namespace then return false end

local function override_reply(_, each)
  local override = read_override(workspace, namespace, each)
  return override
    and named({
      id = override.id16,
      identifier = each,
      limit = int(override.limit),
      duration = int(override.duration),
      created = int(override.created),
    })
end
if identifier ~= '' then return { { override_reply(workspace, identifier) }, 0 } end
return page_of(workspace, name_of.override_list(workspace, namespace.id16), after, 'asc', count, override_reply)
