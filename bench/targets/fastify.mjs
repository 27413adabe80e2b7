// What a good engineer writes in an afternoon: Fastify with schemas, ioredis, and one script a request that does all that
// a verification of Tollgate does: root key, key, enabled, expiry, a sliding window, credits, usage, last use.
import { createHash, randomUUID } from 'node:crypto';
import Fastify from 'fastify';
import { Redis } from 'ioredis';

const redis = new Redis({ path: process.env.REDIS_SOCKET });
const hashOf = (text) => createHash('sha256').update(text).digest('hex');

// The window is two counts: all of the present one and of the one before as much as still lies within the duration.
redis.defineCommand('verify', {
  numberOfKeys: 2,
  lua: `
    if redis.call('HGET', KEYS[1], 'enabled') ~= '1' then return { 'UNAUTHORIZED' } end
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local used = 'used:' .. math.floor(now / 3600000)
    local key = redis.call('HMGET', KEYS[2], 'keyId', 'name', 'meta', 'enabled', 'expires', 'credits',
      'limitId', 'limitName', 'limit', 'duration', 'window', 'current', 'previous', used)
    if not key[1] then return { 'NOT_FOUND' } end
    local credits, limit, duration = tonumber(key[6]), tonumber(key[9]), tonumber(key[10])
    local window, current, previous = math.floor(now / duration), tonumber(key[12] or 0), tonumber(key[13] or 0)
    local since = window - tonumber(key[11] or 0)
    if since == 1 then previous, current = current, 0 elseif since > 1 then previous, current = 0, 0 end
    local taken = current + math.floor(previous * (1 - (now % duration) / duration))
    local code = 'VALID'
    if key[4] ~= '1' then code = 'DISABLED'
    elseif key[5] and now >= tonumber(key[5]) then code = 'EXPIRED'
    elseif taken + 1 > limit then code = 'RATE_LIMITED'
    elseif credits < tonumber(ARGV[1]) then code = 'USAGE_EXCEEDED'
    end
    if code == 'VALID' then
      credits, current, taken = credits - ARGV[1], current + 1, taken + 1
      redis.call('HSET', KEYS[2], 'credits', string.format('%d', credits), 'window', window, 'current', current,
        'previous', previous, 'lastUsed', now, used, (key[14] or 0) + 1)
    else
      redis.call('HINCRBY', KEYS[2], used .. ':' .. code, 1)
    end
    return { code, key[1], key[2], key[3], key[4], key[5], string.format('%d', credits), key[7], key[8], limit, duration,
      limit - taken, (window + 1) * duration }
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
const answer = {
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
app.post('/v2/keys.verifyKey', { schema: { body, response: { 200: answer } } }, async (request, reply) => {
  const bearer = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
  if (bearer === undefined) return reply.code(401).send({ error: 'The root key is missing.' });
  const { key, credits } = request.body;
  const verified = await redis.verify(`root:${hashOf(bearer)}`, `key:${hashOf(key)}`, credits?.cost ?? 1);
  const [code, keyId, name, meta, enabled, expires, remaining, limitId, limitName, limit, duration, left, reset] =
    verified;
  if (code === 'UNAUTHORIZED') return reply.code(401).send({ error: 'The root key is unknown.' });
  reply.header('X-Request-Id', request.id);
  if (code === 'NOT_FOUND') return { meta: { requestId: request.id }, data: { valid: false, code } };
  return {
    meta: { requestId: request.id },
    data: {
      valid: code === 'VALID',
      code,
      keyId,
      enabled: enabled === '1',
      name,
      meta: JSON.parse(meta),
      ...(expires !== null && { expires: Number(expires) }),
      credits: Number(remaining),
      ratelimits: [
        {
          id: limitId,
          name: limitName,
          limit,
          duration,
          autoApply: true,
          exceeded: code === 'RATE_LIMITED',
          remaining: left,
          reset,
        },
      ],
    },
  };
});
await app.listen({ host: '127.0.0.1', port: 0 });
process.send({ port: app.server.address().port });
process.on('disconnect', () => process.exit());
