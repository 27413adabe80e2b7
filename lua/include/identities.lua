-- The externalId of an identity by its id or externalId, or nil. An id names the identity it was given to, and no other.
local function external_id_for(workspace, id_or_external_id)
  if string.sub(id_or_external_id, 1, 3) == 'id_' and #id_or_external_id == 19 then
    local id16 = string.sub(id_or_external_id, 4)
    local member = redis.call('ZRANGE', identity_list(workspace), '[' .. id16, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if member and string.sub(member, 1, 16) == id16 then return string.sub(member, 17) end
  end
  if redis.call('EXISTS', identity_record(workspace, id_or_external_id)) == 1 then return id_or_external_id end
end

local function load_identity(workspace, external_id)
  return read_identity(redis.call('HGET', identity_record(workspace, external_id), 'state'))
end
