-- Change an identity: only the fields that are in the request.
--
-- derives  identity record, list and list of keys, window counters, the audit stream
-- ARGV[1]  request    JSON {identity (id or externalId)} and any of {meta (JSON text, '' removes it), planId (null
--                     removes it), ratelimits, ratelimit (see with_one in include/limitList), credits (null removes
--                     them) {remaining, refill (null removes it)}}
-- returns  IdentityReply (src/records/records.ts), false when there is no such identity, 'refill_unlimited',
--          `plan_not_found` or `too_many_limits`, a space and the planId, or a refusal of limit_list.with_one or
--          with_all, the latter with a space and the index of the limit, from 0

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])

-- A balance (nil for none) as a request changes it, which does not remove it.
local function set_credits(balance, record, credits, version)
  if credits.remaining and balance then
    balance.balance = credits.remaining
    identity_balance.renumber(balance, version)
  elseif credits.remaining then
    balance = identity_balance.new(record, credits.remaining, version)
  end
  if balance and credits.refill then
    set_refill(balance, credits.refill ~= cjson.null and credits.refill or nil, now)
  end
  return balance
end

local external_id = external_id_for(workspace, request.identity)
if not external_id then return false end
local record = name_of.identity_record(workspace, external_id)
local identity = load_identity(record)
local limits_before, counters = limits_text(identity.limits, now), nil
local limits, refusal, refused_at = limit_ends.in_force(identity.limits, now), nil, nil
if request.ratelimit then
  request.ratelimits, refusal = limit_list.with_one(limits, request.ratelimit, now)
elseif request.ratelimits then
  request.ratelimits, refusal, refused_at = limit_list.with_all(limits, request.ratelimits, now)
end
if refusal then return refused_at and refusal .. ' ' .. int(refused_at) or refusal end
local plan, missing_plan = plans.after(workspace, request.planId, identity.plan_id)
if missing_plan then return 'plan_not_found ' .. missing_plan end
local wanted, changes_limits = request.ratelimits or limit_list.own(limits), request.ratelimits or request.planId
if changes_limits and plan and #wanted > plans.LIMITS_MAX then return 'too_many_limits ' .. plan.id end
if changes_limits then
  identity.limits, counters =
    limit_list.replace(workspace, identity.id16, identity.limits, plans.merged(wanted, plan), now)
end
local meta = identity_meta(record)
local meta_before = meta or nil
local credits, null = request.credits, cjson.null
local balance = balance_of_identity(record, identity, now)
local balance_before, refill_before = balance and balance.balance, balance and refill_text(balance)
local is_removed = credits == null or credits and credits.remaining == null
if credits and not is_removed and credits.refill and credits.refill ~= null and not (balance or credits.remaining) then
  return 'refill_unlimited'
end

local key_count = count_all_identity_keys(workspace, record, identity)
local next_id, next_version = take_stamps(workspace, now, 1 + #wanted)
local plan_before = identity.plan_id
if changes_limits then
  limit_list.name(identity.limits, next_id)
  limit_list.keep_counters(workspace, identity.id16, record, counters, now)
  identity.has_plan, identity.plan_id = plan ~= nil, plan and plan.id
  plans.keep(record, plan)
  plans.move(workspace, plan_before, identity.plan_id, identity.id16)
end
identity.version = next_version()
if is_removed then
  balance = nil
elseif credits then
  balance = set_credits(balance, record, credits, identity.version)
end
identity.has_balance = balance ~= nil
redis.call('HSET', record, 'state', packed_identity.pack(identity))
if is_removed then
  redis.call('HDEL', record, 'credits')
elseif credits and balance then
  identity_balance.write(balance)
end
if request.meta then
  write_field(record, 'meta', request.meta)
  meta = request.meta ~= '' and request.meta
end
audit(workspace, now, actor, 'identity', 'id_' .. identity.id16, {
  { 'meta', meta_before, meta or nil },
  { 'credits.remaining', balance_before, balance and balance.balance },
  { 'credits.refill', refill_before, balance and refill_text(balance) },
  { 'ratelimits', limits_before, limits_text(identity.limits, now) },
  { 'planId', plan_before, identity.plan_id },
})
return (identity_reply(identity, external_id, meta, balance, now, key_count))
