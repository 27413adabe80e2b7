-- The audit log of management changes.

-- @include "include/clock"
-- @include "include/names"

-- One event for a management change, written in the step that makes the change. `actor` is JSON {rootKeyId, operation,
-- requestId, auditEventsMax}; the stream forgets its oldest events beyond auditEventsMax.
local function audit(workspace, now, actor, resource_type, resource_id)
  local who = cjson.decode(actor)
  redis.call(
    'XADD',
    audit_stream(workspace),
    'MAXLEN',
    '~',
    who.auditEventsMax,
    '*',
    'time',
    int(now),
    'rootKeyId',
    who.rootKeyId,
    'operation',
    who.operation,
    'type',
    resource_type,
    'id',
    resource_id,
    'requestId',
    who.requestId
  )
end
