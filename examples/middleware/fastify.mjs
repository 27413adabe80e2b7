// Fastify, its keys checked by Tollgate through the Unkey SDK.
//
//   TOLLGATE_URL=http://127.0.0.1:8080 TOLLGATE_ROOT_KEY=root_… node examples/middleware/fastify.mjs

import { Unkey } from '@unkey/api';
import Fastify from 'fastify';

const { TOLLGATE_URL, TOLLGATE_ROOT_KEY, PORT = '3000' } = process.env;
// Without an address the SDK sends the root key and the keys of your users to api.unkey.com.
if (!TOLLGATE_URL || !TOLLGATE_ROOT_KEY) {
  console.error('Set TOLLGATE_URL to the address of your Tollgate, and TOLLGATE_ROOT_KEY to a root key of it.');
  process.exit(1);
}

// No retries, as a verification may have been charged, and a short timeout.
const unkey = new Unkey({
  serverURL: TOLLGATE_URL,
  rootKey: TOLLGATE_ROOT_KEY,
  retryConfig: { strategy: 'none' },
  timeoutMs: 2000,
});

// While keys cannot be checked: false responds with 503; true lets every request with any key pass, unlimited, uncharged
// and without `key`. It applies when Tollgate or Redis is unavailable, not when the root key is wrong.
const failOpen = process.env.FAIL_OPEN === 'true';
const isUnavailable = ({ name, statusCode }) =>
  /^(Connection|RequestTimeout)Error$/.test(name) || [502, 503, 504].includes(statusCode);

// Limits that every request checks with a cost, such as [{"name":"tokens","cost":5}], besides those that the key itself
// applies to each.
const limits = JSON.parse(process.env.LIMITS || '[]');
// What every request needs, such as `docs.write`: a permission that the plan of a customer may give.
const permissions = process.env.PERMISSIONS || undefined;
const costOf = (name) => limits.find((limit) => limit.name === name)?.cost ?? 1;

const statuses = { NOT_FOUND: 401, RATE_LIMITED: 429, USAGE_EXCEEDED: 429 };

async function requireKey(request, reply) {
  // A longer key does not exist: Tollgate responds to it with 400, which is no outage.
  const key = /^Bearer +(\S{1,512})$/i.exec(request.headers.authorization ?? '')?.[1];
  if (!key) return reply.code(401).header('WWW-Authenticate', 'Bearer').send({ error: 'NOT_FOUND' });

  let unavailable = false;
  const result = await unkey.keys.verifyKey({ key, permissions, ratelimits: limits }).catch((error) => {
    console.error(`Tollgate: ${error.message}`);
    unavailable = isUnavailable(error);
  });
  if (unavailable && failOpen) return;
  if (!result) return reply.code(503).header('Retry-After', '1').send({ error: 'UNAVAILABLE' });

  const { valid, code, ratelimits = [] } = result.data;
  if (!valid) {
    if (code === 'NOT_FOUND') reply.header('WWW-Authenticate', 'Bearer');
    if (code === 'RATE_LIMITED') {
      const exceeded = ratelimits.filter((limit) => limit.exceeded);
      const reset = Math.max(...exceeded.map((limit) => limit.reset));
      // A cost above the limit is never admitted.
      if (exceeded.every(({ name, limit }) => costOf(name) <= limit))
        reply.header('Retry-After', String(Math.max(1, Math.ceil((reset - Date.now()) / 1000))));
    }
    return reply.code(statuses[code] ?? 403).send({ error: code });
  }
  request.key = result.data;
}

const app = Fastify();
app.decorateRequest('key', null);
app.register(
  async (api) => {
    api.addHook('onRequest', requireKey);
    api.get('/hello', async ({ key }) => ({ hello: key?.identity?.externalId ?? key?.keyId ?? 'unchecked' }));
  },
  { prefix: '/api' },
);

console.log(`listens on ${await app.listen({ host: '127.0.0.1', port: Number(PORT) })}`);
