-- Loads a key as it is now.

-- Whether an identity has temporary limits or a plan.
local function may_change(identity) return string.byte(identity, IDENTITY_HEAD_VERSION_AT) % WITH_BALANCE >= WITH_PLAN end

-- As read_key; but expired holds are given back, and limits of the key and its identity that have changed by themselves
-- replaced (current_limits).
local function read_current_key(digest, has_snapshot, with_holds)
  if not read_key(digest, has_snapshot, with_holds) then return false end
  -- Of nearly every key, nothing changes by itself.
  if not key_flags.changing and not key_identity then return true end
  local has_plan = false
  if key_flags.extended then
    local holds_due, is_planned = loaded_key.load_extension()
    if holds_due ~= NEVER and are_holds_due(holds_due) then
      apply_due_holds()
      if not read_key(digest, has_snapshot, with_holds) then return false end
      loaded_key.load_extension()
    end
    has_plan = is_planned
  end
  if has_plan or key_flags.temporary or key_identity and may_change(key_identity) then
    current_limits.apply(has_plan)
  end
  return true
end
