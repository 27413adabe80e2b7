-- The audit log of management changes: a stream, of which src/store/audit.ts reads the events.

-- @include "include/clock"
-- @include "include/names"

-- Writes the event of a management change, in the script that makes the change. `actor` is JSON {rootKeyId, operation,
-- requestId, auditEventsMax, recordsMax}. Redis removes the oldest events beyond auditEventsMax; with `~` it may keep a few more.
local function audit(workspace, now, actor, resource_type, resource_id)
  local caller = cjson.decode(actor)
  -- stylua: ignore
  redis.call('XADD', audit_stream(workspace), 'MAXLEN', '~', caller.auditEventsMax, '*',
    'time', int(now), 'rootKeyId', caller.rootKeyId, 'operation', caller.operation,
    'type', resource_type, 'id', resource_id, 'requestId', caller.requestId)
end
