#!lua flags=allow-oom
-- Delete a plan that no key and no identity has. With a replacement, its keys and identities get that first, some with
-- each call: it is called until it returns another outcome than `more`.
--
-- derives  plans and their list, key and identity records, lists of keys and identities of plans, the audit stream
-- ARGV[1]  plan_id
-- ARGV[2]  replace_with  the plan that its keys and identities get; '' for none
-- returns  {'deleted'} | {'plan_not_found', planId} | {'more', keys and identities that are left} |
--          {'in_use', its keys, its identities}

local workspace, plan_id, replace_with, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])
-- Keys and identities of a step: some milliseconds of Redis's time.
local MOVED_AT_ONCE = 100

local plan = plans.read(workspace, plan_id)
if not plan then return { 'plan_not_found', plan_id } end
local keys, identities = plans.users(workspace, plan_id)
if keys + identities > 0 and replace_with == '' then return { 'in_use', int(keys), int(identities) } end
if replace_with ~= '' and not plans.find(workspace, replace_with) then return { 'plan_not_found', replace_with } end

local owners, texts = plans.owners(workspace, plan_id, MOVED_AT_ONCE), plans.texts(workspace, plan, now)
for _, owner in ipairs(owners) do
  owner.is_moved = owner.record and redis.call('HGET', owner.record, 'planId') == plan_id
end

-- Write.
local _, next_version = take_stamps(workspace, now, 1)
plans.changed(workspace, next_version)
for _, owner in ipairs(owners) do
  if owner.is_moved then
    -- The next decision merges the limits of the other plan.
    redis.call('HSET', owner.record, 'planId', replace_with)
    redis.call('HDEL', owner.record, 'merged')
    plans.index(workspace, replace_with, owner.id)
  end
  plans.unindex(workspace, plan_id, owner.id)
end
if keys + identities > #owners then return { 'more', int(keys + identities - #owners) } end
redis.call('UNLINK', name_of.plan_record(workspace, plan_id))
redis.call('ZREM', name_of.plan_list(workspace), plan.id16 .. plan_id)
audit(workspace, now, actor, 'plan', plan_id, {
  { 'ratelimits', texts.ratelimits },
  { 'permissions', texts.permissions },
  { 'roles', texts.roles },
  { 'meta', texts.meta },
  { 'replaceWith', nil, replace_with ~= '' and replace_with or nil },
})
return { 'deleted' }
