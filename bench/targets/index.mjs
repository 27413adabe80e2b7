// The targets: how each is started and filled with keys, its requests, and the check of its responses.
import { deepEqual, equal, ok } from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createKeyString } from '../../dist/domain/keyString.js';
import { farAway } from '../support/distance.mjs';
import { startRedis, startTarget, startTollgate } from '../support/processes.mjs';
import { openSeed } from '../support/seed.mjs';
import { credits, limit, meta, name } from './typicalKey.mjs';

const verifyPath = '/v2/keys.verifyKey';
/** Leases of the default length, and none. */
const leases = { LEASE_MS: '100' };
const noLeases = { LEASE_MS: '0' };
/** All requests are for one key, so its limit has to last for them. */
const hotLimit = { ...limit, limit: 1e9 };
/** Workspaces of `tollgate-tenants`. */
const tenants = 100;
/** Added to the round trips to a Redis on another machine. */
const farMs = 1;

export async function post({ url, path, rootKey }, body) {
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const response = await fetch(url + path, { method: 'POST', headers, body });
  return { status: response.status, data: (await response.json()).data };
}

/**
 * `open(count)` starts a target with `count` keys or identifiers and returns {url, pid, redis, path, rootKey, bodies,
 * check}. `check` throws when a response is wrong. `without` names the target that does the same without leases.
 */
export const targets = {
  bare: {
    does: 'uWebSockets.js, the same JSON in and out, without Redis',
    async open(count) {
      const server = await startTarget('bare.mjs');
      return checked({ ...server, path: verifyPath, rootKey: 'root', bodies: newKeys(count).map(bodyOf) });
    },
  },
  noop: {
    does: 'the same, and an empty script by ioredis for each request',
    async open(count) {
      const redis = await startRedis();
      const server = await startTarget('bare.mjs', { REDIS_SOCKET: redis.socket });
      return checked({ ...server, redis, path: verifyPath, rootKey: 'root', bodies: newKeys(count).map(bodyOf) });
    },
  },
  tollgate: {
    does: 'keys.verifyKey: credits, one limit, metadata of 60 bytes; all requests are decided by Redis (`LEASE_MS=0`)',
    open: (count, env) => openTypical(count, { ...noLeases, ...env }),
  },
  'tollgate-tenants': {
    does: `the same keys, over ${tenants} workspaces`,
    open: openTenants,
  },
  'tollgate-1000': {
    does: 'the same 1,000 keys, decided locally where possible (default terms, `LEASE_CREDITS=1`)',
    without: 'tollgate',
    open: (count) => openTypical(count, { ...leases, LEASE_CREDITS: '1' }),
  },
  'tollgate-hot': {
    does: 'one key with a limit in all requests, `LEASE_MS=0`',
    open: () => openHot(noLeases),
  },
  'tollgate-leases': {
    does: 'the same, `LEASE_MS=100`',
    without: 'tollgate-hot',
    open: () => openHot(leases),
  },
  'tollgate-tags': {
    does: 'one key with a limit, and one of 1,000 tags in each request, `LEASE_MS=0`',
    open: () => openHot(noLeases, { tags: 1000 }),
  },
  'tollgate-tags-leases': {
    does: 'the same, `LEASE_MS=100`',
    without: 'tollgate-tags',
    open: () => openHot(leases, { tags: 1000 }),
  },
  'tollgate-hot-far': {
    does: `as \`tollgate-hot\`; a proxy adds ${farMs} ms to each round trip to Redis`,
    open: () => openHot(noLeases, { isFar: true }),
  },
  'tollgate-leases-far': {
    does: `as \`tollgate-leases\`; a proxy adds ${farMs} ms to each round trip to Redis`,
    without: 'tollgate-hot-far',
    open: () => openHot(leases, { isFar: true }),
  },
  'tollgate-heavy': {
    does: 'keys.verifyKey: 5 limits, 20 direct permissions, 2 roles of 10, a query of 3 slugs, metadata of 3 KB',
    open: openHeavy,
  },
  'tollgate-limit': {
    does: 'ratelimits.limit: one of 1000 identifiers of a namespace in each request',
    open: (count) => openChecks(count, limit, noLeases),
  },
  'tollgate-limit-hot': {
    does: 'ratelimits.limit: one identifier in all requests, `LEASE_MS=0`',
    open: () => openChecks(1, hotLimit, noLeases),
  },
  'tollgate-limit-leases': {
    does: 'the same, `LEASE_MS=100`',
    without: 'tollgate-limit-hot',
    open: () => openChecks(1, hotLimit, leases),
  },
  fastify: {
    does: 'Fastify, ioredis and one Lua script per request: the same work as `tollgate`, written in an afternoon',
    open: (count) => openPeer('fastify.mjs', count),
  },
  'express-rlf': {
    does: 'Express, rate-limiter-flexible, and the record with credits in Redis: the same work without atomicity',
    open: (count) => openPeer('express.mjs', count),
  },
};

