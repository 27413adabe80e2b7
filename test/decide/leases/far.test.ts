// Servers at different distances to Redis: terms grow by the round trip, a change waits for each server only as long as
// for its own term, and a lease is renewed while it still decides.

import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { Decide } from '../../../src/decide/decide.ts';
import { digestTextOf } from '../../../src/domain/keyString.ts';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { recallChannel, workspaceKey } from '../../../src/redis/names.ts';
import { leaseSession, longestTerm } from '../../../src/scripts/layout.ts';
import { harness, hourMs } from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';
import { redisOfFile } from '../../support/ofFile.ts';
import { testRedisUrl } from '../../support/redisUrl.ts';
import { thoroughTest } from '../../support/testIf.ts';
import { heldServers } from './heldServers.ts';
import { openServer, presentedOf } from './lateServer.ts';
import { redisProxy } from './proxy.ts';

const leaseMs = 100;
const awayMs = 80;
const proxy = redisProxy();
proxy.delayMs = awayMs;
const held = heldServers(2, { leaseMs }, { url: (number) => (number === 1 ? proxy.url() : testRedisUrl()) });
const [near, far] = held.servers as [typeof held.first, typeof held.first];

/** A server whose way changes, by the real time. */
const jumpy = redisProxy();
const realTime = { nowMs: () => undefined, leaseNowMs: () => performance.now(), leaseMs, leaseAfter: 2 };
let jumpyDecided = 0;
const observe = observing({ decided: () => void jumpyDecided++ });
const changer = harness(testRedisUrl, realTime);
const jumping = harness(() => jumpy.url(), { ...realTime, observe });

const redis = await redisOfFile();
let farRedis: RedisClient;
beforeAll(async () => {
  farRedis = await connect(proxy.url(), { commandTimeoutMs: 5000 });
  // The distance is known after a few calls.
  for (let times = 0; times < 3; times++) {
    const { key } = await held.createKey();
    await held.untilGranted(far, async () => (await far.ok('keys.verifyKey', { key })).valid);
  }
});
// The answer to QUIT would arrive after the end of its connection.
afterAll(() => farRedis.disconnect());

/** A workspace with a key, and how it is verified. */
async function newTenant() {
  const { workspaceId, rootKey } = await held.createWorkspace();
  const call: typeof near.call = (name, input) => near.call(name, input, rootKey);
  const { apiId } = (await call('apis.createApi', { name: 'far' })).data;
  const { key, keyId } = (await call('keys.createKey', { apiId })).data;
  const verify = async (server: typeof near) =>
    (await server.call('keys.verifyKey', { key }, rootKey)).data.code === 'VALID';
  const rename = () => call('keys.updateKey', { keyId, name: `${performance.now()}` });
  return { workspaceId, rootKey, key, verify, rename, registry: `${workspaceKey(workspaceId)}:leases` };
}

/** The terms in a registry by session, the longest first, and the number of the last lease of each. */
async function registered(registry: string) {
  const entries = Object.entries(await redis.hgetallBuffer(registry)).filter(([session]) => session !== longestTerm);
  const terms = entries.map(([session, entry]) => {
    return { session, term: entry.readUInt16BE(0), granted: entry.readUIntBE(2, 6) };
  });
  return terms.sort((one, other) => other.term - one.term);
}

/** REGISTERED. */
function entryOf(term: number): Buffer {
  const entry = Buffer.alloc(14);
  entry.writeUInt16BE(term);
  entry.writeUIntBE(1, 2, 6);
  return entry;
}

test('a term is longer by the round trip, and a change waits for this server as long', async () => {
  const { registry, verify, rename } = await newTenant();
  for (const server of [near, far]) await held.untilGranted(server, () => verify(server));
  const [longer, shorter] = await registered(registry);
  expect(longer!.term).toBeGreaterThanOrEqual(leaseMs + awayMs);
  expect(shorter!.term).toBeLessThan(leaseMs + awayMs);
  proxy.losesMessages = true;
  const startedAt = performance.now();
  expect((await rename()).status).toBe(200);
  // A timer may be a millisecond early.
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1.01 * longer!.term - 1);
  proxy.losesMessages = false;
});

test('the longest term stays registered when the way gets shorter', async () => {
  const { registry, verify } = await newTenant();
  await held.untilGranted(far, () => verify(far));
  const [before] = await registered(registry);
  const others = await newTenant();
  proxy.delayMs = 0;
  await held.untilGranted(far, () => others.verify(far));
  held.clock.advance(leaseMs + 2 * awayMs);
  await held.untilGranted(far, () => others.verify(far));
  held.clock.advance(leaseMs + 2 * awayMs);
  await held.untilGranted(far, () => verify(far));
  proxy.delayMs = awayMs;
  const [after] = await registered(registry);
  expect(after!.granted).toBeGreaterThan(before!.granted);
  expect(after!.term).toBe(before!.term);
  const [shorter] = await registered(others.registry);
  expect(shorter!.term).toBeLessThan(before!.term + leaseMs);
});

test('a change waits no longer for a server that does not answer because another one has a longer term', async () => {
  const { registry, rename } = await newTenant();
  const [silent, answering] = ['0123456789abcdef', 'fedcba9876543210'];
  await redis.hset(registry, { [silent]: entryOf(100), [answering]: entryOf(20_000) });
  const subscriber = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  await subscriber.subscribe(recallChannel);
  subscriber.on('message', (_channel, text) => {
    const { id, to, sessions } = JSON.parse(text);
    if (sessions.includes(answering)) void redis.publish(to, JSON.stringify({ id, session: answering }));
  });
  const startedAt = performance.now();
  expect((await rename()).status).toBe(200);
  const tookMs = performance.now() - startedAt;
  expect(tookMs).toBeGreaterThanOrEqual(1.01 * 100 - 1);
  expect(tookMs).toBeLessThan(15_000);
  await subscriber.quit();
  const [, inactive] = await registered(registry);
  expect(inactive).toMatchObject({ session: silent, term: 0 });
});

