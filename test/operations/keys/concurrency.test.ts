// Concurrency limits: slots that verifications take, and the ends of their holds free.

import { beforeEach, describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { runCli } from '../../support/cli.ts';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { namesIn } from '../../support/keyspace.ts';
import { storedLimit } from '../../support/limits.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { thoroughTest, volumeTest } from '../../support/testIf.ts';

const tollgate = harness();
const { clock, call, ok, createKey } = tollgate;

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

const minute = 60_000;
const jobs = { name: 'jobs', limit: 3, duration: minute, autoApply: true, type: 'concurrency' as const };
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };

const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras } as never);
const take = async (key: string, extras: object = {}) => {
  const verified = await verify(key, extras);
  expect(verified).toMatchObject({ valid: true, hold: { id: expect.stringMatching(/^hold_\w/) } });
  return verified.hold!;
};
/** Free slots, and when the next one frees itself. */
const free = async (key: string, ...names: string[]) => {
  const named = ['jobs', ...names].map((name) => ({ name, cost: 0 }));
  const { ratelimits, hold } = await verify(key, { credits: { cost: 0 }, ratelimits: named });
  expect(hold).toBeUndefined();
  return named.flatMap(({ name }) => {
    const { remaining, reset } = ratelimits!.find((one) => one.name === name)!;
    return [remaining, reset - startMs];
  });
};
const openRedis = () => connect(testRedisUrl(), { commandTimeoutMs: 5000 });
const release = (holdId: string) => ok('keys.releaseHold', { holdId });
const settle = (holdId: string, extras: object = {}) => ok('keys.settleHold', { holdId, ...extras });
const extend = async (holdId: string, ttl: number) =>
  (await ok('keys.extendHold', { holdId, ttl })).hold.expires - startMs;
const openHolds = (keyId: string) => ok('keys.listHolds', { keyId });
const update = (keyId: string, ratelimit: object) => ok('keys.updateKey', { keyId, ratelimit } as never);

