-- For the scripts of lua/ as they are assembled (test/repo.test.ts).
std = 'lua51'
read_globals = { 'redis', 'cjson', 'struct', 'KEYS', 'ARGV' }
max_line_length = false
-- 231: a variable of the calls of decide.lua, of which a dry run needs some.
-- 311: a value that is never read. `local a, b = 1, nil` declares what is assigned below.
ignore = { '231/call_.*', '311' }

-- It uses only the parts of the hot path that settle holds: some of their variables are set, and read elsewhere.
files['**/sweep.holds.lua'] = { ignore = { '211', '221', '231', '241' } }
