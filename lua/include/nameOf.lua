-- The names of all Redis keys of a workspace, made here and nowhere else in lua/. `workspace` is KEYS[1], `tg:{ws_…}`,
-- which is also the name of the workspace's own record. src/redis/keyspace.md describes what each of them contains.
local name_of = {}

function name_of.key_record(workspace, digest) return workspace .. ':k:' .. digest end
function name_of.key_list(workspace, api8) return workspace .. ':keys:' .. api8 end
function name_of.deleted_keys(workspace, api8) return workspace .. ':kd:' .. api8 end
function name_of.expiries(workspace, api8) return workspace .. ':ke:' .. api8 end
function name_of.api_record(workspace, api8) return workspace .. ':api:' .. api8 end
function name_of.api_list(workspace) return workspace .. ':apis' end
function name_of.dead_apis(workspace) return workspace .. ':dead' end
-- Deleted records that can be restored (include/deletedRecords).
function name_of.deleted_api(workspace, api8) return workspace .. ':da:' .. api8 end
function name_of.deleted_apis(workspace) return workspace .. ':das' end
function name_of.deleted_identity(workspace, identity16) return workspace .. ':di:' .. identity16 end
function name_of.deleted_identities(workspace) return workspace .. ':dis' end
function name_of.deleted_queue(workspace) return workspace .. ':dq' end
function name_of.start_bounds(workspace, api8) return workspace .. ':sb:' .. api8 end
function name_of.start_leaf(workspace, api8, bound) return workspace .. ':sl:' .. api8 .. ':' .. bound end
function name_of.refill_queue(workspace) return workspace .. ':refill' end
function name_of.purge_queue(workspace) return workspace .. ':purge' end
function name_of.identity_record(workspace, external_id) return workspace .. ':i:' .. external_id end
function name_of.identity_list(workspace) return workspace .. ':identities' end
function name_of.identity_keys(workspace, identity16) return workspace .. ':ik:' .. identity16 end
function name_of.namespace_ids(workspace) return workspace .. ':ns' end
function name_of.namespace_names(workspace) return workspace .. ':nsid' end
function name_of.namespace_list(workspace) return workspace .. ':nsl' end
function name_of.overrides(workspace, namespace16) return workspace .. ':ov:' .. namespace16 end
function name_of.wildcard_overrides(workspace, namespace16) return workspace .. ':ovw:' .. namespace16 end
-- When the overrides end that then no longer exist: of all namespaces, and of one.
function name_of.override_ends(workspace) return workspace .. ':ove' end
function name_of.override_ends_of(workspace, namespace16) return workspace .. ':ovu:' .. namespace16 end
-- Temporary limits and overrides by their end, and the members: the first letter is the kind of the owner.
function name_of.ends(workspace) return workspace .. ':ends' end
function name_of.limit_end(owner, name) return (#owner == 24 and 'k' or 'i') .. owner .. name end
function name_of.override_end(namespace16, override16) return 'o' .. namespace16 .. override16 end
function name_of.override_list(workspace, namespace16) return workspace .. ':ovl:' .. namespace16 end
function name_of.permission_numbers(workspace) return workspace .. ':pn' end
function name_of.permission_slugs(workspace) return workspace .. ':ps' end
function name_of.permission_list(workspace) return workspace .. ':permissions' end
function name_of.permission_record(workspace, number) return workspace .. ':perm:' .. number end
function name_of.role_numbers(workspace) return workspace .. ':rn' end
function name_of.role_names(workspace) return workspace .. ':rs' end
function name_of.role_permissions(workspace) return workspace .. ':rp' end
function name_of.role_list(workspace) return workspace .. ':roles' end
function name_of.role_record(workspace, number) return workspace .. ':role:' .. number end
function name_of.plan_list(workspace) return workspace .. ':plans' end
function name_of.plan_record(workspace, plan_id) return workspace .. ':pl:' .. plan_id end
-- The keys and the identities that have a plan.
function name_of.plan_keys(workspace, plan_id) return workspace .. ':plk:' .. plan_id end
function name_of.plan_identities(workspace, plan_id) return workspace .. ':pli:' .. plan_id end
function name_of.root_key_record(workspace, digest) return workspace .. ':rk:' .. digest end
function name_of.root_key_list(workspace) return workspace .. ':rks' end
function name_of.admin_root_keys(workspace) return workspace .. ':rkfull' end
-- The lists whose members are records of the workspace by themselves, and the hash whose fields are (include/records).
function name_of.record_lists(workspace)
  return {
    workspace .. ':apis',
    workspace .. ':identities',
    workspace .. ':permissions',
    workspace .. ':roles',
    workspace .. ':rks',
    workspace .. ':plans',
    name_of.deleted_apis(workspace),
    name_of.deleted_identities(workspace),
  },
    workspace .. ':nsid'
end
-- Open holds by key: digest, by the time at which the key has to be looked at.
function name_of.hold_queue(workspace) return workspace .. ':holds' end
function name_of.settled_holds(workspace, key24, hour) return workspace .. ':hs:' .. key24 .. ':' .. hour end
function name_of.registry(workspace) return workspace .. ':leases' end
-- The place of a migration of the stored data.
function name_of.migration(workspace) return workspace .. ':data' end
function name_of.audit_stream(workspace) return workspace .. ':audit' end
function name_of.window_member(duration, name) return string.format('%.0f', duration) .. ':' .. name end
function name_of.window_at(workspace, owner, member) return workspace .. ':w:' .. owner .. ':' .. member end
function name_of.window_list(workspace, owner) return workspace .. ':wo:' .. owner end
function name_of.window_leases(workspace, owner, member) return workspace .. ':lw:' .. owner .. ':' .. member end
function name_of.api_usage(workspace, api8, day) return workspace .. ':ua:' .. api8 .. ':' .. day end
function name_of.key_usage(workspace, key24) return workspace .. ':uk:' .. key24 end
function name_of.key_days(workspace, key24) return workspace .. ':uh:' .. key24 end
function name_of.used_on_day(workspace, api8, day) return workspace .. ':ux:' .. api8 .. ':' .. day end
function name_of.used_in_week(workspace, api8, week) return workspace .. ':uw:' .. api8 .. ':' .. week end
-- Also the member of a record of a day: of kind 'k' (used keys of an API), 't' (its counts by tag) or 'i' (counts of a
-- namespace by identifier).
function name_of.rollup_queue(workspace, kind, id, day)
  return workspace .. ':rollup', kind and kind .. id .. ':' .. string.format('%d', day)
end
-- Sums of usage by customer in an API and a month (since 1970): the bounds of leaves, and a leaf.
function name_of.sum_bounds(workspace, api8, month)
  return workspace .. ':sc:' .. api8 .. ':' .. string.format('%d', month)
end
function name_of.sum_leaf(workspace, api8, month, bound)
  return workspace .. ':sm:' .. api8 .. ':' .. string.format('%d', month) .. ':' .. bound
end
function name_of.rollup_positions(workspace) return workspace .. ':rolled' end
function name_of.refusal_rows(workspace, hour) return workspace .. ':rh:' .. hour end
function name_of.former_keys(workspace, api8) return workspace .. ':uz:' .. api8 end
function name_of.former_members(workspace, external_id) return workspace .. ':ui:' .. external_id end
function name_of.tag_usage(workspace, api8, day) return workspace .. ':ut:' .. api8 .. ':' .. day end
function name_of.tag_names(workspace, api8) return workspace .. ':tags:' .. api8 end
function name_of.namespace_usage(workspace, namespace16, day) return workspace .. ':ul:' .. namespace16 .. ':' .. day end
function name_of.identifier_usage(workspace, namespace16, day) return workspace .. ':ud:' .. namespace16 .. ':' .. day end
function name_of.identifiers_counted(workspace, namespace16, day)
  return workspace .. ':un:' .. namespace16 .. ':' .. day
end
