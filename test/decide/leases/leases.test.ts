// Leases as callers see them: four servers on one Redis, with real terms and the real clock.

import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { harness, type InputOf } from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';
import { redisOfFile } from '../../support/ofFile.ts';

const leaseMs = 100;
const counts = { decided: 0, granted: 0, units: 0, returned: 0 };
const observe = observing({
  decided: () => void counts.decided++,
  granted(units: number) {
    counts.granted++;
    counts.units += units;
  },
  returned(units: number) {
    counts.returned += units;
  },
});
afterEach(() => void Object.assign(counts, { decided: 0, granted: 0, units: 0, returned: 0 }));

const settings = {
  leaseMs,
  leaseCredits: true,
  leaseAfter: 2,
  nowMs: () => undefined,
  leaseNowMs: () => performance.now(),
  observe,
};
const servers = [1, 2, 3, 4].map(() => harness(undefined, settings));
const [first] = servers as [(typeof servers)[number]];
const redis = await redisOfFile();
type Server = typeof first;

const verify = async (server: Server, input: InputOf<'keys.verifyKey'>) => {
  const { status, data, error } = await server.call('keys.verifyKey', input, first.rootKey);
  if (status !== 200) throw new Error(`${status} ${error.detail}`);
  return data;
};
const newKey = async (fields: Omit<InputOf<'keys.createKey'>, 'apiId'> = {}) =>
  first.ok('keys.createKey', { apiId, ...fields });
const perMinute = (limit: number) => ({ name: 'requests', limit, duration: 60_000, autoApply: true });

let apiId: string;
beforeAll(async () => {
  ({ apiId } = await first.ok('apis.createApi', { name: 'leases' }));
  // A server asks for leases from a term after it connected on, once it hears of recalls.
  const { key } = await newKey();
  const endsAt = performance.now() + 5000;
  while (counts.granted < servers.length) {
    if (performance.now() > endsAt) throw new Error('No leases are granted.');
    for (const server of servers) await verify(server, { key });
    await delay(5);
  }
});

/**
 * Verifies on all servers at once, each with this many callers, until each caller has `times` answers: their codes, in
 * order.
 */
async function hammer(input: InputOf<'keys.verifyKey'>, callers: number, times: number): Promise<string[]> {
  const codes: string[] = [];
  let isRefused = false;
  const caller = async (server: Server) => {
    for (let count = 0; count < times; count++) {
      const isLate = isRefused;
      const { code, valid } = await verify(server, input);
      codes.push(code);
      // Otherwise the refusal was wrong: a server had units left.
      if (isLate) expect(valid).toBe(false);
      isRefused ||= !valid;
    }
  };
  await Promise.all(servers.flatMap((server) => Array.from({ length: callers }, () => caller(server))));
  return codes;
}

const countOf = (codes: readonly string[], code: string) => codes.filter((each) => each === code).length;
const recallAll = () => Promise.all(servers.map(({ store }) => store.decide.leasing.leases.recall()));

/** The counts of a key by outcome, once everything is settled. */
async function usageOf(keyId: string) {
  await recallAll();
  const rows = await first.ok('analytics.getVerifications', {
    keyId,
    groupBy: ['outcome'],
    start: Date.now() - 86_400_000,
    end: Date.now() + 3_600_000,
  } as never);
  return new Map((rows as { outcome: string; count: number; spentCredits: number }[]).map((row) => [row.outcome, row]));
}

describe('after the clock stepped back', () => {
  // With a clock of its own, which the test sets.
  const { nowMs: _redisClock, ...own } = settings;
  const server = harness(undefined, { ...own, leaseMs: 2000 });
  const { call, clock, createKey } = server;
  const verifyOnce = async (key: string) =>
    expect((await call('keys.verifyKey', { key })).data).toMatchObject({ code: 'VALID' });

  beforeAll(async () => {
    const { key } = await createKey();
    const [before, endsAt] = [counts.granted, performance.now() + 5000];
    while (counts.granted === before) {
      expect(performance.now()).toBeLessThan(endsAt);
      await verifyOnce(key);
      await delay(5);
    }
  });

  test('a lease gives back the units that it did not use', async () => {
    const { key, keyId } = await createKey({ ratelimits: [perMinute(100)] });
    const used = async () => {
      const { data } = await call('keys.explainKey', { keyId });
      return data.rules.find(({ rule }) => rule === 'ratelimits')!.ratelimits![0]!.used;
    };
    await verifyOnce(key);
    clock.advance(-3_600_000);
    for (let times = 0; times < 4; times++) await verifyOnce(key);
    expect(counts.units).toBeGreaterThan(0);
    expect(await used()).toBeGreaterThan(5);
    await server.store.decide.leasing.leases.recall();
    expect(await used()).toBe(5);
  });
});

