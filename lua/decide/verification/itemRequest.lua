-- The text at the end of a VERIFY_ITEM: an address, which does not begin with JSON, and the request without its key.

-- The request of a verification without its key. Cached and shared: treat as immutable.
local function request_of(text)
  local request = memo[text]
  if not request then
    request = cjson.decode(text)
    memoize(text, request)
  end
  return request
end

-- The request, its text, and the address in the text from `first` to `last` of packed items; nil or false for none.
local function read_request(items, first, last)
  local text, ip = string.sub(items, first, last), nil
  if string.byte(text) ~= JSON_BEGIN then
    ip = struct.unpack('>Bc0', text)
    text = string.sub(text, #ip + 2)
    if text == '' then return nil, false, ip end
  end
  return memo[text] or request_of(text), text, ip
end
