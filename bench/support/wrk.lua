-- The script of wrk. Each request has a random body: a line of a file, behind its root key, or, for bodies that differ
-- only in a number, text around a random number (cheaper than looking up one of a million). Its options are environment
-- variables, which every Lua state of wrk sees. Counts go to stderr while it runs, the result to stdout at the end.

local bodies, roots, heads, sent, second = {}, {}, {}, 0, 0
local numbered, first, count, after = os.getenv('BENCH_NUMBERED')
local skewed, SCATTER = os.getenv('BENCH_SKEWED'), 7919
local narrate, one_root = os.getenv('BENCH_NARRATE'), os.getenv('BENCH_ROOT_KEY')

function init()
  if numbered then
    first, count, after = tonumber(os.getenv('BENCH_FIRST')), tonumber(os.getenv('BENCH_COUNT')), os.getenv('BENCH_AFTER')
  else
    for line in io.lines(os.getenv('BENCH_BODIES')) do
      roots[#roots + 1], bodies[#bodies + 1] = string.match(line, '^(%S+) (.*)$')
    end
  end
  wrk.headers['Content-Type'] = 'application/json'
  math.randomseed(os.time())
end

-- The bytes before the body depend on its root key and length only, so they are made once for each.
local function head_of(root, body)
  local of_root = heads[root] or {}
  heads[root] = of_root
  if not of_root[#body] then
    wrk.headers['Authorization'] = 'Bearer ' .. root
    local whole = wrk.format('POST', os.getenv('BENCH_PATH'), nil, body)
    of_root[#body] = string.sub(whole, 1, #whole - #body)
  end
  return of_root[#body]
end

-- See openLoad in load.mjs.
local function random_index()
  if skewed then return math.floor(count ^ math.random()) * SCATTER % count end
  return math.random(0, count - 1)
end

function request()
  local root, body
  if numbered then
    root, body = one_root, numbered .. first + random_index() .. after
  else
    local index = math.random(#bodies)
    root, body = roots[index], bodies[index]
  end
  if narrate then
    sent = sent + 1
    local now = os.time()
    if now ~= second then
      if second > 0 then io.stderr:write(sent, '\n') end
      sent, second = 0, now
    end
  end
  return head_of(root, body) .. body
end

function done(summary, latency)
  local e = summary.errors
  print('requests ' .. summary.requests)
  print('seconds ' .. summary.duration / 1e6)
  print('refused ' .. e.status)
  print('broken ' .. e.connect + e.read + e.write + e.timeout)
  for index = 1, #latency do
    local micros, count = latency(index)
    print('latency ' .. micros .. ' ' .. count)
  end
end