describe('restrictions by address', () => {
  const allowedIps = ['203.0.113.0/24'];
  const [inside, outside] = ['203.0.113.7', '198.51.100.7'];

  test('a restricted key is never decided by a lease', async () => {
    const { key, keyId } = await newKey({ allowedIps });
    for (let times = 0; times < 20; times++) {
      for (const server of servers) {
        expect((await verify(server, { key, ip: inside })).code).toBe('VALID');
        expect((await verify(server, { key, ip: outside })).code).toBe('FORBIDDEN');
        expect((await verify(server, { key })).code).toBe('FORBIDDEN');
      }
    }
    expect(counts).toEqual({ decided: 0, granted: 0, units: 0, returned: 0 });
    const usage = await usageOf(keyId);
    expect([usage.get('VALID')?.count, usage.get('FORBIDDEN')?.count]).toEqual([80, 160]);
  });

  test('a lease of any other key is for all addresses, until the key is restricted', async () => {
    const { key, keyId } = await newKey({ ratelimits: [perMinute(10_000)] });
    const verifyFrom = async (ip: string) => {
      const codes = await Promise.all(servers.map((server) => verify(server, { key, ip }).then(({ code }) => code)));
      return [...new Set(codes)];
    };
    for (let last = 1; last <= 100; last++) expect(await verifyFrom(`198.51.100.${last}`)).toEqual(['VALID']);
    expect(counts.decided).toBeGreaterThan(100);
    await first.ok('keys.updateKey', { keyId, allowedIps });
    Object.assign(counts, { decided: 0 });
    expect(await verifyFrom(outside)).toEqual(['FORBIDDEN']);
    expect(await verifyFrom(inside)).toEqual(['VALID']);
    await first.ok('keys.updateKey', { keyId, allowedIps: [outside] });
    expect(await verifyFrom(outside)).toEqual(['VALID']);
    expect(await verifyFrom(inside)).toEqual(['FORBIDDEN']);
    expect(counts.decided).toBe(0);
    await first.ok('keys.updateKey', { keyId, allowedIps: null });
    // Requests for leases that the changes refused may be repeated after 512 decisions only.
    let rounds = 0;
    while (counts.decided <= 50 && rounds < 1000)
      expect(await verifyFrom(`198.51.100.${++rounds % 256}`)).toEqual(['VALID']);
    expect(counts.decided).toBeGreaterThan(50);
    const usage = await usageOf(keyId);
    expect([usage.get('VALID')?.count, usage.get('FORBIDDEN')?.count]).toEqual([400 + 8 + rounds * 4, 8]);
  });
});

describe('a key without limits', () => {
  test('is decided locally, with the answer of Redis, and counted', async () => {
    const { key, keyId } = await newKey({ name: 'local', meta: { a: 1 } });
    const answer = await verify(first, { key });
    for (let times = 0; times < 9; times++) expect(await verify(first, { key })).toEqual(answer);
    expect(counts.decided).toBeGreaterThanOrEqual(7);
    expect((await usageOf(keyId)).get('VALID')).toMatchObject({ count: 10 });
  });

  test.each([
    ['NOT_FOUND', () => ({ key: 'no_such_key' })],
    ['DISABLED', async () => ({ key: (await newKey({ enabled: false })).key })],
    ['INSUFFICIENT_PERMISSIONS', async () => ({ key: (await newKey()).key, permissions: 'a.b' })],
    ['EXPIRED', async () => ({ key: (await newKey({ expires: Date.now() + 500 })).key })],
    ['RATE_LIMITED', async () => ({ key: (await newKey({ ratelimits: [perMinute(1)] })).key })],
    ['USAGE_EXCEEDED', async () => ({ key: (await newKey({ credits: { remaining: 1 } })).key })],
  ])('a refusal needs no units: %s', async (code, make) => {
    const input = await make();
    if (code === 'EXPIRED') await expect.poll(async () => (await verify(first, input)).code).toBe(code);
    for (let times = 0; times < 4; times++) await verify(first, input);
    const before = counts.decided;
    for (let times = 0; times < 20; times++) expect(await verify(first, input)).toMatchObject({ valid: false, code });
    // On a busy machine some leases end in between.
    expect(counts.decided - before).toBeGreaterThanOrEqual(10);
  });
});

