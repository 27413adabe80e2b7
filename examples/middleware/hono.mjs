// Hono, its keys checked by Tollgate through the Unkey SDK.
//
//   TOLLGATE_URL=http://127.0.0.1:8080 TOLLGATE_ROOT_KEY=root_… node examples/middleware/hono.mjs

import { serve } from '@hono/node-server';
import { Unkey } from '@unkey/api';
import { Hono } from 'hono';

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

async function requireKey(c, next) {
  // A longer key does not exist: Tollgate responds to it with 400, which is no outage.
  const key = /^Bearer +(\S{1,512})$/i.exec(c.req.header('Authorization') ?? '')?.[1];
  if (!key) return c.json({ error: 'NOT_FOUND' }, 401, { 'WWW-Authenticate': 'Bearer' });

  let unavailable = false;
  const result = await unkey.keys.verifyKey({ key, permissions, ratelimits: limits }).catch((error) => {
    console.error(`Tollgate: ${error.message}`);
    unavailable = isUnavailable(error);
  });
  if (unavailable && failOpen) return next();
  if (!result) return c.json({ error: 'UNAVAILABLE' }, 503, { 'Retry-After': '1' });

  const { valid, code, ratelimits = [] } = result.data;
  if (!valid) {
    if (code === 'NOT_FOUND') c.header('WWW-Authenticate', 'Bearer');
    if (code === 'RATE_LIMITED') {
      const exceeded = ratelimits.filter((limit) => limit.exceeded);
      const reset = Math.max(...exceeded.map((limit) => limit.reset));
      // A cost above the limit is never admitted.
      if (exceeded.every(({ name, limit }) => costOf(name) <= limit))
        c.header('Retry-After', String(Math.max(1, Math.ceil((reset - Date.now()) / 1000))));
    }
    return c.json({ error: code }, statuses[code] ?? 403);
  }
  c.set('key', result.data);
  await next();
}

const app = new Hono();
app.use('/api/*', requireKey);
app.get('/api/hello', (c) =>
  c.json({ hello: c.get('key')?.identity?.externalId ?? c.get('key')?.keyId ?? 'unchecked' }),
);

serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(PORT) }, ({ port }) => {
  console.log(`listens on http://127.0.0.1:${port}`);
});
