-- The actions `lua.tollgate`, which asks Tollgate whether a request may pass, and `lua.tollgate_refuse`, which responds if it
-- may not. Their settings are in haproxy.cfg.
local open = os.getenv("TOLLGATE_AWAY") == "open"
local for_client = {
    "content-type", "www-authenticate", "retry-after", "ratelimit", "ratelimit-policy", "x-tollgate-code",
}
local refusals = { [401] = true, [403] = true, [429] = true, [503] = true }

core.register_action("tollgate", { "http-req" }, function(txn)
    -- Of the client's headers only the key reaches the check: no client can choose its cost or make a check fail.
    -- A header that is longer than any key is left out: Tollgate's parser refuses headers of more than 16 KB.
    local key = txn.http:req_get_headers()["authorization"]
    local headers = { authorization = key and not key[1] and #key[0] <= 600 and { key[0] } or nil }
    for _, name in ipairs({ "permissions", "cost", "limits", "hold" }) do
        local value = txn:get_var("txn.tollgate_" .. name)
        if value then headers["x-tollgate-" .. name] = { value } end
    end
    local address = txn:get_var("txn.client_address")
    if address then headers["x-real-ip"] = { address } end
    local response = core.httpclient():get({
        url = "http://tollgate/v2/gateway/check", dst = "abns@tollgate", headers = headers, timeout = 5000,
    })
    local status, received = response.status or 0, response.headers or {}

    if status == 200 then
        for name, values in pairs(received) do
            if name:find("^x%-tollgate%-") then txn.http:req_set_header(name, values[0]) end
        end
        if received["ratelimit"] then
            txn:set_var("txn.tollgate_ratelimit", received["ratelimit"][0])
            txn:set_var("txn.tollgate_policy", received["ratelimit-policy"][0])
        end
        return txn:set_var("txn.tollgate_passes", true)
    end
    local is_away = status == 0 or status >= 502 and status <= 504
    if open and is_away then return txn:set_var("txn.tollgate_passes", true) end

    local reply = txn:reply({ status = refusals[status] and status or is_away and 503 or 500 })
    if refusals[status] and received["x-request-id"] then
        for _, name in ipairs(for_client) do
            if received[name] then reply:add_header(name, received[name][0]) end
        end
        reply:set_body(response.body)
    else
        reply:add_header("content-type", "application/json")
        if is_away then reply:add_header("retry-after", "1") end
        reply:set_body('{"error":{"status":' .. (is_away and 503 or 500) .. "}}")
    end
    txn:set_priv(reply)
end)

core.register_action("tollgate_refuse", { "http-req" }, function(txn)
    local reply = txn:get_priv()
    if reply then txn:done(reply) end
end)