describe('never over, and never wrongly refused', () => {
  test.each([300, 2000])('four servers admit a limit of %i exactly', async (limit) => {
    const { key, keyId } = await newKey({ ratelimits: [perMinute(limit)] });
    const codes = await hammer({ key }, 8, Math.ceil((limit * 2) / 32));
    expect(countOf(codes, 'VALID')).toBe(limit);
    expect(countOf(codes, 'RATE_LIMITED')).toBe(codes.length - limit);
    expect(counts.decided).toBeGreaterThan(0);
    const usage = await usageOf(keyId);
    expect(usage.get('VALID')).toMatchObject({ count: limit });
    expect(usage.get('RATE_LIMITED')).toMatchObject({ count: codes.length - limit });
  });

  test('credits are spent exactly', async () => {
    const { key, keyId } = await newKey({ credits: { remaining: 6000 } });
    const codes = await hammer({ key, credits: { cost: 2 } }, 8, 120);
    expect(countOf(codes, 'VALID')).toBe(3000);
    expect(countOf(codes, 'USAGE_EXCEEDED')).toBe(codes.length - 3000);
    expect(counts.units).toBeGreaterThan(0);
    const usage = await usageOf(keyId);
    expect(usage.get('VALID')).toMatchObject({ count: 3000, spentCredits: 6000 });
    expect(usage.get('USAGE_EXCEEDED')).toMatchObject({ count: codes.length - 3000, spentCredits: 0 });
  });

  test('a limit of an identity that keys share', async () => {
    await first.ok('identities.createIdentity', { externalId: 'shared', ratelimits: [perMinute(1000)] });
    const keys = [await newKey({ externalId: 'shared' }), await newKey({ externalId: 'shared' })];
    const codes = (await Promise.all(keys.map(({ key }) => hammer({ key }, 4, 50)))).flat();
    expect(countOf(codes, 'VALID')).toBe(1000);
    expect(counts.units).toBeGreaterThan(0);
  });

  test('what is left and used adds up, whatever happens in between', async () => {
    const { key, keyId } = await newKey({ credits: { remaining: 100_000 }, ratelimits: [perMinute(50_000)] });
    const hammered = hammer({ key }, 4, 400);
    for (let change = 0; change < 10; change++) {
      await delay(20);
      await first.ok('keys.updateKey', { keyId, name: `name ${change}` });
      await first.ok('keys.updateCredits', { keyId, operation: 'increment', value: 10 });
    }
    const used = countOf(await hammered, 'VALID');
    await recallAll();
    expect(used).toBe(4 * 4 * 400);
    expect((await first.ok('keys.getKey', { keyId })).credits).toMatchObject({ remaining: 100_100 - used });
    const { ratelimits } = await verify(first, { key, ratelimits: [{ name: 'requests', cost: 0 }] } as never);
    expect(ratelimits).toMatchObject([{ remaining: 50_000 - used }]);
  });
});

describe('current', () => {
  const changes: [string, (key: { keyId: string }) => Promise<unknown>, string][] = [
    ['disabled', ({ keyId }) => first.ok('keys.updateKey', { keyId, enabled: false }), 'DISABLED'],
    ['deleted', ({ keyId }) => first.ok('keys.deleteKey', { keyId }), 'NOT_FOUND'],
  ];
  test.each(changes)('a key that was %s is refused by every server from then on', async (_change, change, code) => {
    for (let round = 0; round < 10; round++) {
      const created = await newKey({ ratelimits: [perMinute(1_000_000)] });
      const late: string[] = [];
      let isChanged = false;
      let isDone = false;
      const caller = async (server: Server) => {
        while (!isDone) {
          // Local decisions alone would leave no time to others.
          await turn();
          const isLate = isChanged;
          const answer = await verify(server, { key: created.key });
          if (isLate) late.push(answer.code);
        }
      };
      const callers = servers.flatMap((server) => Array.from({ length: 4 }, () => caller(server)));
      await delay(40);
      await change(created);
      isChanged = true;
      await delay(15);
      while (late.length === 0) await delay(1);
      isDone = true;
      await Promise.all(callers);
      expect(new Set(late)).toEqual(new Set([code]));
    }
    expect(counts.decided).toBeGreaterThan(0);
  });

  test('a key is found as soon as it was created', async () => {
    const key = `migrated_${Math.random()}`;
    for (const server of servers) {
      for (let times = 0; times < 5; times++) expect((await verify(server, { key })).code).toBe('NOT_FOUND');
    }
    const hash = digestOf(key).toString('base64');
    await first.ok('keys.migrateKeys', { migrationId: 'leased', apiId, keys: [{ hash }] });
    for (const server of servers) expect((await verify(server, { key })).code).toBe('VALID');
  });

  test('a root key that lost its grant decides nothing more', async () => {
    const { key } = await newKey();
    const created = await first.ok('rootKeys.createRootKey', { permissions: ['api.*.verify_key'] });
    const by = (server: Server) => server.call('keys.verifyKey', { key }, created.key);
    for (let times = 0; times < 5; times++) for (const server of servers) expect((await by(server)).status).toBe(200);
    await first.ok('rootKeys.deleteRootKey', { rootKeyId: created.rootKeyId });
    for (const server of servers) expect((await by(server)).status).toBe(401);
  });
});