describe('a verification', () => {
  test('takes a slot, and responds with the hold that frees it', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs], credits: { remaining: 100 } });
    expect(await free(key)).toEqual([3, 0]);
    const verified = await verify(key, { credits: { cost: 5 } });
    expect(verified).toMatchObject({
      valid: true,
      credits: 95,
      hold: { id: expect.stringMatching(/^hold_\w{24}\.\d+$/), expires: startMs + minute },
      ratelimits: [{ ...jobs, exceeded: false, remaining: 2, reset: startMs + minute }],
    });
    expect(await openHolds(keyId)).toEqual([
      {
        id: verified.hold!.id,
        createdAt: startMs,
        expires: startMs + minute,
        onExpiry: 'release',
        credits: 5,
        ratelimits: [],
        slots: [{ name: 'jobs', cost: 1 }],
      },
    ]);
    expect(await free(key)).toEqual([2, minute]);
    expect(await settle(verified.hold!.id)).toEqual({ keyId, credits: 95, ratelimits: [], late: false });
    expect(await free(key)).toEqual([3, 0]);
  });

  test('is RATE_LIMITED when all slots are taken, charges nothing and makes no hold', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs, requests], credits: { remaining: 100 } });
    await take(key);
    clock.now += 1000;
    await take(key);
    await take(key);
    expect(await verify(key)).toMatchObject({
      valid: false,
      code: 'RATE_LIMITED',
      credits: 97,
      ratelimits: [
        { name: 'jobs', exceeded: true, remaining: 0, reset: startMs + minute },
        { name: 'requests', exceeded: false, remaining: 7 },
      ],
    });
    expect((await openHolds(keyId)).length).toBe(3);
    expect(await verify(key, { ratelimits: [{ name: 'jobs', cost: 2 }] })).toMatchObject({
      ratelimits: [{ reset: startMs + minute + 1000 }, {}],
    });
  });

  test('frees a slot at its expiry, though nobody settles', async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
    await take(key);
    clock.now = startMs + minute - 1;
    expect((await verify(key)).code).toBe('RATE_LIMITED');
    clock.now++;
    const { id } = await take(key);
    expect((await openHolds(keyId)).map((one) => one.id)).toEqual([id]);
  });

  test('counts once, with its outcome', async () => {
    const { key, keyId } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
    await take(key);
    await verify(key);
    const period = { keyId, start: startMs - dayMs, end: startMs + dayMs };
    const counts = await ok('analytics.getVerifications', period as never);
    expect(counts).toMatchObject([
      { outcome: 'RATE_LIMITED', count: 1 },
      { outcome: 'VALID', count: 1 },
    ]);
  });

  test.each([
    ['DISABLED', { enabled: false }, {}],
    ['USAGE_EXCEEDED', { credits: { remaining: 1 } }, { credits: { cost: 2 } }],
    [
      'RATE_LIMITED',
      { ratelimits: [jobs, { ...requests, limit: 1 }] },
      { ratelimits: [{ name: 'requests', cost: 2 }] },
    ],
    [
      'RATE_LIMITED',
      { ratelimits: [{ ...requests, limit: 1 }, jobs] },
      { ratelimits: [{ name: 'requests', cost: 2 }] },
    ],
    ['INSUFFICIENT_PERMISSIONS', {}, { permissions: 'not.held' }],
  ])('%s takes none', async (code, fields, extras) => {
    const { keyId, key } = await createKey({ ratelimits: [jobs], ...fields });
    const verified = await verify(key, extras);
    expect(verified).toMatchObject({ valid: false, code });
    expect(verified.hold).toBeUndefined();
    expect(await openHolds(keyId)).toEqual([]);
    await ok('keys.updateKey', { keyId, enabled: true });
    expect(await free(key)).toEqual([3, 0]);
  });

  test('takes as many slots as it costs, and looks with a cost of 0', async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, autoApply: false }] });
    expect((await verify(key)).hold).toBeUndefined();
    const { id } = await take(key, { ratelimits: [{ name: 'jobs', cost: 2 }] });
    expect((await openHolds(keyId))[0]!.slots).toEqual([{ name: 'jobs', cost: 2 }]);
    expect((await verify(key, { ratelimits: [{ name: 'jobs', cost: 2 }] })).code).toBe('RATE_LIMITED');
    expect((await verify(key, { ratelimits: [{ name: 'jobs', cost: 4 }] })).ratelimits).toMatchObject([
      { exceeded: true, remaining: 1, reset: startMs + minute },
    ]);
    await release(id);
    expect(await free(key)).toEqual([3, 0]);
  });

  test('with a hold of its own takes the slot for its ttl, or for the duration if that is shorter', async () => {
    const { key } = await createKey({ ratelimits: [jobs] });
    expect((await take(key, { hold: { ttl: 5000 } })).expires).toBe(startMs + 5000);
    expect((await take(key, { hold: { ttl: hourMs } })).expires).toBe(startMs + minute);
    expect(await free(key)).toEqual([1, 5000]);
    clock.now += 5000;
    expect(await free(key)).toEqual([2, minute]);
  });

  test('with cost 0 and a hold holds no slot', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs] });
    expect((await take(key, { hold: { ttl: hourMs }, ratelimits: [{ name: 'jobs', cost: 0 }] })).expires).toBe(
      startMs + hourMs,
    );
    expect((await openHolds(keyId))[0]!.slots).toBeUndefined();
    expect(await free(key)).toEqual([3, 0]);
  });

  test('repeated with its own id returns the same hold, and takes nothing more', async () => {
    const { key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
    const first = await take(key, { hold: { ttl: 5000, id: 'job-1' } });
    clock.now += 10;
    const again = await verify(key, { hold: { ttl: 5000, id: 'job-1' } });
    expect(again).toMatchObject({ valid: true, hold: first, ratelimits: [{ remaining: 0, exceeded: false }] });
    expect((await verify(key, { hold: { ttl: 5000, id: 'job-2' } })).code).toBe('RATE_LIMITED');
  });

  test('takes slots of several limits, for the shortest of their durations', async () => {
    const long = { ...jobs, name: 'long', duration: hourMs };
    const { keyId, key } = await createKey({ ratelimits: [long, jobs] });
    const { id, expires } = await take(key);
    expect(expires).toBe(startMs + minute);
    expect((await openHolds(keyId))[0]!.slots).toEqual([
      { name: 'long', cost: 1 },
      { name: 'jobs', cost: 1 },
    ]);
    expect(await extend(id, hourMs)).toBe(minute);
    await settle(id);
    expect(await free(key, 'long')).toEqual([3, 0, 3, 0]);
  });

  test('with an ad hoc limit of the name of a concurrency limit counts in a window of its own', async () => {
    const { key } = await createKey({ ratelimits: [jobs] });
    await take(key);
    const adHoc = { name: 'jobs', limit: 2, duration: minute };
    const verified = await verify(key, { ratelimits: [adHoc] });
    expect(verified).toMatchObject({ valid: true, ratelimits: [{ ...adHoc, remaining: 1 }] });
    expect(verified.hold).toBeUndefined();
    expect(verified.ratelimits![0]).not.toHaveProperty('type');
    expect(await free(key)).toEqual([2, minute]);
  });

  volumeTest('of a key with 10,000 holds is refused, and takes no slot', async () => {
    const { key } = await createKey({ ratelimits: [{ ...jobs, limit: 10_000, autoApply: false }] });
    for (let made = 0; made < 10_000; made += 100)
      await Promise.all(Array.from({ length: 100 }, () => verify(key, { hold: { ttl: minute } })));
    const named = { key, ratelimits: [{ name: 'jobs' }] };
    expect(await call('keys.verifyKey', named)).toMatchObject({
      status: 412,
      error: { detail: expect.stringContaining('10000 open holds') },
    });
    expect(await free(key)).toEqual([10_000, 0]);
  });
});

