#!lua flags=no-writes
-- Count what a workspace stores and what the sweeper has to do, and list the servers that may hold leases.
--
-- derives  lists of records, the queues of the sweeper, the audit stream, the registry of sessions
-- returns  WorkspaceReply (src/records/status.ts)

local workspace, now = KEYS[1], now_ms(ARGV[1])

-- A queue as {number of members that are due, how long the first one has been due (ms)}.
local function overdue(queue)
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
  return {
    redis.call('ZCOUNT', queue, '-inf', int(now)),
    int(first and math.max(0, now - tonumber(first)) or 0),
  }
end

local stored = read_fields(workspace, 'key_records', 'override_records')
local reply = { now = int(now), sessions = { count_sessions(workspace) } }
-- The two fields are one more than the numbers, see include/records.
reply.keys = (tonumber(stored.key_records) or 1) - 1
-- Without those that have ended and were not removed yet.
local ended = redis.call('ZCOUNT', name_of.override_ends(workspace), '-inf', int(now))
reply.allOverrides = (tonumber(stored.override_records) or 1) - 1 - ended
reply.deletedKeys = redis.call('ZCARD', name_of.purge_queue(workspace))
reply.apis = redis.call('ZCARD', name_of.api_list(workspace))
reply.deletedApis = redis.call('LLEN', name_of.dead_apis(workspace))
  + redis.call('ZCARD', name_of.deleted_apis(workspace))
reply.identities = redis.call('ZCARD', name_of.identity_list(workspace))
reply.deletedIdentities = redis.call('ZCARD', name_of.deleted_identities(workspace))
reply.namespaces = redis.call('HLEN', name_of.namespace_names(workspace))
reply.permissions = redis.call('ZCARD', name_of.permission_list(workspace))
reply.roles = redis.call('ZCARD', name_of.role_list(workspace))
reply.rootKeys = redis.call('ZCARD', name_of.root_key_list(workspace))
reply.auditEvents = redis.call('XLEN', name_of.audit_stream(workspace))
reply.refills = overdue(name_of.refill_queue(workspace))
reply.purges = overdue(name_of.purge_queue(workspace))
local queue = name_of.rollup_queue(workspace)
reply.rollups = overdue(queue)
return named(reply)
