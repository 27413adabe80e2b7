-- Migrate some records of a workspace from data version 4 to 5: put keys that expire into the index by expiry, and
-- remove the field `leases` of keys and identities, which no server reads.
--
-- derives  the place of the migration, the list of APIs, API records, lists of keys and deleted keys, key records, the
--          index by expiry, the list of identities, identity records
-- ARGV[1]  fence      number of the holder of the lock
-- ARGV[2]  run        number of the migration
-- ARGV[3]  count      limit of the records
-- returns  {outcome `more`, `done` or `fenced`, migrated records so far, microseconds that it took}

local workspace, fence, run, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local started = redis.call('TIME')

local function reply(outcome, done)
  local ended = redis.call('TIME')
  return { outcome, done or 0, (ended[1] - started[1]) * 1000000 + ended[2] - started[2] }
end

local status, at, done = open_migration(workspace, fence, run)
if status ~= 'open' then return reply(status, done) end
-- A workspace in the list without a record: creating it failed midway.
if redis.call('EXISTS', workspace) == 0 then return reply('done', 0) end

-- The place: which list is next, the API, and the last member. `n` is the first API after this one, `k` its keys, `d`
-- its deleted keys, `i` the identities.
local list, api, after = string.sub(at, 1, 1), string.sub(at, 2, 17), string.sub(at, 18)
if list == '' then list = 'n' end
local API_ID_BYTES = 16

local function members_after(name, limit)
  return redis.call('ZRANGE', name, after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, limit)
end

local function migrate_key(api8, member, is_deleted)
  local record = name_of.key_record(workspace, string.sub(member, PACKED_ID_BYTES + 1))
  local packed = redis.call('HGET', record, 'state')
  -- A broken record must not stop the migration of others.
  if packed and not is_deleted then
    pcall(index_packed_state, workspace, api8, string.sub(member, 1, PACKED_ID_BYTES), packed)
  end
  redis.call('HDEL', record, 'leases')
end

local function next_api()
  local found =
    redis.call('ZRANGE', name_of.api_list(workspace), api == '' and '-' or '(' .. api, '+', 'BYLEX', 'LIMIT', 0, 1)
  api, after = found[1] or '', ''
  if api == '' then return 'i' end
  -- Servers of version 4 leave keys in the index that they delete.
  remove_expiries(workspace, string.sub(api, API_ID_BYTES - 7))
  return 'k'
end

-- Returns the number of records that were read.
local function migrate_keys(limit)
  local api8, is_deleted = string.sub(api, API_ID_BYTES - 7), list == 'd'
  -- A deleted API: the sweeper removes its keys, and nothing would remove an index.
  local exists = redis.call('EXISTS', name_of.api_record(workspace, api8)) == 1
  local name = is_deleted and name_of.deleted_keys(workspace, api8) or name_of.key_list(workspace, api8)
  local members = exists and members_after(name, limit) or {}
  for _, member in ipairs(members) do
    migrate_key(api8, member, is_deleted)
  end
  after = members[#members] or after
  if #members < limit then
    list, after = list == 'k' and exists and 'd' or 'n', ''
  end
  return #members
end

local function migrate_identities(limit)
  local members = members_after(name_of.identity_list(workspace), limit)
  for _, member in ipairs(members) do
    redis.call('HDEL', name_of.identity_record(workspace, string.sub(member, API_ID_BYTES + 1)), 'leases')
  end
  after = members[#members] or after
  if #members < limit then list = MIGRATED end
  return #members
end

-- An API without keys is work, too.
local left = count
while left > 0 and list ~= MIGRATED do
  if list == 'n' then
    list, left = next_api(), left - 1
  else
    local read = (list == 'i' and migrate_identities or migrate_keys)(left)
    left, done = left - read, done + read
    if read == 0 then left = left - 1 end
  end
end

local is_done = list == MIGRATED
local place = list .. (api == '' and string.rep(' ', API_ID_BYTES) or api) .. after
store_migration(workspace, fence, run, is_done and MIGRATED or place, done)
return reply(is_done and 'done' or 'more', done)