describe('the end of a hold', () => {
  test('frees its slot: settled, released, or at its expiry also where it charges', async () => {
    const { key } = await createKey({ ratelimits: [jobs], credits: { remaining: 100 } });
    const settled = await take(key);
    const released = await take(key);
    await take(key, { hold: { ttl: 5000, onExpiry: 'charge' } });
    expect((await free(key))[0]).toBe(0);
    await settle(settled.id, { credits: { cost: 3 } });
    expect((await free(key))[0]).toBe(1);
    await release(released.id);
    await release(released.id);
    expect((await free(key))[0]).toBe(2);
    clock.now += 5000;
    expect(await free(key)).toEqual([3, 5000]);
  });

  test('never frees the slot of another hold', async () => {
    const { key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
    const lost = await take(key);
    clock.now += minute;
    const own = await take(key);
    expect(await settle(lost.id)).toMatchObject({ late: true });
    await release(lost.id).catch(() => undefined);
    expect((await free(key))[0]).toBe(0);
    await settle(own.id);
    expect((await free(key))[0]).toBe(1);
  });

  test('that was released and settles late leaves the slot that another hold took to the same end', async () => {
    const { key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
    const { id } = await take(key);
    await release(id);
    await take(key);
    expect(await settle(id)).toMatchObject({ late: true });
    expect((await free(key))[0]).toBe(0);
  });

  test('that settles late takes no slot', async () => {
    const { key } = await createKey({ ratelimits: [jobs] });
    const { id } = await take(key);
    await release(id);
    expect(await settle(id)).toMatchObject({ late: true, ratelimits: [] });
    expect(await free(key)).toEqual([3, 0]);
  });

  test('does not take the limit by its name', async () => {
    const { key } = await createKey({ ratelimits: [jobs, requests] });
    const { id } = await take(key);
    expect(await call('keys.settleHold', { holdId: id, ratelimits: [{ name: 'jobs', cost: 1 }] })).toMatchObject({
      status: 412,
      error: { detail: expect.stringContaining('no limit named "jobs"') },
    });
    expect((await free(key))[0]).toBe(2);
    expect((await settle(id)).ratelimits).toEqual([{ name: 'requests', cost: 1 }]);
  });
});

describe('an extension', () => {
  test('moves the slot, at most by the duration of its limit from now', async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
    const { id } = await take(key, { hold: { ttl: 5000 } });
    clock.now += 4000;
    expect(await extend(id, 30_000)).toBe(34_000);
    expect(await free(key)).toEqual([0, 34_000]);
    expect(await extend(id, hourMs)).toBe(64_000);
    expect(await free(key)).toEqual([0, 64_000]);
    expect((await openHolds(keyId))[0]!.expires).toBe(startMs + 64_000);
    expect(await extend(id, 1000)).toBe(5000);
    clock.now = startMs + 5000;
    expect(await free(key)).toEqual([1, 5000]);
  });

  test('of a slot of an identity keeps it from another key', async () => {
    const externalId = 'extends';
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...jobs, limit: 1 }] });
    const one = await createKey({ externalId });
    const other = await createKey({ externalId });
    const { id } = await take(one.key);
    clock.now += minute - 1;
    expect(await extend(id, minute)).toBe(2 * minute - 1);
    clock.now += minute - 1;
    expect((await verify(other.key)).code).toBe('RATE_LIMITED');
    await release(id);
    await take(other.key);
  });
});

