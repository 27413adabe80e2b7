#!lua flags=no-writes
-- A page of identities in order of creation, with what an import needs. The page ends early if the identities have many
-- limits or large metadata, so that Redis is not blocked.
--
-- derives  identity records and list
-- ARGV[1]  after      the last id of the page before (without `id_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{{IdentityReply (src/records/records.ts), used_units and planned_units of include/exported}…}, 1 if there
--          are more, else 0}

local workspace, after, count, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), now_ms(ARGV[3])
local function exported(_, external_id)
  local record = name_of.identity_record(workspace, external_id)
  local identity = load_identity(record)
  local balance = balance_of_identity(record, identity, now)
  local reply, parts = identity_reply(identity, external_id, identity_meta(record), balance, now, nil, true)
  local used = used_units(limits_in_force(workspace, identity.id16, identity.limits, now), now)
  return { reply, used, planned_units(identity.limits, now) }, parts
end
return page_of(workspace, name_of.identity_list(workspace), after, 'asc', count, exported, REPLY_PARTS_MAX)
