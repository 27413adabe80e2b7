#!lua flags=no-writes
-- The units of some windows that have records of their own: of namespaces, ad hoc limits and limits that were removed.
--
-- derives  windows
-- ARGV[1]  windows    JSON [[owner, duration, name]…], some hundred
-- returns  used_units of include/exported, with the place in `windows` as index

local workspace, windows, now = KEYS[1], cjson.decode(ARGV[1]), now_ms(ARGV[2])
local limits = {}
for index, window in ipairs(windows) do
  local member = name_of.window_member(window[2], window[3])
  local packed = redis.call('GET', name_of.window_at(workspace, window[1], member))
  limits[index] = { duration = window[2], window = packed or '' }
end
return used_units(limits, now)
