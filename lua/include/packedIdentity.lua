-- The state of an identity as a table, for the scripts that manage identities, and for limits that end (state.lua).

local packed_identity = {}

-- The bits of a balance, of temporary limits and of a plan are apart from the version here.
function packed_identity.read(packed)
  local id16, version = struct.unpack(IDENTITY_HEAD, packed)
  local first = string.byte(version)
  local has_balance, has_plan = first >= WITH_BALANCE, first % WITH_TEMPORARY >= WITH_PLAN
  if first >= WITH_PLAN then version = string.char(first % WITH_PLAN) .. string.sub(version, 2) end
  local limits = read_limits(packed, IDENTITY_LIMITS_AT, 0)
  return { id16 = id16, version = version, has_balance = has_balance, has_plan = has_plan, limits = limits }
end

-- Whether an identity with this state has a plan.
function packed_identity.has_plan(packed)
  return string.byte(packed, IDENTITY_HEAD_VERSION_AT) % WITH_TEMPORARY >= WITH_PLAN
end

-- As limits_fault, of the state of an identity.
local function identity_fault(packed)
  if #packed < IDENTITY_LIMITS_AT then return 'identity', 1 end
  return limits_fault(packed, IDENTITY_LIMITS_AT, #packed)
end

function packed_identity.pack(identity)
  local version, limits, is_temporary = identity.version, pack_limits(identity.limits)
  local bits = (identity.has_balance and WITH_BALANCE or 0) + (is_temporary and WITH_TEMPORARY or 0)
  if identity.has_plan then bits = bits + WITH_PLAN end
  if bits > 0 then version = string.char(string.byte(version) + bits) .. string.sub(version, 2) end
  return struct.pack(IDENTITY_HEAD, identity.id16, version) .. limits
end
