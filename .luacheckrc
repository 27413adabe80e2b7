-- For the scripts of lua/ as they are assembled (test/repo.test.ts).
std = 'lua51'
read_globals = { 'redis', 'cjson', 'struct', 'KEYS', 'ARGV' }
max_line_length = false
-- 211, 221, 231, 241: variables of the calls of decide.lua, of which a dry run and the sweep of holds need some.
-- 311: a value that is never read. `local a, b = 1, nil` declares what is assigned below.
ignore = { '231/call_.*', '231/key_.*', '241/call_.*', '221/charge_.*', '211/charge_.*', '311' }
