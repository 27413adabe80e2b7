// Redis's clock steps back and forth by an hour while the server serves (clock.c, preloaded into the real
// redis-server). A step back opens no limit, and closes none for longer than its duration. No refill applies twice, no
// expired key becomes valid unless the clock is before its expiry, and every response is counted once. A step forward
// is time that has passed. (What Redis expires after a step forward is still gone after the step back: by its clock
// that time has passed.)

import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { openClient } from '../support/client.ts';
import { dayMs, hourMs } from '../support/harness.ts';
import { build, endAll, startRedis, startTollgate, temporaryDir } from '../support/processes.ts';
import { compiles, preload } from './preload.ts';
import { report } from './report.ts';

/** A refusal may be repeated without Redis for as long: by the clock of the server, which does not step. */
const leaseMs = 100;

beforeAll(build, 120_000);
afterEach(endAll);

test.skipIf(!compiles)(
  'the clock of Redis steps back and forth by an hour',
  async () => {
    const dir = temporaryDir();
    const file = join(dir, 'clock');
    // 23:30, tomorrow: a step of an hour crosses midnight, and with it a daily refill.
    const halfPastEleven = (Math.floor(Date.now() / dayMs) + 2) * dayMs - hourMs / 2;
    const offsetS = Math.round((halfPastEleven - Date.now()) / 1000);
    const setClock = (byHours: number) => {
      const shift = offsetS + byHours * 3600;
      writeFileSync(file, new BigInt64Array([BigInt(shift)]), { flag: existsSync(file) ? 'r+' : 'w' });
    };
    setClock(0);
    const redis = await startRedis(dir, {
      env: { LD_PRELOAD: preload('clock', dir)!, CLOCK_FILE: file },
    });
    const server = await startTollgate({
      REDIS_URL: redis.url,
      SWEEP_INTERVAL_MS: '20',
      LEASE_MS: `${leaseMs}`,
      LEASE_LONG_MS: '0',
    });
    const { call } = openClient(() => server.url, await server.firstRootKey());
    const nowMs = async () => Number((await redis.admin.time())[0]) * 1000;
    expect(Math.abs((await nowMs()) - halfPastEleven)).toBeLessThan(30_000);

    let steps = 0;
    async function step(toHours: number) {
      setClock(toHours);
      steps++;
      await vi.waitFor(async () =>
        expect(Math.abs((await nowMs()) - halfPastEleven - toHours * hourMs)).toBeLessThan(120_000),
      );
      // Redis removes expired records before the test reads them.
      await vi.waitFor(() => redis.admin.dbsize());
      await delay(leaseMs);
    }

    const { apiId } = (await call('apis.createApi', { name: 'clock' })).data;
    const ids: string[] = [];
    const create = async (input: object = {}) => {
      const { data } = await call('keys.createKey', { apiId, ...input });
      ids.push(data.keyId);
      return data;
    };
    let answers = 0;
    const verify = async (key: string) => {
      const { data } = await call('keys.verifyKey', { key });
      if (data.code !== 'NOT_FOUND') answers++;
      return data;
    };
    const limit = async (identifier: string, duration: number) =>
      (await call('ratelimits.limit', { namespace: 'clock', identifier, limit: 5, duration })).data.success;
    const ofHour = { namespace: 'clock', identifier: 'hourly', limit: 5, period: 'hour' } as const;
    const quota = async () => (await call('ratelimits.limit', ofHour)).data.success;
    /** How many of eight are admitted. */
    const admitted = async (once: () => Promise<boolean>) => {
      let passed = 0;
      for (let time = 0; time < 8; time++) passed += (await once()) ? 1 : 0;
      return passed;
    };

    const limits = (duration: number) => ({ ratelimits: [{ name: 'requests', limit: 5, duration, autoApply: true }] });
    const long = await create(limits(3 * hourMs));
    const short = await create(limits(20 * 60_000));
    const verified = (key: string) => async () => (await verify(key)).valid;
    const refilled = await create({ credits: { remaining: 100, refill: { interval: 'daily', amount: 100 } } });
    const untouched = await create({ credits: { remaining: 7, refill: { interval: 'daily', amount: 100 } } });
    const expiring = await create({ expires: halfPastEleven + hourMs / 2 });
    const deleted = await create();
    const root = (await call('rootKeys.createRootKey', { permissions: ['*'], expires: halfPastEleven + hourMs / 2 }))
      .data;
    const revoked = (await call('rootKeys.createRootKey', { permissions: ['*'] })).data;
    expect((await call('keys.deleteKey', { keyId: deleted.keyId })).status).toBe(200);
    expect((await call('rootKeys.deleteRootKey', { rootKeyId: revoked.rootKeyId })).status).toBe(200);
    const credits = async ({ keyId }: { keyId: string }) =>
      (await call('keys.getKey', { keyId })).data.credits!.remaining;
    const expectGone = async () => {
      expect((await verify(deleted.key)).code).toBe('NOT_FOUND');
      expect((await call('apis.getApi', { apiId }, revoked.key)).status).toBe(401);
    };

    // 23:30. All limits are used up.
    expect(await admitted(verified(long.key))).toBe(5);
    expect(await admitted(verified(short.key))).toBe(5);
    expect(await admitted(() => limit('long', 3 * hourMs))).toBe(5);
    expect(await admitted(() => limit('short', 20 * 60_000))).toBe(5);
    expect(await admitted(quota)).toBe(5);
    for (let time = 0; time < 30; time++) await verify(refilled.key);
    expect(await credits(refilled)).toBe(70);
    expect((await verify(expiring.key)).code).toBe('VALID');

    // 22:30, back: nothing has left its window.
    await step(-1);
    expect(await admitted(verified(long.key))).toBe(0);
    expect(await admitted(verified(short.key))).toBe(0);
    expect(await admitted(() => limit('long', 3 * hourMs))).toBe(0);
    expect(await admitted(() => limit('short', 20 * 60_000))).toBe(0);
    expect(await credits(refilled)).toBe(70);
    await create();
    await expectGone();

    // 23:30 again: by this clock an hour has passed.
    await step(0);
    expect(await admitted(verified(long.key))).toBe(0);
    expect(await admitted(() => limit('long', 3 * hourMs))).toBe(0);
    expect(await admitted(verified(short.key))).toBe(5);
    expect(await admitted(() => limit('short', 20 * 60_000))).toBe(5);

    // 0:30, another hour: the short windows are empty, the refill is due, the key and the root key expired.
    await step(1);
    expect(await admitted(quota)).toBe(5);
    expect(await admitted(verified(long.key))).toBe(0);
    expect(await admitted(() => limit('long', 3 * hourMs))).toBe(0);
    expect(await admitted(verified(short.key))).toBe(5);
    expect(await admitted(() => limit('short', 20 * 60_000))).toBe(5);
    for (let time = 0; time < 10; time++) await verify(refilled.key);
    expect(await credits(refilled)).toBe(90);
    expect((await verify(expiring.key)).code).toBe('EXPIRED');
    expect((await call('apis.getApi', { apiId }, root.key)).code).toBe('root_key_expired');
    // The sweeper refills the other key, whose balance is then spent, so that a second refill would be visible.
    expect(await credits(untouched)).toBe(100);
    await call('keys.updateCredits', { keyId: untouched.keyId, operation: 'set', value: 3 });
    await create();
    await expectGone();

    // 23:30 and 0:30, twice: midnight passes again, and nothing is refilled.
    for (let time = 0; time < 2; time++) {
      await step(0);
      expect(await admitted(quota)).toBe(0);
      expect(await admitted(verified(short.key))).toBe(0);
      expect(await admitted(() => limit('short', 20 * 60_000))).toBe(0);
      expect(await credits(refilled)).toBe(90);
      // Valid again: by the clock it has not expired yet.
      expect((await verify(expiring.key)).code).toBe('VALID');
      await create();
      await expectGone();
      await step(1);
      expect(await admitted(quota)).toBe(0);
      expect(await admitted(verified(long.key))).toBe(0);
      expect(await admitted(verified(short.key))).toBe(5);
      expect(await admitted(() => limit('short', 20 * 60_000))).toBe(5);
      expect(await admitted(() => limit('long', 3 * hourMs))).toBe(0);
      expect(await credits(refilled)).toBe(90);
      expect(await credits(untouched)).toBe(3);
      expect((await verify(expiring.key)).code).toBe('EXPIRED');
      await expectGone();
    }

    // 23:30: units that were charged at 0:30, while the clock was ahead, count for 20 minutes from now, not until 0:50.
    for (const [hours, passed] of [
      [0, 0],
      [0.3, 0],
      [0.35, 5],
    ] as const) {
      await step(hours);
      expect(await admitted(verified(short.key))).toBe(passed);
      expect(await admitted(() => limit('short', 20 * 60_000))).toBe(passed);
    }

    // Ids are in order of creation whatever the clock does, and no id repeats.
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids).toEqual(ids.toSorted());
    const period = { start: halfPastEleven - dayMs, end: halfPastEleven + dayMs, granularity: 'hour' } as const;
    for (const groupBy of [[], ['keyId']] as const) {
      await vi.waitFor(async () => {
        const { data } = await call('analytics.getVerifications', { ...period, apiId, groupBy: [...groupBy] });
        expect(data.reduce((sum, { count }) => sum + count, 0)).toBe(answers);
      });
    }

    report({
      order: '6.1',
      fault: 'The clock of Redis steps back and forth by an hour',
      expected:
        'a unit counts until the clock has moved on by the duration, and no longer; a refill applies once, what was deleted or revoked stays so, ids ascend, every answer is counted once',
      measured: `${steps} steps around midnight: 2 windows of 3 hours open never, 2 of 20 minutes after each step forward of an hour, and 21 minutes after a step back; 1 refill on each of 2 keys, ${ids.length} ids in order, ${answers} answers counted`,
    });
  },
  120_000,
);