describe('a limit of an identity', () => {
  test('is shared by its keys, and a crashed caller of one blocks no other after its time', async () => {
    const externalId = 'shared';
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...jobs, limit: 1 }] });
    const crashed = await createKey({ externalId });
    const other = await createKey({ externalId });
    const lost = await take(crashed.key);
    expect((await verify(other.key)).code).toBe('RATE_LIMITED');
    clock.now += minute;
    const own = await take(other.key);
    expect(own.expires).toBe(startMs + 2 * minute);
    // The hold of the crashed caller expires when its key is used: the slot is that of the other.
    expect((await verify(crashed.key)).code).toBe('RATE_LIMITED');
    expect(await settle(lost.id)).toMatchObject({ late: true });
    expect((await verify(crashed.key)).code).toBe('RATE_LIMITED');
    await release(own.id);
    await take(crashed.key);
  });

  test('that was deleted and created again gets nothing back', async () => {
    const externalId = 'again';
    const shared = { externalId, ratelimits: [{ ...jobs, limit: 1 }] };
    await ok('identities.createIdentity', shared);
    const { keyId, key } = await createKey({ externalId });
    const { id } = await take(key);
    await ok('identities.deleteIdentity', { identity: externalId });
    await ok('identities.createIdentity', shared);
    await ok('keys.updateKey', { keyId, externalId });
    await take(key);
    await release(id);
    expect((await verify(key)).code).toBe('RATE_LIMITED');
  });
});

describe('a change of the limit', () => {
  test('keeps the slots with another limit or duration', async () => {
    const { key, keyId } = await createKey({ ratelimits: [jobs] });
    const { id } = await take(key);
    await update(keyId, { name: 'jobs', limit: 1, duration: hourMs });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({
      ratelimits: [{ ...jobs, limit: 1, duration: hourMs }],
    });
    expect(await free(key)).toEqual([0, minute]);
    expect(await extend(id, hourMs)).toBe(hourMs);
    await release(id);
    expect(await free(key)).toEqual([1, 0]);
  });

  test('to another type begins with another counter', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs] });
    const { id } = await take(key);
    await update(keyId, { name: 'jobs', limit: 3, type: 'window' });
    const [limit] = (await ok('keys.getKey', { keyId })).ratelimits!;
    expect(limit).not.toHaveProperty('type');
    const verified = await verify(key);
    expect(verified).toMatchObject({ valid: true, ratelimits: [{ remaining: 2 }] });
    expect(verified.hold).toBeUndefined();
    await settle(id);
    expect((await free(key))[0]).toBe(2);
    await update(keyId, { name: 'jobs', limit: 3, type: 'concurrency' });
    expect(await free(key)).toEqual([3, 0]);
  });

  test('to another type and back uses the former counters again', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs] });
    const left = async (type: string) => {
      await update(keyId, { name: 'jobs', limit: 3, type });
      return (await verify(key, { ratelimits: [{ name: 'jobs', cost: 0 }] })).ratelimits![0]!.remaining;
    };
    await take(key);
    expect(await left('window')).toBe(3);
    await verify(key, { ratelimits: [{ name: 'jobs', cost: 2 }] });
    expect([await left('concurrency'), await left('window')]).toEqual([2, 1]);
    clock.now += 2 * minute;
    expect([await left('concurrency'), await left('window')]).toEqual([3, 3]);
  });

  test('to a lower limit frees no slot', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs] });
    const { id } = await take(key);
    await take(key);
    await update(keyId, { name: 'jobs', limit: 1 });
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ remaining: 0 }] });
    await release(id);
    expect(await free(key)).toEqual([0, minute]);
  });

  test.each(['key', 'identity'] as const)(
    'of the list of the %s without a type, as an SDK sends it, keeps the type',
    async (owner) => {
      const externalId = `typed.${owner}`;
      const { identityId } = await ok('identities.createIdentity', { externalId, ratelimits: [jobs] });
      const { keyId, key } = await createKey(owner === 'key' ? { ratelimits: [jobs] } : { externalId });
      const change = (ratelimits: (Partial<typeof jobs> & { name: string; limit: number; duration: number })[]) =>
        owner === 'key'
          ? call('keys.updateKey', { keyId, ratelimits })
          : call('identities.updateIdentity', { identity: identityId, ratelimits });
      await take(key);
      const { type: _, ...untyped } = jobs;
      expect((await change([untyped, { ...untyped, name: 'other' }])).status).toBe(200);
      const { ratelimits } =
        owner === 'key'
          ? await ok('keys.getKey', { keyId })
          : await ok('identities.getIdentity', { identity: externalId });
      expect(ratelimits!.map(({ name, type }) => [name, type])).toEqual([
        [jobs.name, 'concurrency'],
        ['other', undefined],
      ]);
      expect((await free(key))[0]).toBe(jobs.limit - 1);
      const refused = await change([{ ...untyped, duration: dayMs + 1 }]);
      expect([refused.status, refused.error?.detail]).toEqual([400, expect.stringContaining('body.ratelimits')]);
      expect(refused.error.errors[0]!.location).toBe('body.ratelimits[0].duration');
      expect((await free(key))[0]).toBe(jobs.limit - 1);
      await change([{ ...untyped, type: 'window' as never }]);
      expect((await verify(key)).hold).toBeUndefined();
    },
  );

  test('that removes it and adds it again keeps the slots of its open holds', async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 2 }] });
    const { id } = await take(key);
    const other = await take(key);
    await update(keyId, { name: 'jobs', limit: null });
    await settle(id);
    expect(await extend(other.id, hourMs)).toBe(hourMs);
    await ok('keys.updateKey', { keyId, ratelimits: [{ ...jobs, limit: 2, duration: dayMs }] });
    expect(await free(key)).toEqual([1, hourMs]);
    await release(other.id);
    expect(await free(key)).toEqual([2, 0]);
  });
});

