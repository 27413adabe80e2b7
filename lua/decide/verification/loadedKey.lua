-- The key of one verification, with its identity; see also registers.lua.

-- The flags of a state by their number; with WITH_PLANS if the key or its identity has a plan, twice that if a plan has
-- permissions or roles. Each table is created once, which saves 7 % of Redis's instructions per verification
-- (callgrind, 2026-11-22).
local flag_sets = {}
local function flags_of(number)
  local flags = {}
  read_flags(number, flags)
  flags.plans = number - number % WITH_PLANS
  flags.planned = flags.plans > 0
  flags.permissions = flags.direct or flags.roles or flags.plans > WITH_PLANS
  -- Whether the key may change by itself (currentKey.lua).
  flags.changing = flags.extended or flags.temporary
  -- The number of bytes after the limits.
  flags.tail_bytes = KEY_TAIL_LENGTH + (flags.extended and KEY_EXTENSION_LENGTH or 0)
  flag_sets[number] = flags
  return flags
end

-- Takes the flags of the state that changed.
local function take_flags(number)
  number = number + key_flags.plans
  key_flags = flag_sets[number] or flags_of(number)
end

-- The extension of the key that was loaded, see KEY_EXTENSION. Its functions change it in memory. `stored_holds`: field
-- `holds` of the record, false for none; valid right after the key was read. After loaded_key.load_extension, of an
-- extended key: `marks`, `due` and `balances` (KEY_EXTENSION), and `payer`, false if it has its own balance.
local loaded_key = { stored_holds = false, marks = 0, due = NEVER, balances = 0, payer = false }

-- The position of the identity's id in a state.
local LINK_ID_FROM = KEY_LINK_AT + LINK_BYTES_LENGTH

-- Loads a key by its digest. `has_snapshot`: the server has a snapshot, of any version. `with_holds`: field `holds` is
-- read too. Returns whether there is such a key, and neither it nor its API was deleted.
local function read_key(digest, has_snapshot, with_holds)
  key_name = call_key_records .. digest
  local packed, display
  if not has_snapshot then
    -- Needed for the snapshot: read in the same command.
    display = with_holds and redis.call('HMGET', key_name, 'state', 'name', 'meta', 'holds')
      or redis.call('HMGET', key_name, 'state', 'name', 'meta')
    packed, loaded_key.stored_holds = display[1], display[4] or false
  elseif with_holds then
    local stored = redis.call('HMGET', key_name, 'state', 'holds')
    packed, loaded_key.stored_holds = stored[1], stored[2]
  else
    packed = redis.call('HGET', key_name, 'state')
  end
  if not packed then return false end
  local flags, link_bytes
  key_version_time, key_version_number, key_api8, flags, key_expires, key_refill_amount, key_refill_day, link_bytes =
    struct.unpack(KEY_DECIDES, packed, KEY_FIXED_VERSION_AT)
  key_packed, key_display = packed, display
  key_flags, key_api = flag_sets[flags] or flags_of(flags), api_of(key_api8)
  key_limits_at, key_tail_at = KEY_LINK_AT + LINK_BYTES_LENGTH + link_bytes, #packed - (KEY_TAIL_LENGTH - 1)
  if link_bytes > 0 then
    key_linked_id = string.sub(packed, KEY_LINK_AT + LINK_BYTES_LENGTH + LINK_EXTERNAL_ID_AT - 1, key_limits_at - 1)
    local name, identity, display_of_identity = name_of.identity_record(call_workspace, key_linked_id), nil, nil
    if has_snapshot then
      identity = redis.call('HGET', name, 'state')
    else
      display_of_identity = redis.call('HMGET', name, 'state', 'meta')
      identity = display_of_identity[1]
    end
    key_identity_display = display_of_identity
    if identity and string.sub(identity, 1, 16) == string.sub(packed, LINK_ID_FROM, LINK_ID_FROM + 15) then
      key_identity, key_external_id = identity, key_linked_id
    else
      key_identity, key_external_id = nil, ''
    end
  elseif key_linked_id ~= '' then
    key_linked_id, key_external_id, key_identity, key_identity_display = '', '', nil, nil
  end
  return not key_flags.deleted and key_api.id ~= false
end

-- Returns marks, forbidden, holds_due, balances.
function loaded_key.extension()
  if not key_flags.extended then return 0, 0, NEVER, 0 end
  return struct.unpack(KEY_EXTENSION, key_packed, key_tail_at - KEY_EXTENSION_LENGTH)
end

-- Whether the key, whose extension was loaded, has a mark of KEY_MARKS.
function loaded_key.has(mark) return key_flags.extended and loaded_key.marks % (mark + mark) >= mark end

