-- For the library of lua/ (test/repo.test.ts).
std = 'lua51'
read_globals = { 'redis', 'cjson', 'struct', 'KEYS', 'ARGV' }
max_line_length = false
-- 212: not every script has arguments.
-- 311: a value that is never read. `local a, b = 1, nil` declares what is assigned below.
ignore = { '311', '212/KEYS', '212/ARGV' }
