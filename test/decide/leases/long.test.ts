// Long terms: for what charges nothing, and for units of limits and balances with much room.

import { describe, expect, test, vi } from 'vitest';
import { digestTextOf } from '../../../src/domain/keyString.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { hourMs, type InputOf } from '../../support/harness.ts';
import { redisOfFile } from '../../support/ofFile.ts';
import { testRedisUrl } from '../../support/redisUrl.ts';
import { heldServers, newName } from './heldServers.ts';
import { openServer, presentedOf } from './lateServer.ts';
import { redisProxy } from './proxy.ts';

const leaseMs = 100;
const leaseLongMs = 1000;
const proxy = redisProxy();
// The holder is behind the proxy.
const url = (number: number) => (number === 1 ? proxy.url() : testRedisUrl());
const held = heldServers(2, { leaseMs, leaseLongMs }, { url });
const [changer, holder] = held.servers as [typeof held.first, typeof held.first];
/** It asks for leases as servers do. */
const usual = heldServers(1, { leaseMs, leaseLongMs, leaseAfter: 12 });

const redis = await redisOfFile();

/** The slices are longer than a long term. */
const perDay = (limit: number) => ({ name: 'requests', limit, duration: 24 * hourMs, autoApply: true });
const codeOf = async (server: typeof holder, input: InputOf<'keys.verifyKey'>) =>
  (await server.ok('keys.verifyKey', input)).code;

type Fields = Parameters<typeof held.createKey>[0];
async function verifications(fields: Fields, more: Partial<InputOf<'keys.verifyKey'>> = {}) {
  const { key } = await held.createKey(fields);
  return async () => (await codeOf(holder, { key, ...more })) === 'VALID';
}
function checks(limit: number, cost = 1) {
  const check = { namespace: 'long', identifier: newName(), limit, duration: 24 * hourMs, cost };
  return async () => (await holder.ok('ratelimits.limit', check)).success;
}

/** Whether the holder decides by a lease, this long after it was granted. */
async function isLocalAfter(ms: number, request: () => Promise<unknown>) {
  held.clock.advance(ms);
  const before = holder.counts.decided;
  await request();
  return holder.counts.decided > before;
}

describe('a lease lasts for the long term', () => {
  test.each<[string, () => Promise<() => Promise<boolean>>]>([
    ['of a key without limits', () => verifications({})],
    ['of a limit with much room', () => verifications({ ratelimits: [perDay(1000)] })],
    ['of a balance with much room', () => verifications({ credits: { remaining: 1000 } })],
    ['of an identifier with much room', async () => checks(1000)],
  ])('%s', async (_what, make) => {
    const request = await make();
    await held.untilGranted(holder, request);
    expect(await isLocalAfter(700, request)).toBe(true);
    expect(await isLocalAfter(300, request)).toBe(false);
  });
});

describe('a lease lasts for LEASE_MS', () => {
  test.each<[string, () => Promise<() => Promise<boolean>>]>([
    [
      'of a limit with less room',
      () => verifications({ ratelimits: [perDay(200)] }, { ratelimits: [{ name: 'requests', cost: 20 }] }),
    ],
    ['of a balance with less room', () => verifications({ credits: { remaining: 600 } }, { credits: { cost: 20 } })],
    ['of an identifier with less room', async () => checks(600, 20)],
  ])('%s', async (_what, make) => {
    const request = await make();
    // Two requests are hot in a second that begins with them.
    held.clock.advance(2000);
    await held.untilGranted(holder, request);
    expect(await isLocalAfter(50, request)).toBe(true);
    // More than what was measured as a round trip.
    expect(await isLocalAfter(600, request)).toBe(false);
  });

  test('of a refusal for want of units, which may come back', async () => {
    const { key } = await held.createKey({ ratelimits: [perDay(1)] });
    const verify = () => codeOf(holder, { key });
    held.clock.advance(2000);
    await verify();
    for (let times = 0; times < 3; times++) expect(await verify()).toBe('RATE_LIMITED');
    expect(await isLocalAfter(50, verify)).toBe(true);
    expect(await isLocalAfter(600, verify)).toBe(false);
  });
});

describe('a request of ten in a second', () => {
  const [server] = usual.servers as [typeof usual.first];
  async function sendTen(fields: Fields) {
    const { key } = await usual.createKey(fields);
    // Each begins with a second of its own.
    usual.clock.advance(2000);
    const before = server.counts.granted.length;
    // Perhaps the second began with the ninth of them.
    for (let times = 1; times <= 20 && server.counts.granted.length === before; times++) {
      if (times > 1) usual.clock.advance(95);
      expect(await codeOf(server, { key })).toBe('VALID');
    }
    return server.counts.granted.slice(before);
  }

  test('gets a lease for the long term', async () => {
    expect(await sendTen({})).toEqual([0]);
    expect(await sendTen({ ratelimits: [perDay(1000)] })).toEqual([20]);
  });

  test('and none for LEASE_MS, which would end before it is used', async () => {
    expect(await sendTen({ ratelimits: [perDay(90)] })).toEqual([]);
  });
});

test('while long terms are not longer, or servers of earlier releases may run, no lease is long', async () => {
  const server = await openServer(redis, leaseMs);
  const { leases } = server.decider.leasing;
  const granted = vi.spyOn(leases, 'granted');
  const presented = presentedOf(held);
  for (const fields of [{}, { ratelimits: [perDay(1000)] }, { credits: { remaining: 1000 } }]) {
    const { key } = await held.createKey(fields);
    const before = server.granted.length;
    const verify = async () => {
      await server.decider.verifications.prepare(presented, { digest: digestTextOf(key), cost: 1 }).decide();
      expect(server.granted.length).toBeGreaterThan(before);
    };
    await vi.waitFor(verify, { timeout: 10_000, interval: 1 });
  }
  const grants = granted.mock.calls.map(([, grant]) => grant).filter(({ term }) => term > 0);
  expect(grants.length).toBeGreaterThanOrEqual(3);
  expect(grants.filter(({ isLong }) => isLong)).toEqual([]);
  await server.decider.leasing.close();
});

test('a change waits for the long term of a server that has such leases and does not answer', async () => {
  const { workspaceId, rootKey } = await held.createWorkspace();
  const call: typeof changer.call = (name, input) => changer.call(name, input, rootKey);
  const { apiId } = (await call('apis.createApi', { name: 'long' })).data;
  const { key, keyId } = (await call('keys.createKey', { apiId })).data;
  const verify = async () => (await holder.call('keys.verifyKey', { key }, rootKey)).data.code;
  await held.untilGranted(holder, async () => (await verify()) === 'VALID');
  const entries = await redis.hgetallBuffer(`${workspaceKey(workspaceId)}:leases`);
  for (const entry of Object.values(entries)) expect(entry.readUInt16BE(0)).toBeGreaterThanOrEqual(leaseLongMs);
  proxy.losesMessages = true;
  const startedAt = performance.now();
  expect((await call('keys.updateKey', { keyId, enabled: false })).status).toBe(200);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1.01 * leaseLongMs - 1);
  proxy.losesMessages = false;
});

test('after a connect a change waits for the long term, too', async () => {
  const { keyId } = await held.createKey();
  const startedAt = performance.now();
  changer.leasing.reconnected();
  await changer.ok('keys.updateKey', { keyId, name: 'changed' });
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1.01 * (leaseLongMs + 400) - 1);
});
