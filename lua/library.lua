-- The library of Redis that the build makes of lua/ (src/scripts/library.ts): every module, then every script. A line
-- `-- @…` is replaced by what it names. Redis stores the library once, with its functions, under a name of its
-- version.
--
-- The modules that keys/explain needs exist twice: for other scripts, and for its dry run, in which `redis.call`
-- changes nothing (lua/include/dryRun.lua).

local function load_modules(is_dry)
  -- @locals
  -- @registers
  local modules, server = {}, nil
  -- @modules

  -- The globals that scripts call most have local names, because those of a library are behind another table. They are
  -- set by the first call, because they do not exist while the library is loaded.
  local function begin()
    server = redis
    -- @globals
  end

  local function register_as(name, flags, run)
    redis.register_function({
      function_name = name,
      callback = function(KEYS, ARGV)
        if not server then begin() end
        modules.hold_buckets.begin()
        return run(KEYS, ARGV)
      end,
      flags = flags,
    })
  end

  -- `full` is the flag of a second function, which the server calls while Redis refuses writes
  -- (lua/include/fullMemory.lua).
  local function register(name, flags, full, run)
    if not full then return register_as(name, flags, run) end
    local function running(is_full)
      return function(KEYS, ARGV)
        modules.full_memory.is_full = is_full
        return run(KEYS, ARGV)
      end
    end
    register_as(name, flags, running(false))
    register_as('full_' .. name, { full }, running(true))
  end

  -- A script that only reads returns the microseconds that it took by Redis's clock, and its reply
  -- (src/scripts/readPace.ts). Where a Redis stops the clock for scripts, they are 0, and nothing is paced.
  local function register_read(name, flags, full, run)
    register(name, flags, full, function(KEYS, ARGV)
      local started = server.call('TIME')
      local reply = run(KEYS, ARGV)
      local ended = server.call('TIME')
      return { (ended[1] - started[1]) * 1000000 + ended[2] - started[2], reply == nil and false or reply }
    end)
  end

  -- A script that writes to the audit log returns its reply, and the sessions that may hold leases.
  local function register_change(name, flags, full, run)
    register(name, flags, full, function(KEYS, ARGV)
      local reply = run(KEYS, ARGV)
      return { reply == nil and false or reply, modules.leaseholders(KEYS[1]) }
    end)
  end
  -- @scripts
end

load_modules(false)
load_modules(true)