test('notes of leases that cannot be read fail no decision', async () => {
  const { key, keyId } = await newKey({ credits: { remaining: 1000 } });
  const record = Buffer.concat([Buffer.from(`${workspaceKey(first.workspaceId)}:k:`), digestOf(key)]);
  await redis.hset(record, 'leased', 'x');
  for (let times = 1; times <= 20; times++) {
    expect(await verify(first, { key })).toMatchObject({ code: 'VALID', credits: 1000 - times });
  }
  expect(counts.decided).toBe(0);
  expect((await first.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 980 });
  await redis.hdel(record, 'leased');
});

test('a registry that cannot be read fails no decision, nor others of its batch', async () => {
  const { workspaceId, rootKey } = await first.createWorkspace();
  const call = first.call;
  const { apiId } = (await call('apis.createApi', { name: 'registry' }, rootKey)).data;
  const keys = await Promise.all(
    [1, 2, 3, 4].map(
      async () => (await call('keys.createKey', { apiId, credits: { remaining: 100 } }, rootKey)).data.key,
    ),
  );
  const verifyAll = () => Promise.all(keys.map((key) => call('keys.verifyKey', { key }, rootKey)));
  // Leases are granted before, so that the library knows of a registry.
  for (let times = 1; times <= 3; times++) await verifyAll();
  await recallAll();
  await redis.set(`${workspaceKey(workspaceId)}:leases`, 'x');
  for (let times = 4; times <= 20; times++) {
    for (const { status, data } of await verifyAll())
      expect([status, data.code, data.credits]).toEqual([200, 'VALID', 100 - times]);
  }
  await redis.del(`${workspaceKey(workspaceId)}:leases`);
});

test('a session that is idle leaves the registry', async () => {
  const registry = `${workspaceKey(first.workspaceId)}:leases`;
  const { key } = await newKey();
  // A lease registers a session; `longest` is none.
  await vi.waitFor(
    async () => {
      await verify(first, { key });
      expect(await redis.hlen(registry)).toBeGreaterThan(1);
    },
    { timeout: 5000, interval: 1 },
  );
  await vi.waitFor(async () => expect(await redis.hkeys(registry)).toEqual(['longest']), { timeout: 20_000 });
});

test('what servers of earlier commits noted of their leases changes nothing', async () => {
  const limit = { ...perMinute(1000), duration: 3_600_000 };
  const externalId = 'leased-before';
  await first.ok('identities.createIdentity', { externalId, ratelimits: [{ ...limit, name: 'shared' }] });
  const { key, keyId } = await newKey({ credits: { remaining: 1000 }, ratelimits: [limit], externalId });
  const workspace = workspaceKey(first.workspaceId);
  const record = Buffer.concat([Buffer.from(`${workspace}:k:`), digestOf(key)]);
  // The session, number 1, a time, 10 units, a refill, and a fingerprint of the limits.
  const entry = Buffer.concat([
    Buffer.from('0123456789abcdef'),
    Buffer.alloc(5),
    Buffer.from([1]),
    Buffer.alloc(23, 1),
  ]);
  for (const owner of [record, `${workspace}:i:${externalId}`]) await redis.hset(owner, 'leases', entry);
  for (let times = 1; times <= 40; times++) {
    const { code } = await verify(servers[times % 2]!, { key, ratelimits: [{ name: 'shared', cost: 1 }] });
    expect(code).toBe('VALID');
  }
  await Promise.all(servers.map(({ store }) => store.decide.leasing.leases.recall()));
  expect((await first.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 960 });
  await first.ok('keys.deleteKey', { keyId });
  await first.ok('keys.restoreKey', { keyId });
  expect(await verify(first, { key })).toMatchObject({ code: 'VALID', credits: 959 });
  await redis.hdel(record, 'leases');
  await redis.hdel(`${workspace}:i:${externalId}`, 'leases');
});
