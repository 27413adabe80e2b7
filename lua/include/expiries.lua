-- The index of keys by expiry: for each API a sorted set of the keys that have an expiry and are not deleted, including
-- keys that have expired. The score is the expiry, the member is the packed id of the key (include/ids). Keys that
-- expire at the same time are in order of their ids.
--
-- Every script that stores another expiry, or adds a key to the list of its API or removes it there, updates the index.
-- Deleting an API removes the index with one UNLINK.
--
-- Servers of data version 4 do not keep the index, so it is complete from data version 5 on. A migration fills it: it
-- calls remove_expiries once for each API, before the first key of the API, because such servers leave keys in it that
-- they delete. Then it calls index_packed_state for each member of the list of keys. Other servers may change keys
-- meanwhile, and a step may be repeated: each call stores what the state has.

-- Stores the expiry of a key by its packed id. NEVER removes the key from the index.
local function index_expiry(workspace, api8, id, expires)
  if expires < NEVER then
    redis.call('ZADD', name_of.expiries(workspace, api8), int(expires), id)
  else
    redis.call('ZREM', name_of.expiries(workspace, api8), id)
  end
end

-- As index_expiry, of a key by its packed state: the expiry in it; a deleted key is removed from the index. The state
-- must be one that read_state can read.
local function index_packed_state(workspace, api8, id, packed)
  local bit = FLAGS.deleted
  local is_deleted = string.byte(packed, KEY_FIXED_FLAGS_AT) % (bit + bit) >= bit
  local expires = struct.unpack(KEY_EXPIRES, packed, KEY_FIXED_EXPIRES_AT)
  index_expiry(workspace, api8, id, is_deleted and NEVER or expires)
end

-- As index_expiry, of a key by its state.
local function index_expiry_of(workspace, state)
  index_expiry(workspace, string.sub(state.id, 17), pack_id(string.sub(state.id, 1, 16)), state.expires)
end

-- Removes a key (24) from the index.
local function unindex_expiry(workspace, key24)
  redis.call('ZREM', name_of.expiries(workspace, string.sub(key24, 17)), pack_id(string.sub(key24, 1, 16)))
end

-- Removes the index of an API. Redis frees it in the background.
local function remove_expiries(workspace, api8) redis.call('UNLINK', name_of.expiries(workspace, api8)) end
