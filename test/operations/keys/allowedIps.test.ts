// Keys that only some addresses may use: which addresses are admitted, and that each FORBIDDEN verification is counted
// once, in its hour, whatever happens to the key meanwhile.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { keyLive, usage } from '../../../src/scripts/layout.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { volumeTest } from '../../support/testIf.ts';

const h = harness();
const { call, ok, clock, createKey } = h;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

const allowedIps = ['203.0.113.0/24', '2001:db8::/29'];
const [inside, outside] = ['203.0.113.7', '198.51.100.7'];
const codeOf = async (key: string, ip?: string, more: object = {}) =>
  (await ok('keys.verifyKey', { key, ...(ip !== undefined && { ip }), ...more })).code;

/** The counts of a key by outcome. */
async function countsOf(query: Partial<InputOf<'analytics.getVerifications'>>) {
  const rows = await ok('analytics.getVerifications', {
    start: clock.now - 30 * dayMs,
    end: clock.now + hourMs,
    granularity: 'total',
    groupBy: ['outcome'],
    ...query,
  } as InputOf<'analytics.getVerifications'>);
  return Object.fromEntries(rows.map(({ outcome, count }) => [outcome, count]));
}

const stateOf = (key: string) =>
  redis.hgetBuffer(Buffer.concat([Buffer.from(`${workspaceKey(h.workspaceId)}:k:`), digestOf(key)]), 'state');

/** The FORBIDDEN verifications of the hour in the state: the field before `holdsDue`, KEY_LIVE and USAGE. */
const forbiddenIn = async (key: string) => {
  const state = (await stateOf(key))!;
  return state.readUInt32BE(state.length - keyLive.bytes - usage.bytes - 12);
};

describe('addresses', () => {
  test.each([
    [allowedIps, inside, 'VALID'],
    [allowedIps, '203.0.113.255', 'VALID'],
    [allowedIps, '203.0.114.0', 'FORBIDDEN'],
    [allowedIps, outside, 'FORBIDDEN'],
    [allowedIps, undefined, 'FORBIDDEN'],
    [allowedIps, '::ffff:203.0.113.7', 'VALID'],
    [allowedIps, '::FFFF:CB00:7107', 'VALID'],
    [allowedIps, '2001:0DB8:0000::1', 'VALID'],
    [allowedIps, '2001:dbf:ffff:ffff:ffff:ffff:ffff:ffff', 'VALID'],
    [allowedIps, '2001:dc0::', 'FORBIDDEN'],
    [['0.0.0.0/0'], '255.255.255.255', 'VALID'],
    [['0.0.0.0/0'], '::1', 'FORBIDDEN'],
    [['0.0.0.0/0'], '::ffff:1.2.3.4', 'VALID'],
    [['0.0.0.0/0'], undefined, 'FORBIDDEN'],
    [['::/0'], '::', 'VALID'],
    [['::/0'], '10.0.0.1', 'FORBIDDEN'],
    [['::/0'], '::ffff:10.0.0.1', 'FORBIDDEN'],
    [['10.0.0.1'], '10.0.0.1', 'VALID'],
    [['10.0.0.1'], '10.0.0.2', 'FORBIDDEN'],
    [['10.0.0.2/31'], '10.0.0.3', 'VALID'],
    [['10.0.0.2/31'], '10.0.0.4', 'FORBIDDEN'],
    [['128.0.0.0/1'], '127.255.255.255', 'FORBIDDEN'],
    [['::ffff:10.0.0.0/104'], '10.255.0.1', 'VALID'],
  ])('of %j: %s is %s', async (ranges, ip, code) => {
    const { key, keyId } = await createKey({ allowedIps: ranges });
    const data = await ok('keys.verifyKey', { key, ip });
    expect(data).toMatchObject({ valid: code === 'VALID', code, keyId });
    const explained = await ok('keys.explainKey', { keyId, ip });
    expect(explained.code).toBe(code);
  });

  test('of 100 ranges each admits its own, and nothing else', async () => {
    const ranges = Array.from({ length: 100 }, (_, index) =>
      index % 2 === 0
        ? `10.${index}.0.0/${13 + (index % 17)}`
        : `2001:db8:${index.toString(16)}::/${33 + (index % 90)}`,
    );
    const { key } = await createKey({ allowedIps: ranges });
    for (const range of ranges) expect(await codeOf(key, range.split('/')[0]!)).toBe('VALID');
    expect(await codeOf(key, '11.0.0.0')).toBe('FORBIDDEN');
    expect(await codeOf(key, '2001:db9::')).toBe('FORBIDDEN');
    const tooMany = await call('keys.createKey', { apiId: 'api_1', allowedIps: [...ranges, '10.0.0.1'] });
    expect([tooMany.status, tooMany.error.errors[0]!.location]).toEqual([400, 'body.allowedIps']);
  });

  test('of a key without restrictions are checked for their form only', async () => {
    const { key } = await createKey();
    for (const ip of [inside, '::1', undefined]) expect(await codeOf(key, ip)).toBe('VALID');
    for (const ip of ['10.1.2.3:80', '[::1]', 'fe80::1%eth0', '010.1.1.1', ' ::1', '1'.repeat(45)]) {
      const { status, error } = await call('keys.verifyKey', { key, ip });
      expect([status, error.errors[0]!.location, error.detail]).toEqual([
        400,
        'body.ip',
        'body.ip is not an IPv4 or IPv6 address.',
      ]);
    }
  });

  test('are named by their place when they are refused', async () => {
    const { apiId } = await createKey();
    const odd = [inside, '::/0', '10.0.0.0/8', '10.0.0.0/8/8'];
    const { error } = await call('keys.createKey', { apiId, allowedIps: odd });
    expect(error.errors[0]).toMatchObject({ location: 'body.allowedIps[3]' });
    expect(error.detail).toMatch(/^body\.allowedIps\[3\] is not an IPv4 or IPv6 address/);
    const hash = Buffer.alloc(32, 1).toString('base64');
    const keys = [{ hash, allowedIps: odd }];
    const migrated = await call('keys.migrateKeys', { migrationId: 'odd', apiId, keys });
    expect(migrated.error.errors[0]!.location).toBe('body.keys[0].allowedIps[3]');
  });
});

