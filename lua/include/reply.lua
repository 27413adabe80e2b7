-- Replies of the scripts that manage records.

-- A limit of a state as a named reply {id, name, LIMIT_VALUES (text), at: the time if it is a quota}, with what is in
-- `more`.
local function limit_reply(l, now, more)
  local reply = more or {}
  reply.id, reply.name = l.id, l.name
  for _, value in ipairs(LIMIT_VALUES) do
    reply[value] = int(l[value])
  end
  if l.duration >= QUOTA_CODES then reply.at = int(now) end
  if l.ends then
    local former = l.former
    reply.ends = int(l.ends)
    for index, field in ipairs(FORMER_FIELDS) do
      reply[field] = former and int(former[limit_ends.FORMER[index]])
    end
  end
  return named(reply)
end

-- An override, as read_override (include/overrides) returns it, as an OverrideReply (src/records/overrides.ts), with
-- what is in `more`.
local function override_reply(override, identifier, now, more)
  local reply, former = more or {}, override.former
  reply.id, reply.identifier, reply.limit = override.id16, identifier, int(override.limit)
  reply.duration, reply.created = int(override.duration), int(override.created)
  reply.at, reply.ends = int(now), override.ends and int(override.ends)
  reply.formerLimit, reply.formerDuration = former and int(former.limit), former and int(former.duration)
  return named(reply)
end

-- The replies of the limits in force.
local function limit_replies(limits, now)
  local replies = {}
  for index, l in ipairs(limit_list.own((limit_ends.in_force(limits, now)))) do
    replies[index] = limit_reply(l, now)
  end
  return replies
end

-- A script that returns several records ends after this many parts (permissions, roles, quarters of a limit, and each
-- 500 bytes of metadata), which take a few milliseconds.
local REPLY_PARTS_MAX = 2000

-- A limit takes as long as four permissions.
local function parts_of_limits(limits) return 4 * #limits end

local function parts_of_meta(meta) return meta and math.floor(#meta / 500) or 0 end