test('a key that is deleted for good leaves the slots and units of its identity taken', async () => {
  const externalId = 'survives';
  await ok('identities.createIdentity', { externalId, ratelimits: [jobs, { ...requests, autoApply: false }] });
  const one = await createKey({ externalId });
  const other = await createKey({ externalId });
  await take(one.key, { hold: { ttl: 30_000 }, ratelimits: [{ name: 'requests', cost: 4 }] });
  await ok('keys.deleteKey', { keyId: one.keyId, permanent: true });
  const left = async () => (await free(other.key, 'requests')).filter((_, index) => index % 2 === 0);
  expect(await left()).toEqual([2, 6]);
  clock.now += 30_000;
  expect(await left()).toEqual([3, 6]);
  clock.now += hourMs;
  expect(await left()).toEqual([3, 10]);
});

test('a slot of a removed limit stays taken when the key is deleted and restored', async () => {
  const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
  const { id } = await take(key);
  await update(keyId, { name: 'jobs', limit: null });
  await ok('keys.deleteKey', { keyId });
  await ok('keys.restoreKey', { keyId });
  await ok('keys.updateKey', { keyId, ratelimits: [{ ...jobs, limit: 1 }] });
  expect((await verify(key)).code).toBe('RATE_LIMITED');
  await release(id);
  await take(key);
});

test('a slot that is lost with its counter is none of the hold, when that is extended', async () => {
  const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 1 }] });
  const lost = await take(key, { hold: { ttl: 5000 } });
  await update(keyId, { name: 'jobs', limit: null });
  const stored = await openRedis();
  const counters = (await namesIn(stored)).filter(
    (name) => name.includes(keyId.slice('key_'.length)) && name.includes('jobs'),
  );
  for (const name of counters) await stored.unlink(name);
  stored.disconnect();
  expect(counters).toHaveLength(1);
  await ok('keys.updateKey', { keyId, ratelimits: [{ ...jobs, limit: 1 }] });
  expect(await extend(lost.id, 30_000)).toBe(30_000);
  expect((await openHolds(keyId))[0]).not.toHaveProperty('slots');
  await take(key, { hold: { ttl: 30_000 } });
  await release(lost.id);
  expect((await verify(key)).code).toBe('RATE_LIMITED');
});

describe('a limit above 64', () => {
  const many = { ...jobs, limit: 10_000, duration: 64_000 };

  test('frees slots at the ends of slices, never later than its duration', async () => {
    const { key } = await createKey({ ratelimits: [many] });
    clock.now = startMs - (startMs % 1000) + 300;
    const at = clock.now - startMs;
    // 64 s from now is within a slice of 1 s: the hold ends at its beginning.
    const { expires } = await take(key);
    expect(expires - startMs).toBe(at - 300 + 64_000);
    const short = await take(key, { hold: { ttl: 5000 } });
    expect(short.expires - startMs).toBe(at + 5000);
    expect(await free(key)).toEqual([9998, at - 300 + 6000]);
    await release(short.id);
    expect(await free(key)).toEqual([9999, at - 300 + 64_000]);
  });

  volumeTest('has 10,000 slots', async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...many, autoApply: false }] });
    const taken = { ratelimits: [{ name: 'jobs', cost: 100 }] };
    const holds: string[] = [];
    for (let made = 0; made < 100; made++) {
      clock.now += 500;
      holds.push((await take(key, taken)).id);
    }
    expect((await verify(key, { ratelimits: [{ name: 'jobs' }] })).code).toBe('RATE_LIMITED');
    for (const id of holds) await settle(id);
    expect((await free(key))[0]).toBe(10_000);
    expect(await openHolds(keyId)).toEqual([]);
  });
});

