// A service that a developer writes in an afternoon: Fastify with schemas, ioredis, and one Lua script per request. The
// script does the same work as a verification of the typical key in Tollgate: root key with its grants, API, key,
// enabled, expiry, refill, limits, credits, usage of key and API, last use. It has no identities and permissions, as
// the typical key has none.
import { createHash, randomUUID } from 'node:crypto';
import Fastify from 'fastify';
import { Redis } from 'ioredis';

const redis = new Redis({ path: process.env.REDIS_SOCKET });
const hashOf = (text) => createHash('sha256').update(text).digest('hex');

// Sliding-window counters: the current count, and the part of the previous one that is still within the duration.
redis.defineCommand('verify', {
  numberOfKeys: 2,
  lua: `
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local root = redis.call('HMGET', KEYS[1], 'enabled', 'expires', 'permissions')
    if root[1] ~= '1' or root[2] and now >= tonumber(root[2]) then return { 'UNAUTHORIZED' } end

    local key = redis.call('HMGET', KEYS[2], 'keyId', 'apiId', 'name', 'meta', 'enabled', 'expires', 'credits',
      'refillAmount', 'refillInterval', 'refillAt', 'limits')
    if not key[1] or redis.call('EXISTS', 'api:' .. key[2]) == 0 then return { 'NOT_FOUND' } end
    local may = false
    for _, permission in ipairs(cjson.decode(root[3])) do
      may = may or permission == 'api.*.verify_key' or permission == 'api.' .. key[2] .. '.verify_key'
    end
    if not may then return { 'NOT_FOUND' } end

    local changes = { 'lastUsed', now }
    local function change(field, value) changes[#changes + 1], changes[#changes + 2] = field, value end
    local credits, cost = tonumber(key[7]), tonumber(ARGV[1])
    if credits and key[10] and now >= tonumber(key[10]) then
      credits = tonumber(key[8])
      change('refillAt', tonumber(key[10]) + math.ceil((now - key[10] + 1) / key[9]) * key[9])
    end

    local code, limits, states = 'VALID', cjson.decode(key[11] or '[]'), {}
    if key[5] ~= '1' then code = 'DISABLED'
    elseif key[6] and now >= tonumber(key[6]) then code = 'EXPIRED'
    else
      for index, limit in ipairs(limits) do
        if limit.autoApply then
          local window, since, current, previous = math.floor(now / limit.duration), nil, 0, 0
          local stored = redis.call('HGET', KEYS[2], 'window:' .. limit.id)
          if stored then
            since, current, previous = string.match(stored, '(%d+):(%d+):(%d+)')
            since, current, previous = window - since, tonumber(current), tonumber(previous)
            if since == 1 then current, previous = 0, current elseif since > 1 then current, previous = 0, 0 end
          end
          local taken = current + math.floor(previous * (1 - now % limit.duration / limit.duration))
          local exceeded = taken + 1 > limit.limit
          if exceeded then code = 'RATE_LIMITED' end
          states[#states + 1] = { index, exceeded and 1 or 0, limit.limit - taken - (exceeded and 0 or 1), (window + 1) * limit.duration }
          change('window:' .. limit.id, window .. ':' .. current + 1 .. ':' .. previous)
        end
      end
      if code == 'VALID' and credits then
        if credits < cost then code = 'USAGE_EXCEEDED'
        else
          credits = credits - cost
          change('credits', string.format('%d', credits))
        end
      end
    end
    if code == 'VALID' then redis.call('HSET', KEYS[2], unpack(changes)) end
    local hour = math.floor(now / 3600000)
    redis.call('HINCRBY', KEYS[2], 'used:' .. hour .. ':' .. code, 1)
    local usage = 'usage:' .. key[2] .. ':' .. math.floor(hour / 24)
    if redis.call('HINCRBY', usage, hour .. ':' .. code, 1) == 1 then redis.call('EXPIRE', usage, 91 * 86400) end
    if code == 'VALID' and credits then redis.call('HINCRBY', usage, hour .. ':spent', cost) end
    return { code, key[1], key[3], key[4], key[5], key[6], credits and string.format('%d', credits), key[11], states }
  `,
});

const body = {
  type: 'object',
  required: ['key'],
  additionalProperties: false,
  properties: {
    key: { type: 'string', minLength: 1, maxLength: 512 },
    permissions: { type: 'string', minLength: 1, maxLength: 1000 },
    credits: {
      type: 'object',
      required: ['cost'],
      additionalProperties: false,
      properties: { cost: { type: 'integer', minimum: 0, maximum: 1e12 } },
    },
    tags: { type: 'array', maxItems: 20, items: { type: 'string', minLength: 1, maxLength: 512 } },
  },
};
const ratelimit = {
  type: 'object',
  properties: {
    id: { type: 'string' },
    name: { type: 'string' },
    limit: { type: 'integer' },
    duration: { type: 'integer' },
    autoApply: { type: 'boolean' },
    exceeded: { type: 'boolean' },
    remaining: { type: 'integer' },
    reset: { type: 'integer' },
  },
};
const responseBody = {
  type: 'object',
  properties: {
    meta: { type: 'object', properties: { requestId: { type: 'string' } } },
    data: {
      type: 'object',
      properties: {
        valid: { type: 'boolean' },
        code: { type: 'string' },
        keyId: { type: 'string' },
        enabled: { type: 'boolean' },
        name: { type: 'string' },
        meta: { type: 'object', additionalProperties: true },
        expires: { type: 'integer' },
        credits: { type: 'integer' },
        ratelimits: { type: 'array', items: ratelimit },
      },
    },
  },
};

const app = Fastify({ logger: false, genReqId: () => `req_${randomUUID()}` });
app.post('/v2/keys.verifyKey', { schema: { body, response: { 200: responseBody } } }, async (request, reply) => {
  const bearer = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
  if (bearer === undefined) return reply.code(401).send({ error: 'The root key is missing.' });
  const { key, credits } = request.body;
  const verified = await redis.verify(`root:${hashOf(bearer)}`, `key:${hashOf(key)}`, credits?.cost ?? 1);
  const [code, keyId, name, meta, enabled, expires, remaining, limits, states] = verified;
  if (code === 'UNAUTHORIZED') return reply.code(401).send({ error: 'The root key is unknown.' });
  reply.header('X-Request-Id', request.id);
  if (code === 'NOT_FOUND') return { meta: { requestId: request.id }, data: { valid: false, code } };
  const configured = limits === null ? [] : JSON.parse(limits);
  return {
    meta: { requestId: request.id },
    data: {
      valid: code === 'VALID',
      code,
      keyId,
      enabled: enabled === '1',
      ...(name !== null && { name }),
      ...(meta !== null && { meta: JSON.parse(meta) }),
      ...(expires !== null && { expires: Number(expires) }),
      ...(remaining !== null && { credits: Number(remaining) }),
      ratelimits: states.map(([index, exceeded, left, reset]) => ({
        ...configured[index - 1],
        exceeded: exceeded === 1,
        remaining: left,
        reset,
      })),
    },
  };
});
await app.listen({ host: '127.0.0.1', port: 0 });
process.send({ port: app.server.address().port });
process.on('disconnect', () => process.exit());
