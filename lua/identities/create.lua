-- Create identities: one for createIdentity, many for imports. An identity whose externalId exists is skipped.
--
-- derives  identity records and list, the audit stream
-- ARGV[1]  request    JSON [{externalId, meta (JSON text), ratelimits, planId, credits {remaining, refill, refillDue},
--                     keptId (of an export, without `id_`)}], with distinct externalIds; all but externalId and
--                     ratelimits may be absent
-- returns  {for each identity its id, or false when its externalId or its id exists}, or for the first limit that
--          cannot be temporary `ended` or `too_late`, a space and its index, from 0; or `plan_not_found` or
--          `too_many_limits`, a space and the planId

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])

-- The balance of a new identity; nil for none.
local function new_balance(identity, version)
  local credits = identity.credits
  if not credits then return nil end
  local balance = identity_balance.new(identity.record, credits.remaining, version)
  set_refill(balance, credits.refill, now)
  -- 0 is a balance without a refill.
  if balance.refilled and credits.refillDue then balance.refill_due = math.max(1, credits.refillDue) end
  return balance
end

local stamps, created, answer = 0, 0, {}
for index, identity in ipairs(request) do
  identity.record = name_of.identity_record(workspace, identity.externalId)
  identity.exists = redis.call('EXISTS', identity.record) == 1
    or identity.keptId and external_id_for(workspace, 'id_' .. identity.keptId) ~= nil
  -- The id of a deleted identity is not used again: it may be restored, or the list of its keys will expire.
  local kept = identity.keptId
  local former = kept and { name_of.deleted_identity(workspace, kept), name_of.identity_keys(workspace, kept) }
  if kept and redis.call('EXISTS', unpack(former)) > 0 then identity.keptId = nil end
  answer[index] = false
  if not identity.exists then
    local refusal, refused_at
    identity.limits, refusal, refused_at = limit_list.of_new(identity.ratelimits, now)
    if refusal then return refusal .. ' ' .. int(refused_at) end
    local plan_id = identity.planId
    if plan_id and not plans.find(workspace, plan_id) then return 'plan_not_found ' .. plan_id end
    if plan_id and #identity.limits > plans.LIMITS_MAX then return 'too_many_limits ' .. plan_id end
    stamps, created = stamps + 3 + #identity.limits, created + 1
  end
end
if created == 0 then return answer end
require_room(workspace, actor, created)

local next_id, next_version = take_stamps(workspace, now, stamps)
for index, identity in ipairs(request) do
  if not identity.exists then
    local function id_of_identity() return identity.keptId or next_id() end
    local id16 = string.sub(create_identity(workspace, identity.externalId, id_of_identity, next_version), 1, 16)
    limit_list.name(identity.limits, next_id)
    -- The first decision merges those of its plan.
    local limits = restore_limits(identity.limits, identity.ratelimits)
    local version = next_version()
    local balance = new_balance(identity, version)
    local made = { id16 = id16, version = version, has_balance = balance, has_plan = identity.planId, limits = limits }
    local state = packed_identity.pack(made)
    if balance then identity_balance.write(balance) end
    set_fields(identity.record, { state = state, meta = identity.meta, planId = identity.planId })
    plans.index(workspace, identity.planId, id16)
    limit_list.note_ends(workspace, id16, {}, limits)
    identity.balance = balance
    answer[index] = 'id_' .. id16
  end
end
-- The event of an import has no id.
if #request > 1 then
  audit(workspace, now, actor, 'identity', '', { { 'identityCount', nil, created } })
else
  audit(workspace, now, actor, 'identity', answer[1], {
    { 'externalId', nil, request[1].externalId },
    { 'meta', nil, request[1].meta },
    { 'credits.remaining', nil, request[1].balance and request[1].balance.balance },
    { 'credits.refill', nil, request[1].balance and refill_text(request[1].balance) },
    { 'ratelimits', nil, limits_text(request[1].limits, now) },
    { 'planId', nil, request[1].planId },
  })
end
return answer
