#!lua flags=no-writes
-- A part of a page of identities, or of deleted ones that can be restored, in order of creation, with or without
-- filters. The part ends early if the identities have many limits or large metadata, so that Redis is not blocked.
--
-- derives  identity records, list and lists of keys, deleted ones, their list and queue, identities of plans
-- ARGV[1]  after      the last id of the part before (without `id_`), or ''
-- ARGV[2]  count      limit of the identities to read
-- ARGV[3]  search     '' for all; else text in lower case that the id or externalId (ASCII) must contain
-- ARGV[4]  wanted     limit of the identities to return
-- ARGV[5]  below      '' for all; else only identities with a balance below this
-- ARGV[6]  deleted    1 for deleted identities, else 0
-- ARGV[7]  plan_id    '' for all; else only identities with this plan
-- returns  {{IdentityReply (src/records/records.ts)…}, the last id that was read (without `id_`) or '', 1 if there are
--          more or 0}

local workspace, after, count, search, wanted = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local below, deleted, plan_id, now = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7], now_ms(ARGV[8])
local is_of_plan = plan_id ~= '' and not deleted
local list = is_of_plan and name_of.plan_identities(workspace, plan_id)
  or (deleted and name_of.deleted_identities or name_of.identity_list)(workspace)
local from = after == '' and '-' or '(' .. after .. '\255'
local members = redis.call('ZRANGE', list, from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local rows, last, examined, parts = {}, '', 0, 0
for index = 1, math.min(count, #members) do
  if #rows == wanted or parts >= REPLY_PARTS_MAX then break end
  local id16, external_id = string.sub(members[index], 1, 16), string.sub(members[index], 17)
  last, examined = id16, index
  if is_of_plan then external_id = rest_of_id(name_of.identity_list(workspace), '', id16) end
  if
    search == ''
    or string.find(string.lower('id_' .. id16), search, 1, true)
    or string.find(string.lower(external_id), search, 1, true)
  then
    local record = deleted and name_of.deleted_identity(workspace, id16)
      or name_of.identity_record(workspace, external_id)
    local identity, row_parts = load_identity(record), nil
    local balance = balance_of_identity(record, identity, now)
    -- The plan of a deleted identity may have been deleted too.
    if deleted then identity.plan_id = plans.named(workspace, identity.plan_id, record) end
    local is_wanted = plan_id == '' or identity.plan_id == plan_id
    if is_wanted and (not below or (balance and balance.balance < below)) then
      local meta, key_count = identity_meta(record), count_all_identity_keys(workspace, record, identity)
      local until_ms = deleted and deleted_records.until_of(workspace, 'i', members[index]) or nil
      rows[#rows + 1], row_parts = identity_reply(identity, external_id, meta, balance, now, key_count, false, until_ms)
      parts = parts + row_parts
    else
      parts = parts + parts_of_limits(identity.limits)
    end
  end
end
return { rows, last, #members > examined and 1 or 0 }
