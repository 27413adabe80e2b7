-- The names of all Redis keys of a workspace, made here and nowhere else in lua/. `workspace` is KEYS[1], `tg:{ws_…}`, which is
-- also the name of the workspace's own record. src/scripts/keyspace.ts describes what each of them contains.
local function key_record(workspace, digest) return workspace .. ':k:' .. digest end
local function key_list(workspace, api8) return workspace .. ':keys:' .. api8 end
local function deleted_keys(workspace, api8) return workspace .. ':kd:' .. api8 end
local function api_record(workspace, api8) return workspace .. ':api:' .. api8 end
local function api_list(workspace) return workspace .. ':apis' end
local function dead_apis(workspace) return workspace .. ':dead' end
local function start_bounds(workspace, api8) return workspace .. ':sb:' .. api8 end
local function start_leaf(workspace, api8, bound) return workspace .. ':sl:' .. api8 .. ':' .. bound end
local function refill_queue(workspace) return workspace .. ':refill' end
local function purge_queue(workspace) return workspace .. ':purge' end
local function identity_record(workspace, external_id) return workspace .. ':i:' .. external_id end
local function identity_list(workspace) return workspace .. ':identities' end
local function identity_keys(workspace, identity16) return workspace .. ':ik:' .. identity16 end
local function namespace_ids(workspace) return workspace .. ':ns' end
local function namespace_names(workspace) return workspace .. ':nsid' end
local function namespace_list(workspace) return workspace .. ':nsl' end
local function overrides(workspace, namespace16) return workspace .. ':ov:' .. namespace16 end
local function wildcard_overrides(workspace, namespace16) return workspace .. ':ovw:' .. namespace16 end
local function override_list(workspace, namespace16) return workspace .. ':ovl:' .. namespace16 end
local function permission_numbers(workspace) return workspace .. ':pn' end
local function permission_slugs(workspace) return workspace .. ':ps' end
local function permission_list(workspace) return workspace .. ':permissions' end
local function permission_record(workspace, number) return workspace .. ':perm:' .. number end
local function role_numbers(workspace) return workspace .. ':rn' end
local function role_names(workspace) return workspace .. ':rs' end
local function role_permissions(workspace) return workspace .. ':rp' end
local function role_list(workspace) return workspace .. ':roles' end
local function role_record(workspace, number) return workspace .. ':role:' .. number end
local function root_key_record(workspace, digest) return workspace .. ':rk:' .. digest end
local function root_key_list(workspace) return workspace .. ':rks' end
local function admin_root_keys(workspace) return workspace .. ':rkfull' end
-- The lists whose members are records of the workspace by themselves, and the hash whose fields are (include/records).
local function record_lists(workspace)
  return {
    workspace .. ':apis',
    workspace .. ':identities',
    workspace .. ':permissions',
    workspace .. ':roles',
    workspace .. ':rks',
  },
    workspace .. ':nsid'
end
local function registry(workspace) return workspace .. ':leases' end
-- Never exists, see absentKey in src/redis/names.ts.
local function absent(workspace) return workspace .. ':-' end
local function audit_stream(workspace) return workspace .. ':audit' end
local function window_member(duration, name) return string.format('%.0f', duration) .. ':' .. name end
local function window_at(workspace, owner, member) return workspace .. ':w:' .. owner .. ':' .. member end
local function window_list(workspace, owner) return workspace .. ':wo:' .. owner end
local function window_leases(workspace, owner, member) return workspace .. ':wl:' .. owner .. ':' .. member end
local function api_usage(workspace, api8, day) return workspace .. ':ua:' .. api8 .. ':' .. day end
local function key_usage(workspace, key24) return workspace .. ':uk:' .. key24 end
local function key_days(workspace, key24) return workspace .. ':uh:' .. key24 end
local function used_on_day(workspace, api8, day) return workspace .. ':ux:' .. api8 .. ':' .. day end
local function used_in_week(workspace, api8, week) return workspace .. ':uw:' .. api8 .. ':' .. week end
-- Also the member of a record of a day: of kind 'k' (used keys of an API), 't' (its counts by tag) or 'i' (counts of a namespace by
-- identifier).
local function rollup_queue(workspace, kind, id, day)
  return workspace .. ':rollup', kind and kind .. id .. ':' .. string.format('%d', day)
end
local function rollup_positions(workspace) return workspace .. ':rolled' end
local function refusal_rows(workspace, hour) return workspace .. ':rh:' .. hour end
local function former_keys(workspace, api8) return workspace .. ':uz:' .. api8 end
local function former_members(workspace, external_id) return workspace .. ':ui:' .. external_id end
local function tag_usage(workspace, api8, day) return workspace .. ':ut:' .. api8 .. ':' .. day end
local function tag_names(workspace, api8) return workspace .. ':tags:' .. api8 end
local function namespace_usage(workspace, namespace16, day) return workspace .. ':ul:' .. namespace16 .. ':' .. day end
local function identifier_usage(workspace, namespace16, day) return workspace .. ':ud:' .. namespace16 .. ':' .. day end
local function identifiers_counted(workspace, namespace16, day) return workspace .. ':un:' .. namespace16 .. ':' .. day end
