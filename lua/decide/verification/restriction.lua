-- Restrictions of a verification: a key with `allowedIps` admits some addresses only. Such a key has KEY_EXTENSION in
-- its state, with the count of its FORBIDDEN verifications.

local restriction = {}

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
function restriction.is_restricted() return loaded_key.has(RESTRICTED_MARK) end

-- Whether the key refuses a request with this address; false if the request has none.
function restriction.refuses(ip)
  if not loaded_key.has(RESTRICTED_MARK) then return false end
  local ranges = redis.call('HGET', key_name, 'allowedIps') or ''
  add_work(#ranges / 20)
  return not ip or not is_in(ranges, ip)
end

-- Counts `more` FORBIDDEN verifications of an extended key, in memory. Returns whether they are the first of the hour.
function restriction.count(more) return loaded_key.count_forbidden(more) == 0 end
