-- Create a successor of a key, with a new secret. The old key gets the id of the successor and an expiry. Its balance
-- and refill are copied; or they are moved: then it draws on the balance of the successor (include/drawnBy), and so do
-- the keys that drew on its own, unless they have ended: these have no credits from then on.
--
-- derives  key and API records, key lists, keys of plans, the indexes of starts and by expiry, the refill queue, the
--          audit stream
-- ARGV[1]  key_id      the old key
-- ARGV[2]  digest      SHA-256 of the new key string
-- ARGV[3]  start       of the new key string
-- ARGV[4]  expires_in  milliseconds until the old key expires, unless it expires earlier
-- ARGV[5]  credits     copy | move
-- ARGV[6]  awaits      1 if it may wait for credits that servers hold, else 0
-- returns  {'created', key id} | {'key_not_found', ''} | {'draws', id of the key that has the balance, ''} |
--          {'too_many_drawers', ''} | {'leased', ''} as in keys/updateCredits

local workspace, key_id, new_digest, start, expires_in = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local moves_credits, awaits, actor, now = ARGV[5] == 'move', ARGV[6] == '1', ARGV[7], now_ms(ARGV[8])

-- Limit of the keys that draw on a balance.
local DRAWERS_MAX = 16

local old_digest = digest_of(workspace, key_id)
local record, old = load_key(workspace, old_digest, now)
if not record then return { 'key_not_found', '' } end
if old.draws then return { 'draws', old.payer and 'key_' .. old.payer.state.id or '' } end
moves_credits = moves_credits and old.limited
if old.limited and awaits and awaits_leased_credits(workspace, record, old.refill_due, now) then
  return { 'leased', '' }
end
local drawers = moves_credits and drawn_by.keys(workspace, key_id, record, now) or {}
local drawn = { key_id }
for _, drawer in ipairs(drawers) do
  if drawer.is_live then drawn[#drawn + 1] = drawer.id end
end
if #drawn > DRAWERS_MAX then return { 'too_many_drawers', '' } end
local forget_leased = renumbering_leased_credits(record)
local fields = read_fields(record, KEY_COPIED_FIELDS)
local new = read_state(redis.call('HGET', record, 'state'))
apply_refill(new, now)
new.limits = limit_ends.in_force(new.limits, now)
local former_link = new.link ~= '' and new.link or redis.call('HGET', record, 'formerLink') or ''
new.link = is_live_link(workspace, former_link) and former_link or ''
local is_of_deleted = new.link == '' and is_restorable_link(workspace, former_link)
require_room(workspace, actor, 1)

local next_id, next_version, reserve_stamps = take_stamps(workspace, now, 3 + #new.limits, true)
local api8 = string.sub(old.id, 17)
new.id, new.version = next_id() .. api8, next_version()
local member = member_of_api(new.id, new_digest)
local index_starts = indexing_starts(workspace, api8, { start_entry(start, member) })

reserve_stamps()
-- Holds stay with the old key. Their credits come back to the balance with their number.
new.usage, new.forbidden, new.last_used, new.holds_due = NO_USAGE, 0, 0, NEVER
new.balances, new.pays = moves_credits and old.balances or 0, moves_credits
for _, l in ipairs(new.limits) do
  l.window = ''
  if not l.of_plan then l.id = next_id() end
end
fields.state, fields.start, fields.created = pack_state(new), start, created_field(new.id, now)
fields.drawnBy = moves_credits and table.concat(drawn, ',')
fields.formerLink = is_of_deleted and former_link
set_fields(name_of.key_record(workspace, new_digest), fields)
redis.call('ZADD', name_of.key_list(workspace, api8), 0, member)
index_starts()
plans.index(workspace, fields.planId, new.id)
index_under_identity(workspace, is_of_deleted and former_link or new.link, new.id, is_of_deleted)
if new.expires < NEVER then index_expiry_of(workspace, new) end
limit_list.note_ends(workspace, new.id, {}, new.limits)
add_records(workspace, 'key_records', 1)
if new.refilled then queue_refill(workspace, new_digest, new) end

if moves_credits then
  for _, drawer in ipairs(drawers) do
    if drawer.is_live then
      redis.call('HSET', drawer.record, 'drawsOn', 'key_' .. new.id)
    else
      drawn_by.part(drawer.state)
      redis.call('HSET', drawer.record, 'state', pack_state(drawer.state))
      redis.call('HDEL', drawer.record, 'drawsOn')
    end
  end
  forget_leased()
  old.draws, old.pays, old.balance = true, false, 0
  set_refill(old, nil, now)
  queue_refill(workspace, old_digest, old)
  redis.call('HDEL', record, 'drawnBy')
  redis.call('HSET', record, 'drawsOn', 'key_' .. new.id)
end
local expires = old.expires
old.expires = math.min(old.expires, now + expires_in, TIME_MAX)
old.version = next_version()
redis.call('HSET', record, 'state', pack_state(old), 'updated', int(now), 'successor', 'key_' .. new.id)
index_expiry_of(workspace, old)
audit(workspace, now, actor, 'key', key_id, {
  { 'successor', nil, 'key_' .. new.id },
  { 'expires', expires < NEVER and expires or nil, old.expires },
  { 'drawsOn', nil, moves_credits and 'key_' .. new.id or nil },
})
return { 'created', 'key_' .. new.id }
