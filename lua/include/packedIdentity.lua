-- The state of an identity as a table, for the scripts that manage identities, and for limits that end (state.lua).

local packed_identity = {}

-- The bits of a balance and of temporary limits are apart from the version here.
function packed_identity.read(packed)
  local id16, version = struct.unpack(IDENTITY_HEAD, packed)
  local first = string.byte(version)
  local has_balance = first >= WITH_BALANCE
  if first >= WITH_TEMPORARY then version = string.char(first % WITH_TEMPORARY) .. string.sub(version, 2) end
  local limits = read_limits(packed, IDENTITY_LIMITS_AT, 0)
  return { id16 = id16, version = version, has_balance = has_balance, limits = limits }
end

-- As limits_fault, of the state of an identity.
local function identity_fault(packed)
  if #packed < IDENTITY_LIMITS_AT then return 'identity', 1 end
  return limits_fault(packed, IDENTITY_LIMITS_AT, #packed)
end

function packed_identity.pack(identity)
  local version, limits, is_temporary = identity.version, pack_limits(identity.limits)
  local bits = (identity.has_balance and WITH_BALANCE or 0) + (is_temporary and WITH_TEMPORARY or 0)
  if bits > 0 then version = string.char(string.byte(version) + bits) .. string.sub(version, 2) end
  return struct.pack(IDENTITY_HEAD, identity.id16, version) .. limits
end
