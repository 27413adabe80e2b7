-- The sums of usage by customer: what an externalId counted on each day in an API, '' for keys without an identity. The
-- script that moves hours of a key's log into its days adds the same counts to these sums, so they are what the days of
-- all keys are together. A bill reads them instead of the keys.
--
-- The sums of an API in a month are a B-tree of two levels, as the index of starts (include/starts). A leaf is a hash
-- of externalIds from its bound up to the next one, byte by byte; the first leaf has the bound ''. A leaf that grows
-- too long is split. Leaves are never removed, they expire with the last usage in them.

-- Limit of the customers of a leaf, so that Redis reads one in a fraction of a millisecond, and stores short ones in
-- one piece.
local LEAF_CUSTOMERS_MAX = 128
-- Limit of the leaves that one script splits. The others are split by the next script that adds a customer.
local SPLITS_MAX = 8

local usage_sums = {}

-- The bound of the leaf that has this customer, if there is one.
function usage_sums.bound_of(workspace, api8, month, external_id)
  local bounds = name_of.sum_bounds(workspace, api8, month)
  return redis.call('ZREVRANGEBYLEX', bounds, '[' .. external_id, '-', 'LIMIT', '0', '1')[1] or ''
end

-- The first day that has sums of all usage; nil if there is none. Also, if it changes with days of keys up to
-- `last_day`, the last day that the days of any key may have (`daysTo` of the workspace). It is written where there are
-- sums, or with `begins`: a server of an earlier version would not write it, and may have imported tomorrow before.
function usage_sums.days_of(workspace, last_day, now, begins)
  local stored = redis.call('HMGET', workspace, 'summed', 'daysTo')
  local summed, days_to = tonumber(stored[1] or nil), tonumber(stored[2] or nil)
  if not summed and not begins then return nil, nil end
  if not days_to and summed ~= 0 then last_day = math.max(last_day, math.floor(now / DAY_MS) + 1) end
  return summed, (not days_to or last_day > days_to) and last_day or nil
end

local COUNT_FORMATS, COUNT_BYTES = { '>I1', '>I2', '>I4', '>I7' }, { 1, 2, 4, 7 }

-- The end of the sum of a day at `at`, the day of the month, the bits of its counts, and the number of their width.
function usage_sums.day_at(sums, at)
  local head, bits = string.byte(sums, at, at + 1)
  local width, rest, counted = math.floor(head / SUM_WIDTH) + 1, bits, 0
  while rest > 0 do
    counted, rest = counted + rest % 2, math.floor(rest / 2)
  end
  return at + 2 + counted * COUNT_BYTES[width], head % SUM_WIDTH, bits, width
end

-- Adds the counts of a day to `counts`, by their places from 0.
function usage_sums.read_day(sums, at, counts)
  local _, _, bits, width = usage_sums.day_at(sums, at)
  local count_at = at + 2
  for place = 0, SUM_PLACES - 1 do
    if bits % 2 == 1 then
      local count = struct.unpack(COUNT_FORMATS[width], sums, count_at)
      counts[place] = math.min((counts[place] or 0) + count, SAFE_INTEGER)
      count_at = count_at + COUNT_BYTES[width]
    end
    bits = math.floor(bits / 2)
  end
end

