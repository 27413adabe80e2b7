// A service made of common packages: Express, rate-limiter-flexible for the limits (fixed windows), and a record with
// credits in Redis. A request reads the root key and the key at the same time, and then the API. It charges the limits,
// then the credits, and then counts usage.
import { createHash, randomUUID } from 'node:crypto';
import express from 'express';
import { Redis } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';

const redis = new Redis({ path: process.env.REDIS_SOCKET });
const hashOf = (text) => createHash('sha256').update(text).digest('hex');

const limiters = new Map();
/** One limiter for each combination of limit and duration. */
function limiterOf({ limit, duration }) {
  const id = `${limit}:${duration}`;
  if (!limiters.has(id)) {
    const options = { storeClient: redis, keyPrefix: `limit:${id}`, points: limit, duration: duration / 1000 };
    limiters.set(id, new RateLimiterRedis(options));
  }
  return limiters.get(id);
}

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
  const [root, found] = await Promise.all([redis.hgetall(`root:${hashOf(bearer)}`), redis.hgetall(record)]);
  const now = Date.now();
  if (root.enabled !== '1' || now >= Number(root.expires ?? Infinity))
    return response.status(401).json({ error: 'The root key is unknown.' });
  const permissions = JSON.parse(root.permissions);
  const mayVerify = ['api.*.verify_key', `api.${found.apiId}.verify_key`].some((each) => permissions.includes(each));
  if (!found.keyId || !mayVerify || !(await redis.exists(`api:${found.apiId}`)))
    return response.json({ meta: { requestId }, data: { valid: false, code: 'NOT_FOUND' } });

  let code = 'VALID';
  let credits = found.credits && Number(found.credits);
  const ratelimits = [];
  if (found.enabled !== '1') code = 'DISABLED';
  else if (found.expires && now >= Number(found.expires)) code = 'EXPIRED';
  else {
    if (credits !== undefined && now >= Number(found.refillAt ?? Infinity)) {
      credits = Number(found.refillAmount);
      const refillAt = now + Number(found.refillInterval);
      await redis.hset(record, { credits, refillAt });
    }
    const limits = JSON.parse(found.limits ?? '[]').filter(({ autoApply }) => autoApply);
    const windows = await Promise.all(
      limits.map((limit) =>
        limiterOf(limit)
          .consume(limit.id)
          .catch((refusal) => {
            if (refusal instanceof RateLimiterRes) return refusal;
            throw refusal;
          }),
      ),
    );
    for (const [index, { consumedPoints, remainingPoints, msBeforeNext }] of windows.entries()) {
      const exceeded = consumedPoints > limits[index].limit;
      if (exceeded) code = 'RATE_LIMITED';
      ratelimits.push({ ...limits[index], exceeded, remaining: remainingPoints, reset: now + msBeforeNext });
    }
    if (code === 'VALID' && credits !== undefined) {
      credits = await redis.hincrby(record, 'credits', -cost);
      if (credits < 0) {
        code = 'USAGE_EXCEEDED';
        credits = await redis.hincrby(record, 'credits', cost);
      }
    }
    if (code !== 'VALID') await Promise.all(limits.map((limit) => limiterOf(limit).reward(limit.id)));
  }
  const hour = Math.floor(now / 3_600_000);
  const usage = `usage:${found.apiId}:${Math.floor(hour / 24)}`;
  const counting = redis.pipeline().hincrby(record, `used:${hour}:${code}`, 1).hincrby(usage, `${hour}:${code}`, 1);
  if (code === 'VALID') counting.hset(record, 'lastUsed', now).hincrby(usage, `${hour}:spent`, cost);
  await counting.exec();
  response.json({
    meta: { requestId },
    data: {
      valid: code === 'VALID',
      code,
      keyId: found.keyId,
      enabled: found.enabled === '1',
      name: found.name,
      meta: found.meta && JSON.parse(found.meta),
      ...(found.expires && { expires: Number(found.expires) }),
      credits,
      ratelimits,
    },
  });
});
const server = app.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
process.on('disconnect', () => process.exit());
