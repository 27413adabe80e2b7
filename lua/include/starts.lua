-- The index of starts: the beginnings of key strings that are stored with the keys. It has all keys of an API that have
-- a start, also deleted ones, until their record is removed. So deleting and restoring a key do not change it.
--
-- It is a B-tree of two levels, because a sorted set of all starts would need 110 bytes per key instead of 27. An entry
-- is a start, a zero byte and the packed id of the key. Leaves are lists of entries without order. The first leaf has
-- the bound '', and the bounds of all others are in a sorted set: a leaf has the entries from its bound up to the next
-- one, byte by byte. A leaf that grows too long is split, and an empty one is removed. A small API has one leaf and no
-- bounds.

-- Limit of the entries of a leaf: about 6 KB, so that Redis stores it in one piece and a script can read several.
local LEAF_ENTRIES_MAX = 256
-- The entry of a key by its member of a list of keys (include/keyIds), which begins with its packed id.
local function start_entry(start, member) return start .. '\0' .. string.sub(member, 1, PACKED_ID_BYTES) end

-- The bound of the leaf that has this entry, if there is one.
local function leaf_bound_of(workspace, api8, entry)
  local bounds = name_of.start_bounds(workspace, api8)
  return redis.call('ZREVRANGEBYLEX', bounds, '[' .. entry, '-', 'LIMIT', '0', '1')[1] or ''
end

