// What most would put together from parts: Express, rate-limiter-flexible for the limit (a fixed window), and the record
// with its credits in Redis. Root key and key are read at once, then the limit is charged, then credits and usage.
import { createHash, randomUUID } from 'node:crypto';
import express from 'express';
import { Redis } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { limit } from './typicalKey.mjs';

const redis = new Redis({ path: process.env.REDIS_SOCKET });
const hashOf = (text) => createHash('sha256').update(text).digest('hex');
const limiter = new RateLimiterRedis({
  storeClient: redis,
  keyPrefix: 'limit',
  points: limit.limit,
  duration: limit.duration / 1000,
});

const app = express();
app.use(express.json());
app.post('/v2/keys.verifyKey', async (request, response) => {
  const requestId = `req_${randomUUID()}`;
  response.set('X-Request-Id', requestId);
  const bearer = /^Bearer (\S+)$/.exec(request.get('authorization') ?? '')?.[1];
  const { key, credits: { cost = 1 } = {} } = request.body ?? {};
  if (bearer === undefined) return response.status(401).json({ error: 'The root key is missing.' });
  if (typeof key !== 'string' || key.length > 512) return response.status(400).json({ error: 'body.key is missing.' });
  if (!Number.isInteger(cost) || cost < 0)
    return response.status(400).json({ error: 'body.credits.cost is not valid.' });

  const record = `key:${hashOf(key)}`;
  const [isRoot, found] = await Promise.all([redis.hget(`root:${hashOf(bearer)}`, 'enabled'), redis.hgetall(record)]);
  if (isRoot !== '1') return response.status(401).json({ error: 'The root key is unknown.' });
  if (!found.keyId) return response.json({ meta: { requestId }, data: { valid: false, code: 'NOT_FOUND' } });

  let code = 'VALID';
  let credits = Number(found.credits);
  let window;
  if (found.enabled !== '1') code = 'DISABLED';
  else if (found.expires && Date.now() >= Number(found.expires)) code = 'EXPIRED';
  else {
    window = await limiter.consume(found.keyId).catch((refusal) => {
      if (refusal instanceof RateLimiterRes) code = 'RATE_LIMITED';
      else throw refusal;
      return refusal;
    });
    if (code === 'VALID') {
      const hour = Math.floor(Date.now() / 3_600_000);
      const charge = redis.pipeline().hincrby(record, 'credits', -cost).hincrby(record, `used:${hour}`, 1);
      const [[, after]] = await charge.hset(record, 'lastUsed', Date.now()).exec();
      credits = after;
      if (credits < 0) {
        code = 'USAGE_EXCEEDED';
        credits = await redis.hincrby(record, 'credits', cost);
        await limiter.reward(found.keyId);
      }
    }
  }
  const ratelimits = window && [
    {
      id: found.limitId,
      name: found.limitName,
      limit: Number(found.limit),
      duration: Number(found.duration),
      autoApply: true,
      exceeded: code === 'RATE_LIMITED',
      remaining: window.remainingPoints,
      reset: Date.now() + window.msBeforeNext,
    },
  ];
  response.json({
    meta: { requestId },
    data: {
      valid: code === 'VALID',
      code,
      keyId: found.keyId,
      enabled: found.enabled === '1',
      name: found.name,
      meta: JSON.parse(found.meta),
      ...(found.expires && { expires: Number(found.expires) }),
      credits,
      ratelimits,
    },
  });
});
const server = app.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
process.on('disconnect', () => process.exit());
