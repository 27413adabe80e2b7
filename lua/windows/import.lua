-- Store windows of an export that have records of their own. Existing ones are left as they are.
--
-- derives  windows, lists of the counters of keys and identities, their records and lists
-- ARGV[1]  windows    JSON [{owner (id16 of a namespace or an identity, or 24 characters of a key), isNamespace,
--                     duration, name, used: [[end of a slice, units]…]}…]
-- ARGV[2]  dry_run    0 | 1
-- returns  {for each window 1, or 0 when it exists, is that of a limit of its owner, or its owner has too many}

local workspace, windows, dry_run, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2] == '1', now_ms(ARGV[3])
-- Longest time that a window of a key or an identity is kept: that of a removed limit, see include/limitList.
local DURATION_MAX = 30 * DAY_MS
local stored, left, in_state = {}, {}, {}

-- The windows in the state of a key (24) or an identity (16), by their members. Those of a plan that an earlier import
-- stored are there since the next decision.
local function windows_in_state(owner)
  local _, key = load_key(workspace, digest_of(workspace, 'key_' .. owner), now)
  local external_id = rest_of_id(name_of.identity_list(workspace), '', owner)
  local identity = external_id and load_identity(name_of.identity_record(workspace, external_id))
  local members = {}
  for _, l in ipairs((key or identity or { limits = {} }).limits) do
    members[name_of.window_member(limit_list.counter_duration(l), l.name)] = true
  end
  return members
end

for index, window in ipairs(windows) do
  local owner = window.owner
  window.member = name_of.window_member(window.duration, window.name)
  window.is_new = redis.call('EXISTS', name_of.window_at(workspace, owner, window.member)) == 0
  if window.is_new and not window.isNamespace then
    in_state[owner] = in_state[owner] or windows_in_state(owner)
    left[owner] = left[owner] or counters_left(workspace, owner, now)
    window.is_new = left[owner] > 0 and not in_state[owner][window.member]
    if window.is_new then left[owner] = left[owner] - 1 end
  end
  stored[index] = window.is_new and 1 or 0
end
if dry_run then return stored end
for _, window in ipairs(windows) do
  if window.is_new then
    -- A step that the slices do not have is 1 ms, see new_window.
    local limit = { id = '', limit = 65, duration = window.duration, window = '' }
    local packed = restore_limits({ limit }, { window })[1].window
    if window.isNamespace then
      local name = name_of.window_at(workspace, window.owner, window.member)
      redis.call('SET', name, packed, 'PX', window_log.ttl(window.duration, now))
    else
      local duration = window.duration < QUOTA_CODES and math.min(window.duration, DURATION_MAX) or window.duration
      write_counters(workspace, window.owner, { { window.member, packed, duration, true } }, now)
    end
  end
end
return stored