const bodyOf = (key) => JSON.stringify({ key });
const newKeys = (count) => Array.from({ length: count }, () => createKeyString({ byteLength: 16 }).key);

/** Creates an API with equal keys, over HTTP. */
async function createKeys(server, count, fields, extras = {}) {
  const call = caller(server);
  const { apiId } = await call('apis.createApi', { name: 'bench' });
  const bodies = [];
  while (bodies.length < count) {
    const made = Array.from({ length: Math.min(25, count - bodies.length) }, () =>
      call('keys.createKey', { apiId, ...fields }),
    );
    bodies.push(...(await Promise.all(made)).map(({ key }) => JSON.stringify({ key, ...extras })));
  }
  return bodies;
}

const typicalFields = { name, meta, credits: { remaining: credits }, ratelimits: [limit] };

/** Tollgate with `count` typical keys. */
async function openTypical(count, env) {
  const server = await startTollgate({ env });
  const bodies = await createKeys(server, count, typicalFields);
  return checked({ ...server, path: verifyPath, bodies }, { charges: true });
}

/** Tollgate with `count` typical keys in all. Each workspace has as many of them. */
async function openTenants(count) {
  const redis = await startRedis();
  const seed = await openSeed(redis);
  const others = await Promise.all(Array.from({ length: tenants - 1 }, () => seed.createWorkspace()));
  await seed.close();
  const server = { ...(await startTollgate({ redis, env: noLeases })), rootKey: seed.rootKey };
  const [bodies, rootKeys] = [[], []];
  for (const { rootKey } of [seed, ...others]) {
    const made = await createKeys({ ...server, rootKey }, Math.ceil(count / tenants), typicalFields);
    bodies.push(...made);
    rootKeys.push(...made.map(() => rootKey));
  }
  return checked({ ...server, path: verifyPath, bodies, rootKeys }, { charges: true });
}

/** Tollgate with one key that has a limit and no credits. With `tags`, requests have one of so many. */
async function openHot(env, { isFar = false, tags = 0 } = {}) {
  const server = isFar ? await startFar(env) : await startTollgate({ env });
  const [body] = await createKeys(server, 1, { name, meta, ratelimits: [hotLimit] });
  const tagged = (_, index) => JSON.stringify({ ...JSON.parse(body), tags: [`tag ${index}`] });
  const bodies = tags > 0 ? Array.from({ length: tags }, tagged) : [body];
  return checked({ ...server, path: verifyPath, bodies }, { charges: true, limit: hotLimit });
}

/** A server whose Redis is far away. */
async function startFar(env) {
  const near = await startRedis();
  const { rootKey, close } = await openSeed(near);
  await close();
  return { ...(await startTollgate({ redis: await farAway(near, farMs), env })), rootKey };
}

const caller = (server) => async (operation, input) => {
  const { status, data } = await post({ ...server, path: `/v2/${operation}` }, JSON.stringify(input));
  if (status !== 200) throw new Error(`${operation} responded with status ${status}`);
  return data;
};