-- Packs the sum of a day: its day of the month and width, its bits, its counts.
function usage_sums.pack_day(day, counts)
  local most, bits, packed = 0, 0, {}
  for _, count in pairs(counts) do
    most = math.max(most, count)
  end
  local width = most < 256 and 1 or most < 65536 and 2 or most < 4294967296 and 3 or 4
  for place = 0, SUM_PLACES - 1 do
    if (counts[place] or 0) > 0 then
      bits, packed[#packed + 1] = bits + 2 ^ place, struct.pack(COUNT_FORMATS[width], counts[place])
    end
  end
  return string.char(day + SUM_WIDTH * (width - 1), bits) .. table.concat(packed)
end

-- The sums of the days of a customer with the sum of one more day, which they may have already.
function usage_sums.with_day(sums, added)
  local _, day = usage_sums.day_at(added, 1)
  local at = 1
  while at <= #sums do
    local next_at, other = usage_sums.day_at(sums, at)
    if other == day then
      local counts = {}
      usage_sums.read_day(sums, at, counts)
      usage_sums.read_day(added, 1, counts)
      return string.sub(sums, 1, at - 1) .. usage_sums.pack_day(day, counts) .. string.sub(sums, next_at)
    end
    at = next_at
  end
  return sums .. added
end

-- Reads what must be known before the first write of a script that adds sums. `added` has texts, each of some
-- CUSTOMER_SUM one after the other; those of days before `first_day` (nil for none at all) are left out. Returns a
-- function that adds the others.
function usage_sums.adding(workspace, api8, added, first_day, retention_ms)
  local leaves, count = {}, 0
  for _, text in ipairs(first_day and added or {}) do
    local position = 1
    while position <= #text do
      local day, month, external_id, sum
      day, month, external_id, sum, position = struct.unpack(CUSTOMER_SUM, text, position)
      if day >= first_day then
        local bound = usage_sums.bound_of(workspace, api8, month, external_id)
        local name = name_of.sum_leaf(workspace, api8, month, bound)
        local leaf = leaves[name] or { month = month, sums = {}, new = 0 }
        leaves[name] = leaf
        local sums = leaf.sums[external_id] or redis.call('HGET', name, external_id)
        if not sums then leaf.new = leaf.new + 1 end
        leaf.sums[external_id] = usage_sums.with_day(sums or '', sum)
      end
    end
  end
  for name, leaf in pairs(leaves) do
    if count < SPLITS_MAX and leaf.new > 0 and redis.call('HLEN', name) + leaf.new > LEAF_CUSTOMERS_MAX then
      count, leaf.stored = count + 1, redis.call('HKEYS', name)
      leaf.values = redis.call('HVALS', name)
    end
  end
  return function()
    for name, leaf in pairs(leaves) do
      usage_sums.write_leaf(workspace, api8, name, leaf, retention_ms)
    end
  end
end

-- Writes the changed sums of a leaf. With `stored`, its customers, and `values`, it is split.
function usage_sums.write_leaf(workspace, api8, name, leaf, retention_ms)
  local bounds, kept_ms = name_of.sum_bounds(workspace, api8, leaf.month), usage_kept_ms(retention_ms)
  local customers, flat = {}, {}
  for external_id, sums in pairs(leaf.sums) do
    customers[#customers + 1], flat[#flat + 1], flat[#flat + 2] = external_id, external_id, sums
  end
  if leaf.stored then
    for index, external_id in ipairs(leaf.stored) do
      if not leaf.sums[external_id] then
        customers[#customers + 1], leaf.sums[external_id] = external_id, leaf.values[index]
      end
    end
    table.sort(customers, comes_before)
    -- Halves, or more parts after many new customers.
    local size = math.ceil(#customers / math.ceil(2 * #customers / LEAF_CUSTOMERS_MAX))
    for first = size + 1, #customers, size do
      local part, moved = {}, {}
      for index = first, math.min(first + size - 1, #customers) do
        local external_id = customers[index]
        moved[#moved + 1], part[#part + 1], part[#part + 2] = external_id, external_id, leaf.sums[external_id]
      end
      local part_name = name_of.sum_leaf(workspace, api8, leaf.month, moved[1])
      redis.call('HSET', part_name, unpack(part))
      redis.call('PEXPIRE', part_name, kept_ms)
      redis.call('ZADD', bounds, 0, moved[1])
      redis.call('HDEL', name, unpack(moved))
    end
    flat = {}
    for index = 1, math.min(size, #customers) do
      flat[#flat + 1], flat[#flat + 2] = customers[index], leaf.sums[customers[index]]
    end
  end
  redis.call('HSET', name, unpack(flat))
  redis.call('PEXPIRE', name, kept_ms)
  redis.call('PEXPIRE', bounds, kept_ms)
end