describe('changes', () => {
  test('apply to the next verification; null admits all addresses again, and restores the plain state', async () => {
    const { key, keyId } = await createKey();
    const plain = (await stateOf(key))!;
    await ok('keys.updateKey', { keyId, allowedIps });
    expect(await codeOf(key, outside)).toBe('FORBIDDEN');
    await ok('keys.updateKey', { keyId, allowedIps: [outside] });
    expect(await codeOf(key, outside)).toBe('VALID');
    expect(await codeOf(key, inside)).toBe('FORBIDDEN');
    await ok('keys.updateKey', { keyId, name: 'unrelated' });
    expect(await codeOf(key, inside)).toBe('FORBIDDEN');
    expect((await ok('keys.getKey', { keyId })).allowedIps).toEqual([outside]);
    await ok('keys.updateKey', { keyId, allowedIps: null });
    expect(await codeOf(key)).toBe('VALID');
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('allowedIps');
    // After the hour of the FORBIDDEN verifications, a change leaves nothing of them in the state.
    clock.advance(hourMs);
    expect(await codeOf(key)).toBe('VALID');
    await ok('keys.updateKey', { keyId, name: null });
    expect((await stateOf(key))!.length).toBe(plain.length);
    expect(await countsOf({ keyId })).toEqual({ VALID: 3, FORBIDDEN: 3 });
  });

  test('are in the audit log as text, and what is refused is not', async () => {
    const { keyId } = await createKey({ allowedIps: ['2001:DB8::1/29', '10.1.2.3/8', '1:0:0:2::3', '::'] });
    const many = Array.from({ length: 30 }, (_, index) => `10.0.0.${index}`);
    await ok('keys.updateKey', { keyId, allowedIps: many });
    await ok('keys.updateKey', { keyId, allowedIps: [...many.slice(0, -1), '10.9.9.9'] });
    await ok('keys.updateKey', { keyId, allowedIps: null });
    await ok('keys.updateKey', { keyId, allowedIps: null });
    const events = await ok('audit.listEvents', { resource: { id: keyId }, order: 'asc' } as never);
    const changes = (events as { changes?: { field: string }[] }[]).map((event) =>
      event.changes?.find(({ field }) => field === 'allowedIps'),
    );
    expect(changes[0]).toEqual({ field: 'allowedIps', after: '2001:db8::/29, 10.0.0.0/8, 1:0:0:2::3, ::' });
    expect(changes[1]).toMatchObject({ before: '2001:db8::/29, 10.0.0.0/8, 1:0:0:2::3, ::' });
    expect(changes[2]).toMatchObject({ field: 'allowedIps' });
    expect(changes[3]).toHaveProperty('before');
    expect(changes[3]).not.toHaveProperty('after');
    expect(changes[4]).toBeUndefined();
  });

  test('are copied by rerollKey, without the counts', async () => {
    const { key, keyId } = await createKey({ allowedIps });
    await codeOf(key, outside);
    const next = await ok('keys.rerollKey', { keyId, expiration: 60_000 });
    expect([await forbiddenIn(key), await forbiddenIn(next.key)]).toEqual([1, 0]);
    expect((await ok('keys.getKey', { keyId: next.keyId })).allowedIps).toEqual(['203.0.113.0/24', '2001:db8::/29']);
    expect([await codeOf(next.key, outside), await codeOf(next.key, inside)]).toEqual(['FORBIDDEN', 'VALID']);
    expect(await countsOf({ keyId })).toEqual({ FORBIDDEN: 1 });
    expect(await countsOf({ keyId: next.keyId })).toEqual({ FORBIDDEN: 1, VALID: 1 });
    expect(await codeOf(key, outside)).toBe('FORBIDDEN');
  });
});

