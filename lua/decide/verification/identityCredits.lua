-- The balance of the identity of the key that was loaded. A verification charges it together with that of the key, or
-- neither. A key whose identity has one is not leased: so no server has credits of it, and each decision sees them all.

-- `current`: the balance that of_key read last, with what was charged since. It is that of the key only while
-- is_shared.
local identity_credits = {}

-- The balance of the identity of the key; nil if the identity has none. The key must have an identity. A caller that
-- changes the balance has to write it.
function identity_credits.of_key()
  identity_credits.current = identity_balance.is_flagged(key_identity)
      and identity_balance.read(name_of.identity_record(call_workspace, key_external_id), call_now)
    or nil
  return identity_credits.current
end

function identity_credits.write() identity_balance.write(identity_credits.current) end

-- Whether the identity of the key has a balance. Then no lease may repeat decisions about the key.
function identity_credits.is_shared() return key_identity ~= nil and identity_balance.is_flagged(key_identity) end

-- Adds the balance of an identity to an answer: VERIFIED or CHANGED_HOLD, whose `hasBalance` is at position `at`.
function identity_credits.added(answer, at, balance)
  return string.sub(answer, 1, at - 1)
    .. string.char(string.byte(answer, at) + HAS_BALANCE_OF_IDENTITY)
    .. string.sub(answer, at + 1)
    .. struct.pack(IDENTITY_LEFT, balance)
end

-- Charges the balance that of_key read, in memory. Returns the answer of the verification with it.
function identity_credits.charge(answer, credits)
  local shared = identity_credits.current
  shared.balance = shared.balance - credits
  return identity_credits.added(answer, VERIFIED_HAS_BALANCE_AT, shared.balance)
end