-- Reads the fields of an extended key about holds, and the balance that it draws on. Returns holds_due, and whether it
-- has a plan.
function loaded_key.load_extension()
  local marks, forbidden, holds_due, balances =
    struct.unpack(KEY_EXTENSION, key_packed, key_tail_at - KEY_EXTENSION_LENGTH)
  loaded_key.marks, loaded_key.due, loaded_key.balances, loaded_key.payer = marks, holds_due, balances, false
  if marks % (DRAWS_MARK + DRAWS_MARK) >= DRAWS_MARK then loaded_key.draw(marks, forbidden, holds_due, balances) end
  return holds_due, marks % (PLANNED_MARK + PLANNED_MARK) >= PLANNED_MARK
end

function loaded_key.put_extension(marks, forbidden, holds_due, balances)
  loaded_key.marks, loaded_key.due, loaded_key.balances = marks, holds_due, balances
  local flags, head_end = string.byte(key_packed, KEY_FIXED_FLAGS_AT), #key_packed - key_flags.tail_bytes
  if not key_flags.extended then
    flags, loaded_key.payer = flags + EXTENDED_FLAG, false
  end
  key_packed = string.sub(key_packed, 1, KEY_FIXED_FLAGS_AT - 1)
    .. string.char(flags)
    .. string.sub(key_packed, KEY_FIXED_FLAGS_AT + 1, head_end)
    .. struct.pack(KEY_EXTENSION, marks, forbidden, holds_due, balances)
    .. string.sub(key_packed, key_tail_at)
  take_flags(flags)
  key_tail_at = #key_packed - (KEY_TAIL_LENGTH - 1)
end

-- Notes that the key or its identity has a plan, until it is read again, and whether one has permissions or roles.
function loaded_key.set_planned(permits)
  local variant = permits and 'with_permits' or 'with_plan'
  local planned = key_flags[variant]
  if not planned then
    local number = string.byte(key_packed, KEY_FIXED_FLAGS_AT) + (permits and 2 * WITH_PLANS or WITH_PLANS)
    planned = flag_sets[number] or flags_of(number)
    key_flags[variant] = planned
  end
  key_flags = planned
end

-- Gives the balance its next number, because it was refilled.
function loaded_key.next_balance()
  if not key_flags.extended then return end
  local marks, forbidden, holds_due, balances = loaded_key.extension()
  loaded_key.put_extension(marks, forbidden, holds_due, (balances + 1) % 65536)
end

-- The payer of the key, from whose balance it draws: {record, limited, balance, balances (its number), is_changed (a
-- refill was due), state_with(balance)}. If the payer was removed, it has no record, a balance of 0, and no number.
function loaded_key.read_payer()
  local record, packed = drawn_by.payer_of(call_workspace, key_name)
  if not packed then return { limited = true, balance = 0 } end
  local _, _, _, flags, _, refill_amount, refill_day, _ = struct.unpack(KEY_DECIDES, packed, KEY_FIXED_VERSION_AT)
  local tail_at = #packed - (KEY_TAIL_LENGTH - 1)
  local balance, refill_due, last_used = struct.unpack(KEY_LIVE, packed, tail_at)
  local marks, forbidden, holds_due, balances = struct.unpack(KEY_EXTENSION, packed, tail_at - KEY_EXTENSION_LENGTH)
  flags = flag_sets[flags] or flags_of(flags)
  local payer = { record = record, limited = flags.limited }
  payer.is_changed = flags.refilled and call_now >= refill_due
  if payer.is_changed then
    balance, refill_due, balances = refill_amount, refill_after(call_now, refill_day), (balances + 1) % 65536
  end
  payer.balance, payer.balances = balance, balances
  function payer.state_with(new_balance)
    return string.sub(packed, 1, tail_at - KEY_EXTENSION_LENGTH - 1)
      .. struct.pack(KEY_EXTENSION, marks, forbidden, holds_due, balances)
      .. struct.pack(KEY_LIVE, new_balance, refill_due, last_used)
      .. string.sub(packed, tail_at + KEY_LIVE_LENGTH)
  end
  return payer
end

-- Overwrites the balance in the state of a key that draws, in memory, with that of its payer, so that the rules of a
-- balance are the same with a payer: key_written writes their changes. KEY_EXTENSION of the key has these values. The
-- number of the balance stays when the payer was removed: a number that repeats would be that of former holds.
function loaded_key.draw(marks, forbidden, holds_due, balances)
  local payer, flags = loaded_key.read_payer(), string.byte(key_packed, KEY_FIXED_FLAGS_AT)
  if payer.limited ~= key_flags.limited then flags = flags + (payer.limited and LIMITED_FLAG or -LIMITED_FLAG) end
  local _, _, last_used = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  key_packed = string.sub(key_packed, 1, KEY_FIXED_FLAGS_AT - 1)
    .. string.char(flags)
    .. string.sub(key_packed, KEY_FIXED_FLAGS_AT + 1, key_tail_at - 1)
    .. struct.pack(KEY_LIVE, payer.balance, 0, last_used)
    .. string.sub(key_packed, key_tail_at + KEY_LIVE_LENGTH)
  loaded_key.put_extension(marks, forbidden, holds_due, payer.balances or balances)
  loaded_key.payer = payer
  add_work(5)
