-- Keys that were rotated *draw on* the balance of their successor, which *pays* (lua/keys/reroll.lua): field `drawsOn`
-- of their record is its id, and field `drawnBy` of its record has theirs.

local drawn_by = {}

-- The record and the state of the key with an id, also of a deleted one; nil if it was removed.
function drawn_by.stored(workspace, key_id)
  local digest = digest_of(workspace, key_id) or deleted_digest_of(workspace, key_id)
  local record = digest and name_of.key_record(workspace, digest)
  return record, record and redis.call('HGET', record, 'state') or nil
end

-- The record and the packed state of the key that the key with this record draws on; nil if that was removed.
function drawn_by.payer_of(workspace, record)
  local payer, packed = drawn_by.stored(workspace, redis.call('HGET', record, 'drawsOn') or '')
  local flags = packed and string.byte(packed, KEY_FIXED_FLAGS_AT) or 0
  if flags % (EXTENDED_FLAG + EXTENDED_FLAG) < EXTENDED_FLAG then return nil end
  local marks = string.byte(packed, #packed - KEY_TAIL_LENGTH - KEY_EXTENSION_LENGTH + KEY_EXTENSION_MARKS_AT)
  if marks % (PAYS_MARK + PAYS_MARK) >= PAYS_MARK then return payer, packed end
end

-- Sets the balance of a state that draws to that of its payer, and `payer` to {record, state}; to 0 and nil if that was
-- removed.
function drawn_by.load(workspace, record, state, now)
  local payer, packed = drawn_by.payer_of(workspace, record)
  state.limited, state.balance = true, 0
  if not payer then return end
  local paying = read_state(packed)
  apply_refill(paying, now)
  state.limited, state.balance, state.balances = paying.limited, paying.balance, paying.balances
  state.payer = { record = payer, state = paying }
end

-- Whether the balance of a state is that of another key, which was not deleted. Then it is changed there.
function drawn_by.is_elsewhere(state) return state.draws and state.payer ~= nil and not state.payer.state.deleted end

-- A key that draws gets a balance of its own, 0, in memory. The caller removes field `drawsOn` of its record.
function drawn_by.part(state)
  if not state.draws then return end
  renumber_balance(state)
  state.draws, state.limited, state.balance = false, true, 0
end

-- Gives back to the payer of a state, in memory, what an open hold of its key holds, as at its expiry.
function drawn_by.give_back(state, hold)
  local payer = state.payer and state.payer.state
  if not payer or not payer.limited or hold.state ~= hold_format.RELEASES or hold.balance ~= payer.balances then
    return
  end
  if hold.more and hold.more.alone then return end
  payer.balance, state.payer.is_changed = math.min(payer.balance + hold.cost, SAFE_INTEGER), true
end

-- The keys that draw on the key with this id and record: each {id, record, state, is_live}.
function drawn_by.keys(workspace, key_id, record, now)
  local keys = {}
  for id in string.gmatch(redis.call('HGET', record, 'drawnBy') or '', '[^,]+') do
    local drawer, packed = drawn_by.stored(workspace, id)
    local state = packed and read_state(packed)
    if state and state.draws and redis.call('HGET', drawer, 'drawsOn') == key_id then
      -- Holds that are open or were released may be settled after the key has ended.
      local is_live = not state.deleted and now < state.expires or state.holds_due ~= NEVER
      keys[#keys + 1] = { id = id, record = drawer, state = state, is_live = is_live }
    end
  end
  return keys
end

-- Whether one of these keys may still be charged.
function drawn_by.has_live(...)
  for _, key in ipairs(drawn_by.keys(...)) do
    if key.is_live then return true end
  end
  return false
end
