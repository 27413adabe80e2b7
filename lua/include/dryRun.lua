-- Redis for a script that decides without changing anything: what the rules write is kept in memory, and they read it
-- again. In its modules `redis.call` and `redis.pcall` are dry_call (lua/library.lua).

-- Reads that are passed on. The effects of other commands are not read again: they count, or set an expiry.
local READS = { EXISTS = true, PTTL = true, SCARD = true, SISMEMBER = true, TIME = true, ZCARD = true, ZRANGE = true }

-- By record: its value, or a table of its fields. False is removed.
local written = {}

-- A verification that leases may turn into a VALID takes them back first. Here they are hidden from it.
local function written_fields(record)
  written[record] = written[record] or { leased = false }
  return written[record]
end

local COMMANDS = {
  GET = function(record)
    local own = written[record]
    if own ~= nil then return own end
    return server.call('GET', record)
  end,
  SET = function(record, value) written[record] = value end,
  DEL = function(record) written[record] = false end,
  HSET = function(record, ...)
    local fields, given = written_fields(record), { ... }
    for index = 1, #given, 2 do
      fields[given[index]] = given[index + 1]
    end
  end,
  HDEL = function(record, ...)
    local fields = written_fields(record)
    for _, field in ipairs({ ... }) do
      fields[field] = false
    end
  end,
  HGET = function(record, field)
    local own = written_fields(record)[field]
    if own ~= nil then return own end
    return server.call('HGET', record, field)
  end,
  HMGET = function(record, ...)
    local own, values = written_fields(record), server.call('HMGET', record, ...)
    for index, field in ipairs({ ... }) do
      if own[field] ~= nil then values[index] = own[field] end
    end
    return values
  end,
}

local function dry_call(command, ...)
  if COMMANDS[command] then return COMMANDS[command](...) end
  return READS[command] and server.call(command, ...) or 0
end

-- Begins a dry run.
local function begin_dry_run()
  written = {}
  redis.call, redis.pcall = dry_call, dry_call
end
