-- Restrictions of a verification: a key with `allowedIps` admits some addresses only. Such a key has KEY_EXTENSION in
-- its state, with the count of its FORBIDDEN verifications. The functions are in one table, because Lua bounds the
-- names of a library.

-- @include "decide/call"
-- @include "decide/verification/key"

-- `former`: the FORBIDDEN verifications of the earlier hour that begin_hour ended.
local restriction = { former = 0 }

-- Whether an address is in one of the ranges, both packed (src/domain/ipRange.ts).
local function is_in(ranges, ip)
  local family, position, last = #ip == 8 and 52 or 54, 1, #ranges
  while position <= last do
    local length = tonumber(string.sub(ranges, position + 1, position + 2), 16)
    local digits_at, rest = position + 3, length % 4
    local whole = (length - rest) / 4
    local next_at = digits_at + whole + (rest > 0 and 1 or 0)
    if
      string.byte(ranges, position) == family
      and string.sub(ranges, digits_at, digits_at + whole - 1) == string.sub(ip, 1, whole)
    then
      if rest == 0 then return true end
      -- The bits of the next digit that the prefix reaches; in a range the others are 0.
      local digit, unit = tonumber(string.sub(ip, whole + 1, whole + 1), 16), 2 ^ (4 - rest)
      if digit - digit % unit == tonumber(string.sub(ranges, next_at - 1, next_at - 1), 16) then return true end
    end
    position = next_at
  end
  return false
end

-- Whether the key admits some addresses only.
function restriction.is_restricted() return key_extension.has(RESTRICTED_MARK) end

-- The address in the text at the end of a VERIFY_ITEM, which must not begin with JSON.
function restriction.address_in(text) return (struct.unpack('>Bc0', text)) end

-- The JSON in the text at the end of a VERIFY_ITEM, without an address before it; false for none.
function restriction.without_address(text)
  if string.sub(text, 1, 1) == '{' then return text end
  local json = string.sub(text, string.byte(text) + 2)
  return json ~= '' and json
end

-- Whether the key refuses a request with this address; false if the request has none.
function restriction.refuses(ip)
  if not restriction.is_restricted() then return false end
  local ranges = redis.call('HGET', key_name, 'allowedIps') or ''
  add_work(#ranges / 20)
  return not ip or not is_in(ranges, ip)
end

-- Counts `more` FORBIDDEN verifications of an extended key, in memory. Returns whether they are the first of the hour.
function restriction.count(more) return key_extension.count_forbidden(more) == 0 end

-- Begins an hour: the FORBIDDEN verifications of the earlier one are in `former` then. Returns the counts of the new
-- one: VALID, the packed refusals, credits spent.
function restriction.begin_hour()
  restriction.former = key_flags.extended and key_extension.count_forbidden(nil) or 0
  return 0, NO_REFUSALS, 0
end
