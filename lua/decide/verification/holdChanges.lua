-- Items that change a hold: settle, release or extend it.

-- By the action of an item.
local change_by = { [0] = hold_settlements.settle, [1] = hold_settlements.release, [2] = extend_hold }

-- The units of a settlement by name, from the limits of an item.
local function wanted_units(limits, position)
  local wanted = {}
  for _ = 1, limits do
    local cost, name
    cost, name, position = struct.unpack(SETTLED_WINDOW, call_items, position)
    wanted[name] = cost
  end
  return wanted
end

-- Decides an item: settles, releases or extends a hold.
local function change_hold(position, _, root_index)
  local root = call_roots[root_index] or read_root(root_index)
  if not root.may_verify then return root_error(root, 'api.*.verify_key') end
  local action, ttl, has_credits, credits, digest, id16, api8, suffix, limits, fields =
    struct.unpack(HOLD_CHANGE_ITEM, call_items, position)
  local is_found = read_current_key(digest, true, true)
    and key_api8 == api8
    and string.sub(key_packed, 1, 16) == id16
    and (root.verifies_all or allows(root, 'api', key_api.id, 'verify_key'))
  if not is_found then return item_error('hold_not_found') end
  local wanted = limits > 0 and wanted_units(limits, fields) or nil
  if has_credits == 0 then credits = nil end
  local h = hold_list.of(key_name, loaded_key.stored_holds)
  local hold = hold_list.find(h, suffix)
  local settled = not hold and settled_holds.find(h, call_workspace, key24(), call_hour, suffix)
  add_work(hold_buckets.work())
  if hold then return change_by[action](h, hold, credits, wanted, ttl) end
  if not settled then return item_error('hold_not_found') end
  if action ~= 0 then return item_error('hold_ended', suffix) end
  return hold_settlements.again(settled, credits, wanted)
end
