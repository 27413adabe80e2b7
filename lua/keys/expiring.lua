#!lua flags=no-writes
-- The next keys of several APIs that expire in a period, by the index of keys by expiry: the first to expire first, or
-- last. A key may be gone or have another expiry if the index is out of date, so the caller compares its state.
--
-- derives  the index of keys by expiry
-- ARGV[1]  expires_before  Unix milliseconds
-- ARGV[2]  expires_after   Unix milliseconds, included; '' for no such bound
-- ARGV[3]  order           asc | desc
-- ARGV[4]  count           limit of the keys to read of each API
-- ARGV[5]  sources         JSON [[api8, the last key that was read: its expiry and its id (without `key_`) or '',
--                          whether to begin with that key]…]
-- returns  {for each API {the keys, of each the expiry (KEY_EXPIRES) and the packed id; how many; the last of these or
--          ''; how many keys of the API expire in that period}}

local workspace, expires_before, expires_after = KEYS[1], ARGV[1], ARGV[2]
local order, count, sources = ARGV[3], tonumber(ARGV[4]), cjson.decode(ARGV[5])

-- The first and last rank of the next keys, of those from the rank `from` to before the rank `to`.
local function ranks_of(index, from, to, last_expires, last_id, from_last)
  local rank, is_there
  if last_id ~= '' then
    rank, is_there = rank_of(index, last_expires, pack_id(last_id))
  end
  if order == 'asc' then
    local first = rank and rank + (is_there and not from_last and 1 or 0) or from
    return first, math.min(first + count, to) - 1
  end
  local last = math.min(rank and rank - (is_there and from_last and 0 or 1) or to - 1, to - 1)
  return math.max(from, last - count + 1), last
end

local function entries_of(index, first, last)
  if last < first then return {} end
  local entries, members = {}, redis.call('ZRANGE', index, first, last, 'WITHSCORES')
  for at = 1, #members, 2 do
    local position = (at + 1) / 2
    if order == 'desc' then position = #members / 2 + 1 - position end
    entries[position] = struct.pack(KEY_EXPIRES, tonumber(members[at + 1])) .. members[at]
  end
  return entries
end

local replies = {}
for number, api in ipairs(sources) do
  local index = name_of.expiries(workspace, api[1])
  local from = expires_after == '' and 0 or redis.call('ZCOUNT', index, '-inf', '(' .. expires_after)
  local to = math.max(from, redis.call('ZCOUNT', index, '-inf', '(' .. expires_before))
  local entries = entries_of(index, ranks_of(index, from, to, api[2], api[3], api[4]))
  replies[number] = { table.concat(entries), #entries, entries[#entries] or '', to - from }
end
return replies