-- Splits the entries of a leaf until none has too many. Adds each leaf to `leaves`: its bound and its entries.
local function split_leaf(bound, entries, leaves)
  if #entries <= LEAF_ENTRIES_MAX then
    leaves[#leaves + 1] = { bound, entries }
    return
  end
  local head = entries[1]
  for _, entry in ipairs(entries) do
    while string.sub(entry, 1, #head) ~= head do
      head = string.sub(head, 1, -2)
    end
  end
  -- The six bytes after what all share, as numbers. Lua's `<` for strings depends on the locale of Redis.
  local numbers, sample, least, middle = {}, {}, math.huge, math.huge
  for index, entry in ipairs(entries) do
    local whole = #entry >= #head + 6 and entry or entry .. '\0\0\0\0\0\0'
    local number = struct.unpack('>I6', whole, #head + 1)
    numbers[index], least = number, math.min(least, number)
    if index % 8 == 0 then sample[#sample + 1] = number end
  end
  table.sort(sample)
  -- The first number from the middle of the sample on that leaves an entry before it.
  local enough = math.max(sample[math.ceil(#sample / 2)], least + 1)
  for _, number in ipairs(numbers) do
    if number >= enough then middle = math.min(middle, number) end
  end
  -- Entries that are all the same stay together.
  if middle == math.huge then
    leaves[#leaves + 1] = { bound, entries }
    return
  end
  local before, others = {}, {}
  for index, entry in ipairs(entries) do
    local part = numbers[index] < middle and before or others
    part[#part + 1] = entry
  end
  split_leaf(bound, before, leaves)
  -- Without the zeros at the end, which an entry that ends within the six bytes does not have.
  local last_bytes = string.gsub(struct.pack('>I6', middle), '%z+$', '')
  split_leaf(head .. last_bytes, others, leaves)
end

-- Reads what must be known before the first write of a script that adds new keys of an API, by their entries. Returns a
-- function that adds them to the index.
local function indexing_starts(workspace, api8, entries)
  local added, stored = {}, {}
  for _, entry in ipairs(entries) do
    local bound = leaf_bound_of(workspace, api8, entry)
    local of_leaf = added[bound] or {}
    added[bound], of_leaf[#of_leaf + 1] = of_leaf, entry
  end
  for bound, of_leaf in pairs(added) do
    local leaf = name_of.start_leaf(workspace, api8, bound)
    if redis.call('LLEN', leaf) + #of_leaf > LEAF_ENTRIES_MAX then
      stored[bound] = redis.call('LRANGE', leaf, '0', '-1')
    end
  end
  return function()
    for bound, of_leaf in pairs(added) do
      local leaves = { { bound, of_leaf } }
      if stored[bound] then
        for _, entry in ipairs(stored[bound]) do
          of_leaf[#of_leaf + 1] = entry
        end
        leaves = {}
        split_leaf(bound, of_leaf, leaves)
        redis.call('DEL', name_of.start_leaf(workspace, api8, bound))
      end
      for _, leaf in ipairs(leaves) do
        redis.call('RPUSH', name_of.start_leaf(workspace, api8, leaf[1]), unpack(leaf[2]))
        -- A member of more than 64 bytes makes Redis store the bounds as a skip list immediately. It would store up to
        -- 128 of them as a listpack, of which it reads half each time. This one is after all others, and has no leaf.
        if leaf[1] ~= bound then
          redis.call('ZADD', name_of.start_bounds(workspace, api8), 0, leaf[1], 0, string.rep('\255', 65))
        end
      end
    end
  end
end

-- Reads what must be known before the first write of a script that removes a key by its start and its member of a list
-- of keys. Returns a function that removes it from the index. Another key can have the same start and id: then one of
-- two equal entries is removed.
local function unindexing_start(workspace, api8, start, member)
  if not start or start == '' then
    return function() end
  end
  local entry = start_entry(start, member)
  local bound = leaf_bound_of(workspace, api8, entry)
  local leaf, bounds = name_of.start_leaf(workspace, api8, bound), name_of.start_bounds(workspace, api8)
  local is_last_entry = bound ~= '' and redis.call('LLEN', leaf) == 1
  -- Besides the last bound, which has no leaf.
  local is_last_bound = is_last_entry and redis.call('ZCARD', bounds) == 2
  return function()
    if redis.call('LREM', leaf, '1', entry) == 0 or not is_last_entry then return end
    if is_last_bound then
      redis.call('DEL', bounds)
    else
      redis.call('ZREM', bounds, bound)
    end
  end
end

-- Removes up to `count` leaves of a deleted API. Returns whether none is left.
local function remove_starts(workspace, api8, count)
  local bounds = name_of.start_bounds(workspace, api8)
  local popped = redis.call('ZPOPMIN', bounds, count)
  for index = 1, #popped, 2 do
    redis.call('UNLINK', name_of.start_leaf(workspace, api8, popped[index]))
  end
  redis.call('UNLINK', name_of.start_leaf(workspace, api8, ''))
  return #popped < 2 * count
end

-- Whether a key begins with `start`, which may be more or less of its string than is stored.
local function is_start_of(start, stored)
  local shared = math.min(#stored, #start)
  return shared > 0 and string.sub(stored, 1, shared) == string.sub(start, 1, shared)
end

-- The packed ids of the keys of an API that begin with `start`, in no order, and the number of entries that were read;
-- nil if they are in more than `leaves_max` leaves. A key may be repeated.
local function ids_with_start(workspace, api8, start, leaves_max)
  local bounds, leaves, count = name_of.start_bounds(workspace, api8), {}, 0
  local function add(bound)
    if not leaves[bound] then
      leaves[bound], count = true, count + 1
    end
  end
  local function add_between(from, to)
    add(leaf_bound_of(workspace, api8, from))
    for _, bound in ipairs(redis.call('ZRANGEBYLEX', bounds, '(' .. from, '(' .. to, 'LIMIT', '0', leaves_max)) do
      add(bound)
    end
  end
  add_between(start, start .. '\255')
  -- The stored start of a key may be shorter.
  for length = 1, #start - 1 do
    local shorter = string.sub(start, 1, length)
    add_between(shorter .. '\0', shorter .. '\1')
  end
  if count > leaves_max then return nil end

  local ids, read = {}, 0
  for bound in pairs(leaves) do
    for _, entry in ipairs(redis.call('LRANGE', name_of.start_leaf(workspace, api8, bound), '0', '-1')) do
      read = read + 1
      if is_start_of(start, string.sub(entry, 1, -PACKED_ID_BYTES - 2)) then
        ids[#ids + 1] = string.sub(entry, -PACKED_ID_BYTES)
      end
    end
  end
  return ids, read
end

-- Whether what is stored of a key begins with `start`.
local function key_begins_with(workspace, digest, start)
  return is_start_of(start, redis.call('HGET', name_of.key_record(workspace, digest), 'start') or '')
end

-- The digest of the key in a list of keys with this packed id and this start, or nil.
local function digest_with_start(workspace, list, id, start)
  -- After the id a member has 32 bytes, none of them above 255.
  local beyond = '(' .. id .. string.rep('\255', 33)
  for _, member in ipairs(redis.call('ZRANGEBYLEX', list, '[' .. id, beyond, 'LIMIT', '0', '10')) do
    local digest = string.sub(member, PACKED_ID_BYTES + 1)
    if key_begins_with(workspace, digest, start) then return digest end
  end
end