describe('bad input', () => {
  const limits = (fields: object) => [{ name: 'jobs', limit: 3, duration: minute, type: 'concurrency', ...fields }];
  test.each([
    ['body.ratelimits[0].type', limits({ type: 'semaphore' })],
    ['body.ratelimits[0].type', limits({ type: null })],
    ['body.ratelimits[0].limit', limits({ limit: 10_001 })],
    ['body.ratelimits[0].limit', limits({ limit: 0 })],
    ['body.ratelimits[0].duration', limits({ duration: dayMs + 1 })],
    ['body.ratelimits[0].duration', limits({ duration: 999 })],
  ])('names %s', async (location, ratelimits) => {
    const { apiId } = await createKey();
    const { keyId } = await createKey();
    const refused = { status: 400, error: { errors: [{ location }] } };
    expect(await call('keys.createKey', { apiId, ratelimits } as never)).toMatchObject(refused);
    expect(await call('keys.updateKey', { keyId, ratelimits } as never)).toMatchObject(refused);
    expect(await call('identities.createIdentity', { externalId: 'bad', ratelimits } as never)).toMatchObject(refused);
  });

  test.each([
    ['limit', { limit: 10_001 }],
    ['duration', { limit: 3, duration: dayMs + 1 }],
    ['type', { limit: 3, type: 'both' }],
  ])('of a change names body.ratelimit.%s', async (field, change) => {
    const { keyId } = await createKey({ ratelimits: [jobs] });
    await ok('identities.createIdentity', { externalId: `bad-${field}`, ratelimits: [jobs] });
    const ratelimit = { name: 'jobs', ...change };
    const refused = { status: 400, error: { errors: [{ location: `body.ratelimit.${field}` }] } };
    expect(await call('keys.updateKey', { keyId, ratelimit } as never)).toMatchObject(refused);
    expect(await call('identities.updateIdentity', { identity: `bad-${field}`, ratelimit } as never)).toMatchObject(
      refused,
    );
  });

  test('of a window that becomes a concurrency limit names what that cannot have', async () => {
    const { keyId } = await createKey({ ratelimits: [{ name: 'jobs', limit: 20_000, duration: 2 * dayMs }] });
    const become = (change: object) =>
      call('keys.updateKey', { keyId, ratelimit: { name: 'jobs', type: 'concurrency', ...change } } as never);
    expect(await become({ limit: 20_000 })).toMatchObject({
      status: 400,
      error: { errors: [{ location: 'body.ratelimit.limit' }] },
    });
    expect(await become({ limit: 5 })).toMatchObject({
      status: 400,
      error: { errors: [{ location: 'body.ratelimit.duration' }] },
    });
    expect(await become({ limit: 5, duration: minute })).toMatchObject({ status: 200 });
  });

  test('of a verification: a limit of the request has no type', async () => {
    const { key } = await createKey({ ratelimits: [jobs] });
    expect(await call('keys.verifyKey', { key, ratelimits: [jobs] } as never)).toMatchObject({
      status: 400,
      error: { errors: [{ location: 'body.ratelimits[0].type' }] },
    });
    expect(await free(key)).toEqual([3, 0]);
    await take(key, { ratelimits: [{ name: 'jobs', type: 'concurrency', autoApply: true }] });
  });
});

test('a rotated key has the limit, without the slots of the old one', async () => {
  const { keyId, key } = await createKey({ ratelimits: [jobs] });
  await take(key);
  const successor = await ok('keys.rerollKey', { keyId, expiration: hourMs });
  expect(await ok('keys.getKey', { keyId: successor.keyId })).toMatchObject({ ratelimits: [jobs] });
  expect(await free(successor.key)).toEqual([3, 0]);
});

thoroughTest(
  'many extensions after a lower limit leave a counter small, and each slot is freed',
  {
    timeout: 60_000,
  },
  async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 10_000, duration: hourMs }] });
    const holds = await Promise.all(Array.from({ length: 1200 }, () => take(key)));
    await update(keyId, { name: 'jobs', limit: 64 });
    for (const { id } of holds) {
      clock.now += 3;
      expect(await extend(id, hourMs)).toBe(clock.now + hourMs - startMs);
    }
    const { ratelimits } = await ok('keys.verifyKey', { key, ratelimits: [{ name: 'jobs', cost: 0 }] });
    expect(ratelimits![0]).toMatchObject({ remaining: 0 });
    // 1000 exact ends and 65 slices of the duration, 4 bytes each; 200 more without the slices.
    const stored = await openRedis();
    const names = await namesIn(stored);
    const lengths = await Promise.all(
      names
        .filter((name) => name.includes(`${tollgate.workspaceId}}:k:`))
        .map((name) => stored.call('HSTRLEN', name, 'state') as Promise<number>),
    );
    stored.disconnect();
    expect(Math.max(...lengths)).toBeLessThan(4500);
    for (const { id } of holds) await release(id);
    expect((await free(key))[0]).toBe(64);
  },
);

