-- Parts of the changes of a key that keys/update and keys/change share.

-- A request with these fields only may end the use of the key, and stores nothing else.
local ENDING = { keyId = true, mayCreatePermissions = true, usageRetentionMs = true, enabled = true, expires = true }

local key_update = {}

-- Whether a request ends the use of a key with this state, and stores nothing else: it works on a full Redis
-- (include/fullMemory). Each of both ends once: a key that has expired can be disabled, but not enabled.
function key_update.ends_use(request, state, now)
  if not has_only(request, ENDING) or request.enabled and not state.enabled then return false end
  return request.enabled == false and state.enabled or now < state.expires and key_update.is_ended(request, now)
end

-- Whether a request sets an expiry that is in the past.
function key_update.is_ended(request, now) return type(request.expires) == 'number' and request.expires <= now end

-- Sets the times and the switch of a state that a request has; a time of null is none.
function key_update.set_use(state, request)
  for name, none in pairs(KEY_TIMES) do
    local time = request[name]
    if time then state[name] = time ~= cjson.null and time or none end
  end
  if request.enabled ~= nil then state.enabled = request.enabled end
end

-- Stores the state of a key that a request changed.
function key_update.store(workspace, digest, record, state, request, now)
  redis.call('HSET', record, 'state', pack_state(state), 'updated', int(now))
  if request.expires then index_expiry_of(workspace, state) end
  queue_refill(workspace, digest, state)
end
