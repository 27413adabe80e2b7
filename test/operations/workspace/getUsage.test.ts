import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const { call, ok, createKey, clock } = harness();
const nowMs = Date.UTC(2026, 2, 10, 12, 30);
clock.now = nowMs;

const check = { namespace: 'mail', identifier: 'ada', limit: 2, duration: 1000 };
const march = Date.UTC(2026, 2);

describe('workspace.getUsage', () => {
  test('counts the VALID verifications and the limit checks that passed, by month', async () => {
    clock.now = march - 1;
    const { key } = await createKey({ credits: { remaining: 5 } });
    for (let times = 0; times < 2; times++) await ok('keys.verifyKey', { key });
    await ok('ratelimits.limit', check);
    clock.now = march;
    for (let times = 0; times < 4; times++) await ok('keys.verifyKey', { key });
    await ok('keys.verifyKey', { key: 'unknown' });
    clock.now = nowMs;
    for (let times = 0; times < 3; times++) await ok('ratelimits.limit', check);
    await ok('keys.verifyKey', { key, credits: { cost: 0 } });

    const others = {
      compute: { cpuSeconds: 0, memoryGiBHours: 0, storageGiBHours: 0, egressGiB: 0 },
      gateway: { activeKeys: 0 },
    };
    const ofMarch = {
      period: { start: march, end: nowMs },
      totals: { api: { verifications: 4, ratelimits: 2 }, ...others },
      breakdowns: { byEnvironment: [], byApp: [] },
    };
    expect(await ok('workspace.getUsage', {})).toEqual(ofMarch);
    expect(await ok('workspace.getUsage', { period: { year: 2026, month: 3 } })).toEqual(ofMarch);
    expect(await ok('workspace.getUsage', { period: { year: 2026, month: 2 } })).toEqual({
      period: { start: Date.UTC(2026, 1), end: march },
      totals: { api: { verifications: 2, ratelimits: 1 }, ...others },
      breakdowns: { byEnvironment: [], byApp: [] },
    });
  });

  test.each<[string, object]>([
    ['period', { period: { year: 2026, month: 4 } }],
    ['period', { period: { year: 2025, month: 11 } }],
    ['period.month', { period: { year: 2026, month: 13 } }],
    ['period.month', { period: { year: 2026, month: 0 } }],
    ['period.month', { period: { year: 2026 } }],
    ['period.year', { period: { year: '2026', month: 1 } }],
    ['period.day', { period: { year: 2026, month: 1, day: 1 } }],
    ['period', { period: null }],
  ])('400 for %s: %j', async (field, input) => {
    expect(await call('workspace.getUsage', input as never)).toMatchObject(invalidAt(`body.${field}`));
  });

  test.each(['api.*.read_analytics', 'ratelimit.*.read_analytics'])('403 with %s alone', async (grant) => {
    expect(await call('workspace.getUsage', {}, [grant])).toMatchObject({ status: 403 });
  });
});
