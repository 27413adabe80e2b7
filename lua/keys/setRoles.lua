#!lua full=allow-oom
-- Add, remove or replace the roles of a key.
--
-- derives  key and API records, roles, the audit stream
-- ARGV[1]  mode       add | remove | set
-- ARGV[2]  request    JSON {keyId, roles (names), rolesMax}
-- returns  {'set', role numbers as a list} | {'key_not_found'} | {'role_not_found', name} | {'too_many'}

local workspace, mode, request, actor, now = KEYS[1], ARGV[1], cjson.decode(ARGV[2]), ARGV[3], now_ms(ARGV[4])
local record, state = load_key(workspace, digest_of(workspace, request.keyId), now)
if not record then return { 'key_not_found' } end
local given, missing = find_roles(workspace, request.roles)
if missing then return { 'role_not_found', missing } end
local had = live_numbers(name_of.role_names(workspace), redis.call('HGET', record, 'roles') or '')
local combined = combine(mode, had, numbers_in(given))
if #combined > request.rolesMax then return { 'too_many' } end

local before, after = as_list(had), as_list(combined)
local names_before, names_after = names_of_roles(workspace, before), names_of_roles(workspace, after)
local _, next_version, reserve = take_stamps(workspace, now, 1, true)

full_memory.may_write(mode == 'remove' and #combined < #had)
reserve()
set_key_field(record, state, 'roles', after)
state.version = next_version()
redis.call('HSET', record, 'state', pack_state(state), 'updated', int(now))
local change = { 'roles', names_text(names_before), names_text(names_after), before ~= after }
audit(workspace, now, actor, 'key', request.keyId, { change })
return { 'set', after }