end

-- Writes the balance in the state of an extended key to its payer, if it has one and it differs.
function loaded_key.write_drawn()
  local payer = loaded_key.payer
  if not payer or not payer.record then return end
  local balance, _, _ = struct.unpack(KEY_LIVE, key_packed, key_tail_at)
  if balance == payer.balance and not payer.is_changed then return end
  redis.call('HSET', payer.record, 'state', payer.state_with(balance))
  payer.balance, payer.is_changed = balance, false
end

-- Sets when the key has to be examined because of its holds. Returns whether that changes it.
function loaded_key.set_due(due)
  local marks, forbidden, holds_due, balances = loaded_key.extension()
  if due ~= holds_due then loaded_key.put_extension(marks, forbidden, due, balances) end
  return due ~= holds_due
end

-- Replaces the limits of the key by those that pack_limits returned, and its version.
function loaded_key.set_limits(version, limits, is_temporary)
  local flags, tail = string.byte(key_packed, KEY_FIXED_FLAGS_AT), string.sub(key_packed, -key_flags.tail_bytes)
  if key_flags.temporary and not is_temporary then flags = flags - TEMPORARY_FLAG end
  key_packed = string.sub(key_packed, 1, KEY_FIXED_VERSION_AT - 1)
    .. version
    .. string.sub(key_packed, KEY_FIXED_API8_AT, KEY_FIXED_FLAGS_AT - 1)
    .. string.char(flags)
    .. string.sub(key_packed, KEY_FIXED_FLAGS_AT + 1, key_limits_at - 1)
    .. limits
    .. tail
  key_version_time, key_version_number = struct.unpack(VERSION, version)
  take_flags(flags)
  key_tail_at = #key_packed - (KEY_TAIL_LENGTH - 1)
end

-- Counts `more` FORBIDDEN verifications of an extended key, or none (nil). Returns their number before.
function loaded_key.count_forbidden(more)
  local marks, forbidden, holds_due, balances = loaded_key.extension()
  loaded_key.put_extension(marks, more and forbidden + more or 0, holds_due, balances)
  return forbidden
end

-- Takes the state of the key as it was written, or will be, and that of its identity if it was written. Writes a
-- balance that belongs to another key.
local function key_written(state, identity)
  key_packed, key_tail_at, key_identity = state, #state - (KEY_TAIL_LENGTH - 1), identity or key_identity
  -- The link to a deleted identity may have been removed.
  if key_external_id ~= key_linked_id then
    key_limits_at = KEY_LINK_AT + LINK_BYTES_LENGTH + struct.unpack('>I2', state, KEY_LINK_AT)
  end
  if key_flags.extended then loaded_key.write_drawn() end
end

-- The 24 characters of its id.
local function key24() return string.sub(key_packed, 1, 16) .. key_api8 end

-- Whether another key than the loaded one may charge the balance that it is charged to.
function loaded_key.is_shared()
  return loaded_key.has(DRAWS_MARK)
    or loaded_key.has(PAYS_MARK) and drawn_by.has_live(call_workspace, 'key_' .. key24(), key_name, call_now)
end

-- Loads the key that a tally names: its digest, and its id (NO_ID24 if that is not known). Returns whether the key is
-- live (true of read_key), and whether its record is stored. If the digest is that of another key, or of none, only the
-- id is loaded.
local function read_tallied_key(digest, id24)
  local is_live = read_key(digest, true)
  local is_stored = is_live or redis.call('EXISTS', key_name) == 1
  if is_stored and key_flags.extended then loaded_key.load_extension() end
  if is_stored and (id24 == NO_ID24 or id24 == key24()) then return is_live, true end
  key_packed, key_api8 = string.sub(id24, 1, 16), string.sub(id24, 17)
  return false, false
end

-- The text of a request that takes nothing of any limit of the key and its identity, see read_request; '' without one.
function loaded_key.request_of_all_limits()
  local limits = {}
  local shared = key_identity and read_limits(key_identity, IDENTITY_LIMITS_AT, 0) or {}
  for _, list in ipairs({ read_limits(key_packed, key_limits_at, key_flags.tail_bytes), shared }) do
    for _, l in ipairs(list) do
      limits[#limits + 1] = { l.name, 0 }
    end
  end
  return #limits > 0 and cjson.encode({ limits = limits }) or ''
end
