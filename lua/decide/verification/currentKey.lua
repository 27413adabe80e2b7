-- Loads a key as it is now.

-- As read_key; but expired holds are given back, and ended limits of the key and its identity replaced.
local function read_current_key(digest, has_snapshot, with_holds)
  if not read_key(digest, has_snapshot, with_holds) then return false end
  if key_flags.extended then
    if are_holds_due(loaded_key.load_extension()) then
      apply_due_holds()
      if not read_key(digest, has_snapshot, with_holds) then return false end
      loaded_key.load_extension()
    end
  end
  local has_temporary = key_flags.temporary or key_identity and limit_ends.is_flagged(key_identity)
  if has_temporary then ended_limits.apply() end
  return true
end