test('a removed limit keeps the slot of a hold that is extended, as long as that lasts', async () => {
  const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, duration: dayMs }] });
  const { id } = await take(key);
  await update(keyId, { name: 'jobs', limit: null });
  expect(await extend(id, hourMs)).toBe(hourMs);
  const stored = await openRedis();
  const lifetimes = async () => {
    const names = (await namesIn(stored)).filter(
      (name) => name.includes(keyId.slice('key_'.length)) && name.includes('jobs'),
    );
    return Promise.all(names.map((name) => stored.pttl(name)));
  };
  for (const name of (await namesIn(stored)).filter(
    (name) => name.includes(keyId.slice('key_'.length)) && name.includes('jobs'),
  ))
    await stored.pexpire(name, hourMs);
  await extend(id, dayMs);
  expect(await lifetimes()).toEqual([expect.toSatisfy((ttl) => ttl > dayMs)]);
  stored.disconnect();
});

describe('after the clock stepped back', () => {
  test('an extension does not end a hold, and its slot stays taken', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs] });
    clock.now = startMs + hourMs;
    const { id } = await take(key);
    clock.now = startMs;
    await ok('keys.extendHold', { holdId: id, ttl: minute });
    await take(key, { hold: { ttl: 1000 } });
    clock.now += 1001;
    expect((await free(key))[0]).toBe(2);
    expect((await openHolds(keyId)).map((one) => one.id)).toEqual([id]);
    expect(await settle(id)).toMatchObject({ late: false });
  });

  test('slots are taken until their holds end, and can be given back', async () => {
    const { key } = await createKey({ ratelimits: [{ ...jobs, limit: 2 }] });
    clock.now = startMs + hourMs;
    const ahead = await take(key);
    clock.now = startMs;
    expect(await free(key)).toEqual([1, hourMs + minute]);
    const { id } = await take(key);
    expect((await verify(key)).code).toBe('RATE_LIMITED');
    await settle(id);
    expect(await free(key)).toEqual([1, hourMs + minute]);
    expect(await extend(ahead.id, 5000)).toBe(5000);
    expect(await free(key)).toEqual([1, 5000]);
    await release(ahead.id);
    expect(await free(key)).toEqual([2, 0]);
  });

  test('a slot whose hold has expired and was given back stays free', async () => {
    const { key } = await createKey({ ratelimits: [jobs] });
    await take(key);
    clock.now = startMs + minute;
    expect(await free(key)).toEqual([3, minute]);
    clock.now = startMs + 1000;
    expect(await free(key)).toEqual([3, 1000]);
  });

  test('slots of years ahead block nothing', async () => {
    const externalId = 'ahead';
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...jobs, limit: 1 }] });
    const one = await createKey({ externalId });
    const other = await createKey({ externalId });
    clock.now = startMs + 400 * dayMs;
    const { id } = await take(one.key);
    clock.now = startMs;
    const own = await take(other.key);
    await release(id).catch(() => undefined);
    expect((await verify(one.key)).code).toBe('RATE_LIMITED');
    await release(own.id);
    await take(one.key);
  });
});