describe('counts of FORBIDDEN', () => {
  const tags = ['eu'];

  test('are by hour, key, owner, API and tag, beside those of other outcomes', async () => {
    const limit = { name: 'requests', limit: 2, duration: 60_000, autoApply: true };
    const fields = { allowedIps, externalId: 'ada', credits: { remaining: 100 }, ratelimits: [limit] };
    const { key, keyId, apiId } = await createKey(fields);
    const day = clock.now;
    for (let hour = 0; hour < 3; hour++) {
      for (let times = 0; times <= hour; times++) expect(await codeOf(key, outside, { tags })).toBe('FORBIDDEN');
      for (const code of ['VALID', 'VALID', 'RATE_LIMITED']) expect(await codeOf(key, inside, { tags })).toBe(code);
      clock.advance(hourMs);
    }
    const expected = { FORBIDDEN: 6, VALID: 6, RATE_LIMITED: 3 };
    const queries = [{ keyId }, { externalId: 'ada' }, { apiId }, { tag: 'eu', apiId }] as never[];
    for (const query of queries) expect(await countsOf(query)).toEqual(expected);
    const byHour = await ok('analytics.getVerifications', {
      keyId,
      start: day,
      end: clock.now + hourMs,
      granularity: 'hour',
      groupBy: ['outcome'],
    });
    const refused = byHour.filter(({ outcome, count }) => outcome === 'FORBIDDEN' && count > 0);
    expect(refused.map(({ time, count }) => [time! - day, count])).toEqual([
      [0, 1],
      [hourMs, 2],
      [2 * hourMs, 3],
    ]);
    // Credits are unaffected, and those that were spent are counted with VALID.
    expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 94 });
    const spent = await ok('analytics.getVerifications', { keyId, granularity: 'total', start: day, groupBy: [] });
    expect(spent[0]).toMatchObject({ spentCredits: 6 });
    // The sweeper packs the days, and removes their hours later.
    for (const days of [2, 10]) {
      clock.advance(days * dayMs);
      while (await h.store.sweep.rollUp(h.workspaceId));
      for (const query of queries) expect(await countsOf(query)).toEqual(expected);
    }
  });

  test('are kept when the key is restricted no more, changes its owner, is deleted and restored', async () => {
    const { key, keyId } = await createKey({ allowedIps, externalId: 'first' });
    await codeOf(key, outside);
    await ok('keys.updateKey', { keyId, externalId: 'second' });
    expect(await forbiddenIn(key)).toBe(0);
    await codeOf(key, outside);
    await codeOf(key, outside);
    expect(await countsOf({ keyId, externalId: 'first' })).toEqual({ FORBIDDEN: 1 });
    expect(await countsOf({ keyId, externalId: 'second' })).toEqual({ FORBIDDEN: 2 });
    await ok('identities.deleteIdentity', { identity: 'second' });
    await codeOf(key, outside);
    expect(await countsOf({ keyId, externalId: 'second' })).toEqual({ FORBIDDEN: 2 });
    await ok('keys.deleteKey', { keyId });
    expect(await forbiddenIn(key)).toBe(0);
    expect(await countsOf({ keyId })).toEqual({ FORBIDDEN: 4 });
    expect(await codeOf(key, outside)).toBe('NOT_FOUND');
    await ok('keys.restoreKey', { keyId });
    expect([await codeOf(key, outside), await codeOf(key, inside)]).toEqual(['FORBIDDEN', 'VALID']);
    expect(await countsOf({ keyId })).toEqual({ FORBIDDEN: 5, VALID: 1 });
    await ok('keys.updateKey', { keyId, allowedIps: null });
    expect(await codeOf(key, outside)).toBe('VALID');
    expect(await countsOf({ keyId })).toEqual({ FORBIDDEN: 5, VALID: 2 });
    clock.advance(hourMs);
    expect(await codeOf(key, outside)).toBe('VALID');
    clock.advance(hourMs);
    expect(await codeOf(key, outside)).toBe('VALID');
    expect(await countsOf({ keyId })).toEqual({ FORBIDDEN: 5, VALID: 4 });
  });

  volumeTest('of 10,000 are exact, and few of them have a row', { timeout: 60_000 }, async () => {
    const { key, keyId } = await createKey({ allowedIps });
    for (let sent = 0; sent < 10_000; sent += 500) {
      const codes = await Promise.all(
        Array.from({ length: 500 }, (_, index) => codeOf(key, `198.51.${index % 100}.${sent % 256}`)),
      );
      expect(new Set(codes)).toEqual(new Set(['FORBIDDEN']));
    }
    expect(await countsOf({ keyId })).toEqual({ FORBIDDEN: 10_000 });
    const rows = await ok('analytics.listRefusals', { keyId, limit: 1000 });
    // With the clock of one test about 20: tests beside this one have other times, which begin the minute again.
    expect(rows.length).toBeLessThan(1000);
    expect(rows.every(({ outcome }) => outcome === 'FORBIDDEN')).toBe(true);
    expect(rows.reduce((sum, { count }) => sum + count, 0)).toBeGreaterThan(5_000);
  });
});
