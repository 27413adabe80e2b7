#!lua flags=no-writes
-- A page of a namespace's overrides in order of creation, or the one for exactly one identifier.
--
-- derives  namespaces, overrides and their list
-- ARGV[1]  namespace   name or id
-- ARGV[2]  identifier  of one override, or '' for a page
-- ARGV[3]  after       the last id of the page before (without `rlor_`), or ''
-- ARGV[4]  count       limit of the page
-- returns  {{OverrideReply (src/records/overrides.ts)…}, 1 if there are more, else 0, the last id that was examined or
--          ''}, or false when there is no such namespace

local workspace, name, identifier, after, count, now =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), now_ms(ARGV[5])
local namespace = find_namespace(workspace, name)
if not namespace then return false end

local last = ''
local function item_of(_, each, id16)
  -- Also of one that has ended, with which a page may end.
  last = id16
  local override = read_override(workspace, namespace, each, now)
  if not override then return nil end
  return override_reply(override, each, now)
end
if identifier ~= '' then return { { item_of(workspace, identifier, '') }, 0, '' } end
local page = page_of(workspace, name_of.override_list(workspace, namespace.id16), after, 'asc', count, item_of)
page[3] = last
return page