async function openHeavy(count) {
  const server = await startTollgate({ env: noLeases });
  const call = caller(server);
  for (const role of ['editor', 'billing']) {
    const permissions = Array.from({ length: 10 }, (_, index) => `${role}.${index}.read`);
    await call('permissions.createRole', { name: role, permissions });
  }
  const heavyMeta = { history: Array.from({ length: 30 }, (_, index) => ({ index, note: 'x'.repeat(80) })) };
  const fields = {
    name,
    meta: heavyMeta,
    credits: { remaining: credits },
    ratelimits: Array.from({ length: 5 }, (_, index) => ({ ...limit, name: `limit${index}` })),
    permissions: Array.from({ length: 20 }, (_, index) => `documents.${index}.read`),
    roles: ['editor', 'billing'],
  };
  const query = 'documents.7.read AND (billing.3.read OR admin)';
  const bodies = await createKeys(server, count, fields, { permissions: query });
  const target = { ...server, path: verifyPath, bodies };
  return {
    ...target,
    async check() {
      const { status, data } = await post(target, bodies[0]);
      equal(status, 200);
      equal(data.code, 'VALID');
      deepEqual(data.meta, heavyMeta);
      equal(data.permissions.length, 40);
      equal(data.ratelimits.length, 5);
      equal(data.roles.length, 2);
    },
  };
}

/** Checks of `count` identifiers of a namespace. */
async function openChecks(count, { limit: units, duration }, env) {
  const server = await startTollgate({ env });
  const bodies = Array.from({ length: count }, (_, index) =>
    JSON.stringify({ namespace: 'bench', identifier: `user_${index + 1000}`, limit: units, duration }),
  );
  const target = { ...server, path: '/v2/ratelimits.limit', bodies };
  return {
    ...target,
    async check() {
      const [first, second] = [await post(target, bodies[0]), await post(target, bodies[0])];
      equal(first.status, 200);
      equal(first.data.success, true);
      equal(first.data.limit, units);
      ok(second.data.remaining < first.data.remaining || second.data.reset > first.data.reset, 'it charges');
      equal((await post({ ...target, rootKey: `${server.rootKey}x` }, bodies[0])).status, 401);
    },
  };
}

/** Starts a peer on its own Redis, with `count` typical keys. */
async function openPeer(file, count) {
  const redis = await startRedis();
  const hashOf = (text) => createHash('sha256').update(text).digest('hex');
  const rootKey = createKeyString({ prefix: 'root', byteLength: 16 }).key;
  const keys = newKeys(count);
  const apiId = 'api_1111111111111111';
  const permissions = JSON.stringify([`api.${apiId}.verify_key`, `api.${apiId}.create_key`]);
  const filling = redis.client.pipeline().hset(`api:${apiId}`, { name: 'bench' });
  filling.hset(`root:${hashOf(rootKey)}`, { id: 'root_1', enabled: 1, permissions });
  for (const [index, key] of keys.entries()) {
    filling.hset(`key:${hashOf(key)}`, {
      keyId: `key_${String(index).padStart(24, '1')}`,
      apiId,
      enabled: 1,
      name,
      meta: JSON.stringify(meta),
      credits,
      limits: JSON.stringify([{ id: `rl_${String(index).padStart(16, '1')}`, ...limit }]),
    });
  }
  await filling.exec();
  const server = await startTarget(file, { REDIS_SOCKET: redis.socket });
  return checked({ ...server, redis, path: verifyPath, rootKey, bodies: keys.map(bodyOf) }, { charges: true });
}

/**
 * Adds a check that the target verifies the typical key. With `charges` it must also charge the key, and refuse unknown
 * keys.
 */
function checked(target, { charges = false, limit: expected = limit } = {}) {
  return {
    ...target,
    async check() {
      const first = await post(target, target.bodies[0]);
      const { data } = first;
      equal(first.status, 200);
      equal(data.code, 'VALID');
      equal(data.valid, true);
      ok(data.keyId.startsWith('key_'));
      deepEqual([data.enabled, data.name, data.meta], [true, name, meta]);
      const [window] = data.ratelimits;
      deepEqual([window.name, window.limit, window.duration], [expected.name, expected.limit, expected.duration]);
      ok(window.id.startsWith('rl_') && window.autoApply && !window.exceeded && window.reset > 0);
      if (!charges) return;

      const { data: second } = await post(target, target.bodies[0]);
      equal(second.credits, data.credits === undefined ? undefined : data.credits - 1);
      ok(second.ratelimits[0].remaining < window.remaining || second.ratelimits[0].reset > window.reset);
      equal((await post({ ...target, rootKey: `${target.rootKey}x` }, target.bodies[0])).status, 401);
      equal((await post(target, bodyOf('unknown'))).data.code, 'NOT_FOUND');
    },
  };
}