/** Verifies a key by a server of its own until it has a lease. */
async function lease(server: { decider: Decide; granted: number[] }, { workspaceId, rootKey, key }: Tenant) {
  const presented = presentedOf({ workspaceId, rootKey });
  const send = async () => {
    await server.decider.verifications.prepare(presented, { digest: digestTextOf(key), cost: 1 }).decide();
    expect(server.granted.length).toBeGreaterThan(0);
  };
  await vi.waitFor(send, { timeout: 10_000, interval: 1 });
}
type Tenant = Awaited<ReturnType<typeof newTenant>>;

test('what a server claims is bounded', async () => {
  const tenant = await newTenant();
  const server = await openServer(redis, leaseMs);
  const { leasing } = server.decider;
  const packed = Buffer.from(leasing.sessionOf({ leaves: 0 }));
  packed.writeUInt16BE(60_000, leaseSession.at.added);
  leasing.sessionOf = () => packed;
  await lease(server, tenant);
  const [entry] = await registered(tenant.registry);
  expect(entry!.term).toBe(leaseMs + 400);
  await leasing.close();
});

test('while servers of earlier releases may run, terms are LEASE_MS, however far away Redis is', async () => {
  const server = await openServer(farRedis, leaseMs);
  for (let times = 0; times < 4; times++) {
    const tenant = await newTenant();
    server.granted.length = 0;
    await lease(server, tenant);
    const [entry] = await registered(tenant.registry);
    expect(entry!.term).toBe(leaseMs);
  }
  await server.decider.leasing.close();
});

test('after a connect a change waits for the longest term that any server may have', async () => {
  const { rename } = await newTenant();
  const startedAt = performance.now();
  near.leasing.reconnected();
  expect((await rename()).status).toBe(200);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1.01 * (leaseMs + 400) - 1);
});

test('a lease decides while it is renewed, until it is recalled; each unit is used or given back, once', async () => {
  const limit = { name: 'requests', limit: 100_000, duration: 64 * hourMs, autoApply: true };
  const { key, keyId } = await held.createKey({ ratelimits: [limit] });
  let valid = 0;
  const verify = async () => {
    const { code } = await far.ok('keys.verifyKey', { key });
    if (code === 'VALID') valid++;
    return code === 'VALID';
  };
  await held.untilGranted(far, verify);
  const before = far.counts.decided;
  // Until what is left of the term is the way to Redis and back.
  held.clock.advance(leaseMs - 10);
  for (let times = 1; times <= 2; times++) await verify();
  expect(far.counts.decided).toBe(before + 2);
  proxy.delays = true;
  const renewal = verify();
  await verify();
  expect(far.counts.decided).toBe(before + 3);
  const changed = near.ok('keys.updateKey', { keyId, name: 'changed' });
  await vi.waitUntil(async () => (await near.ok('keys.getKey', { keyId })).name === 'changed', { interval: 1 });
  // The recall arrives before the renewal is sent.
  await delay(2 * awayMs);
  const later = verify();
  proxy.release();
  await Promise.all([renewal, changed, later]);
  expect(far.counts.decided).toBe(before + 3);
  await held.recallAll();
  const { data } = await near.call('keys.explainKey', { keyId });
  expect(data.rules.find(({ rule }) => rule === 'ratelimits')!.ratelimits![0]!.used).toBe(valid);
});

/** Milliseconds of a request and of its answer, and whether recalls are heard. */
const ways = [
  [0, 0, true],
  [0, 400, true],
  [400, 0, false],
  [40, 40, true],
  [0, 0, false],
  [0, 150, false],
  [10, 300, true],
  [1, 1, false],
] as const;

thoroughTest('whatever the way does, nobody decides by what was before an answered change', async () => {
  const { key, keyId } = await changer.createKey();
  /** What each change made of the key, by when it was answered and when the next one began. */
  const states = [{ code: 'VALID', from: performance.now(), until: Number.POSITIVE_INFINITY }];
  const shots: { code: string; sentAt: number; answeredAt: number }[] = [];
  let isOver = false;
  const verify = async () => {
    const sentAt = performance.now();
    const { data } = await jumping.call('keys.verifyKey', { key }, changer.rootKey);
    shots.push({ code: data.code, sentAt, answeredAt: performance.now() });
  };
  const callers = Array.from({ length: 8 }, async () => {
    while (!isOver) {
      await verify();
      await delay(1);
    }
  });
  for (let turn = 0; turn < 2 * ways.length; turn++) {
    const [requestMs, answerMs, isHeard] = ways[(3 * turn) % ways.length]!;
    Object.assign(jumpy, { delayRequestsMs: requestMs, delayMs: answerMs, losesMessages: !isHeard });
    for (const enabled of [false, true]) {
      await delay(150 + ((turn * 37) % 120));
      states.at(-1)!.until = performance.now();
      expect((await changer.call('keys.updateKey', { keyId, enabled })).status).toBe(200);
      const from = performance.now();
      states.push({ code: enabled ? 'VALID' : 'DISABLED', from, until: Number.POSITIVE_INFINITY });
    }
  }
  isOver = true;
  await Promise.all(callers);
  expect(jumpyDecided).toBeGreaterThan(shots.length / 10);
  const wrong = shots.filter(({ code, sentAt, answeredAt }) =>
    states.some((state) => sentAt >= state.from && answeredAt <= state.until && code !== state.code),
  );
  expect(wrong).toEqual([]);
});
