-- Change an identity: only the fields that are in the request.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity record and list, window counters, the audit stream
-- ARGV[1]  request    JSON {identity (id or externalId)} and any of {meta (JSON text, '' removes it), ratelimits,
--                     ratelimit (see with_limit in include/limits)}
-- ARGV[2]  actor      JSON, see include/audit
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  IdentityReply (src/records/records.ts), false when there is no such identity, or a refusal of
--          with_limit

-- @include "include/audit"
-- @include "include/changes"
-- @include "include/clock"
-- @include "include/fields"
-- @include "include/identities"
-- @include "include/ids"
-- @include "include/limits"
-- @include "include/names"
-- @include "include/state"

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local external_id = external_id_for(workspace, request.identity)
if not external_id then return false end
local record, identity = name_of.identity_record(workspace, external_id), load_identity(workspace, external_id)
local limits_before, counters = limits_text(identity.limits), nil
if request.ratelimit then
  local refusal
  request.ratelimits, refusal = with_limit(identity.limits, request.ratelimit)
  if refusal then return refusal end
end
if request.ratelimits then
  identity.limits, counters = replace_limits(workspace, identity.id16, identity.limits, request.ratelimits, now)
end
local meta = identity_meta(workspace, external_id)
local meta_before = meta or nil

local next_id, next_version = take_stamps(workspace, now, 1 + #(request.ratelimits or {}))
if request.ratelimits then
  name_limits(identity.limits, next_id)
  keep_counters(workspace, identity.id16, record, counters, now)
end
identity.version = next_version()
redis.call('HSET', record, 'state', pack_identity(identity))
if request.meta then
  write_field(record, 'meta', request.meta)
  meta = request.meta ~= '' and request.meta
end
audit(workspace, now, actor, 'identity', 'id_' .. identity.id16, {
  { 'meta', meta_before, meta or nil },
  { 'ratelimits', limits_before, limits_text(identity.limits) },
})
return (identity_reply(identity, external_id, meta))
