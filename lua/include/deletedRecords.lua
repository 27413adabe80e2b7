-- Deleted records that can be restored until the sweeper removes them. A deleted record is renamed, so that neither
-- verifications nor servers of earlier versions find it, and its member moves from the list of its kind to a list of
-- deleted ones. Both are restored as they were. A queue has the members by the time at which they are removed.
--
-- A member is the id of a record (16), and for some kinds a text after it, as in the list of the kind.

local deleted_records = {}

-- The kinds by their letters: the lists of records and of deleted ones, and the names of both records.
local DELETED_KINDS = {
  a = {
    list = name_of.api_list,
    deleted = name_of.deleted_apis,
    names = function(workspace, member)
      local api8 = string.sub(member, 9)
      return name_of.api_record(workspace, api8), name_of.deleted_api(workspace, api8)
    end,
  },
  i = {
    list = name_of.identity_list,
    deleted = name_of.deleted_identities,
    names = function(workspace, member)
      local id16, external_id = string.sub(member, 1, 16), string.sub(member, 17)
      return name_of.identity_record(workspace, external_id), name_of.deleted_identity(workspace, id16)
    end,
  },
}

-- Its first write takes no memory, so that it can be made while Redis is full.
function deleted_records.put(workspace, kind, member, due)
  local live, deleted = DELETED_KINDS[kind].names(workspace, member)
  redis.call('RENAME', live, deleted)
  redis.call('ZREM', DELETED_KINDS[kind].list(workspace), member)
  redis.call('ZADD', DELETED_KINDS[kind].deleted(workspace), 0, member)
  redis.call('ZADD', name_of.deleted_queue(workspace), int(due), kind .. member)
end

local function unlist(workspace, kind, member)
  redis.call('ZREM', DELETED_KINDS[kind].deleted(workspace), member)
  redis.call('ZREM', name_of.deleted_queue(workspace), kind .. member)
end

-- Its first write takes memory: while Redis is full it is refused, and nothing is changed.
function deleted_records.restore(workspace, kind, member)
  local live, deleted = DELETED_KINDS[kind].names(workspace, member)
  redis.call('ZADD', DELETED_KINDS[kind].list(workspace), 0, member)
  redis.call('RENAME', deleted, live)
  unlist(workspace, kind, member)
end

-- Removes the record for good, and from its list.
function deleted_records.remove(workspace, kind, member)
  local _, deleted = DELETED_KINDS[kind].names(workspace, member)
  redis.call('UNLINK', deleted)
  unlist(workspace, kind, member)
end

-- The time until which a record can be restored, or false.
function deleted_records.until_of(workspace, kind, member)
  return redis.call('ZSCORE', name_of.deleted_queue(workspace), kind .. member)
end

-- The members of all kinds that are due, each after the letter of its kind.
function deleted_records.due(workspace, now, count)
  return redis.call('ZRANGE', name_of.deleted_queue(workspace), '-inf', int(now), 'BYSCORE', 'LIMIT', 0, count)
end