describe('is shown', () => {
  test('by keys.explainKey, which takes no slot', async () => {
    const { keyId, key } = await createKey({ ratelimits: [{ ...jobs, limit: 2 }], credits: { remaining: 10 } });
    const rule = async (extras: object = {}) => {
      const { valid, code, rules, charge } = await ok('keys.explainKey', { keyId, ...extras } as never);
      return { valid, code, charge, ...rules.find(({ rule }) => rule === 'ratelimits')! };
    };
    await take(key);
    expect(await rule()).toMatchObject({
      valid: true,
      result: 'passed',
      charge: { credits: 1, ratelimits: [{ name: 'jobs', cost: 1 }] },
      ratelimits: [{ ...jobs, limit: 2, used: 1, cost: 1, exceeded: false, remaining: 0 }],
    });
    expect(await free(key)).toEqual([1, minute]);
    await take(key);
    expect(await rule()).toMatchObject({
      code: 'RATE_LIMITED',
      result: 'failed',
      ratelimits: [{ type: 'concurrency', used: 2, exceeded: true, remaining: 0, reset: startMs + minute }],
    });
    expect((await ok('keys.explainKey', { keyId })).holds).toEqual({
      open: 2,
      credits: 2,
      ratelimits: [{ name: 'jobs', cost: 2 }],
    });
    clock.now += minute;
    expect(await rule()).toMatchObject({ valid: true, ratelimits: [{ used: 0, remaining: 1 }] });
  });

  test('in recent refusals, after a window that is exceeded, too', async () => {
    const { keyId, key } = await createKey({
      ratelimits: [
        { ...jobs, limit: 1 },
        { ...requests, limit: 2 },
      ],
    });
    await take(key);
    await verify(key);
    await verify(key, { ratelimits: [{ name: 'requests', cost: 5 }] });
    const rows = (await call('analytics.listRefusals', { keyId })).data;
    expect(rows).toMatchObject([
      { ratelimit: 'requests', limit: 2, cost: 5, remaining: 1 },
      { ratelimit: 'jobs', limit: 1, duration: minute, type: 'concurrency', cost: 1, remaining: 0 },
    ]);
    expect(rows[0]).not.toHaveProperty('type');
  });

  test('in lists of keys and identities, and in the audit log', async () => {
    const externalId = 'stored';
    await ok('identities.createIdentity', { externalId, ratelimits: [jobs, requests] });
    const { keyId, apiId, key } = await createKey({ externalId, ratelimits: [jobs, requests] });
    const stored = [jobs, requests].map(storedLimit);
    const [listed] = await ok('keys.listKeys', { apiId });
    expect(listed).toMatchObject({ keyId, ratelimits: stored, identity: { ratelimits: stored } });
    expect(await ok('identities.getIdentity', { identity: externalId })).toMatchObject({ ratelimits: stored });
    const [first] = (await ok('identities.listIdentities', { search: externalId })) as { ratelimits: object[] }[];
    expect(first!.ratelimits).toEqual(stored);
    expect(await ok('keys.whoami', { key })).toMatchObject({ ratelimits: stored });
    const [event] = await ok('audit.listEvents', { resource: { id: keyId } } as never);
    expect(JSON.stringify(event)).toContain(
      'jobs 3 slots for 60000 ms, autoApply; requests 10 per 3600000 ms'.split(';')[0],
    );
  });

  test('by the command line: inspect, and key holds', async () => {
    const { keyId, key } = await createKey({ ratelimits: [jobs] });
    await take(key, { ratelimits: [{ name: 'jobs', cost: 2 }] });
    const run = async (...args: string[]) =>
      (await runCli([...args, '--workspace', tollgate.workspaceId], { REDIS_URL: testRedisUrl() })).out;
    const inspected = await run('inspect', keyId);
    expect(inspected).toContain('jobs  3 slots for 60,000 ms, autoApply');
    const removed = await update(keyId, { name: 'jobs', limit: null });
    expect(removed).toEqual({});
    expect(await run('inspect', keyId)).toContain('jobs  former limit of slots');
  });
});

test('is exported with its type and without slots, and imported', async () => {
  // The command line asks for the time of Redis.
  clock.now = Date.now();
  const externalId = 'exported';
  await ok('identities.createIdentity', { externalId, ratelimits: [{ ...jobs, name: 'shared', duration: dayMs }] });
  const { keyId, key } = await createKey({
    externalId,
    ratelimits: [{ ...jobs, duration: dayMs }],
    credits: { remaining: 50 },
  });
  await take(key, { credits: { cost: 20 } });
  const cli = (args: string[], input = '') =>
    runCli([...args, '--workspace', tollgate.workspaceId], { REDIS_URL: testRedisUrl() }, input);
  const lines = (await cli(['export', '-'])).out.split('\n');
  const line = lines.find((each) => each.includes(`"${keyId}"`) && each.includes('"kind":"key"'))!;
  expect(JSON.parse(line)).toMatchObject({ credits: { remaining: 50 } });
  const ofIdentity = lines.find((each) => each.includes('"externalId":"exported"') && each.includes('"identity"'))!;
  for (const { ratelimits } of [JSON.parse(line), JSON.parse(ofIdentity)]) {
    expect(ratelimits).toMatchObject([{ type: 'concurrency', limit: 3, duration: dayMs }]);
    expect(ratelimits[0]).not.toHaveProperty('used');
  }
  await ok('keys.deleteKey', { keyId, permanent: true });
  await ok('identities.deleteIdentity', { identity: externalId });
  const wrong = line.replace('"type":"concurrency"', '"type":"concurrency","used":[[1,1]]');
  expect((await cli(['import', '-'], `${wrong}\n`)).out).toContain('ratelimits[0].used');
  expect(await cli(['import', '-'], `${ofIdentity}\n${line}\n`)).toMatchObject({ code: 0 });
  const nowMs = clock.now - startMs;
  expect(await free(key, 'shared')).toEqual([3, nowMs, 3, nowMs]);
  await take(key);
  expect(await free(key, 'shared')).toEqual([2, nowMs + dayMs, 2, nowMs + dayMs]);
});
