// Four servers on one Redis verify and manage the same keys at once: exactly as many admissions as limits and credits
// allow, and every response is counted.

import { afterEach, beforeAll, expect, test } from 'vitest';
import { type Client, openClient } from '../support/client.ts';
import { build, endAll, startRedis, startTollgate, temporaryDir } from '../support/processes.ts';
import { random, seed } from '../support/random.ts';
import { report } from './report.ts';

const servers = 4;
const callersEach = 6;
const callsEach = 80;

beforeAll(build, 120_000);
afterEach(endAll);

type Call = Client['call'];

test('four servers on one Redis admit exactly what limits and credits allow, and count every answer', async () => {
  const redis = await startRedis(temporaryDir());
  // The first one starts alone, because it prints the root key.
  const first = await startTollgate({ REDIS_URL: redis.url });
  const rootKey = await first.firstRootKey();
  const others = await Promise.all(Array.from({ length: servers - 1 }, () => startTollgate({ REDIS_URL: redis.url })));
  const calls: Call[] = [first, ...others].flatMap(({ url }) =>
    Array.from({ length: callersEach }, () => openClient(url, rootKey).call),
  );
  const [ask] = calls as [Call];

  const { apiId } = (await ask('apis.createApi', { name: 'shared' })).data;
  const create = async (input: object) => (await ask('keys.createKey', { apiId, ...input })).data;
  const duration = 20 * 60_000;
  const credits = 400;
  const limit = 300;
  const shared = 250;
  const identified = 200;
  await ask('identities.createIdentity', {
    externalId: 'ada',
    ratelimits: [{ name: 'shared', limit: shared, duration, autoApply: true }],
  });
  const keys = {
    credits: await create({ credits: { remaining: credits } }),
    limited: await create({ ratelimits: [{ name: 'requests', limit, duration, autoApply: true }] }),
    ada: await create({ externalId: 'ada' }),
    adaToo: await create({ externalId: 'ada' }),
    both: await create({
      credits: { remaining: credits },
      ratelimits: [{ name: 'requests', limit: 150, duration, autoApply: true }],
    }),
    managed: await create({ credits: { remaining: 100_000 } }),
  };
  await ask('ratelimits.limit', { namespace: 'shared', identifier: 'first', limit: 1, duration });

  /** Number of responses by key and code. */
  const answered = new Map<string, number>();
  const count = (what: string, by = 1) => answered.set(what, (answered.get(what) ?? 0) + by);
  const countOf = (what: string) => answered.get(what) ?? 0;
  const codesOf = (keyId: string) =>
    Object.fromEntries(
      [...answered].filter(([what]) => what.startsWith(keyId)).map(([what, n]) => [what.split(' ')[1], n]),
    );
  const topUp = 3;

  await Promise.all(
    calls.map(async (call, index) => {
      const pick = random(seed + index);
      const names = Object.keys(keys) as (keyof typeof keys)[];
      for (let step = 0; step < callsEach; step++) {
        const name = names[pick(0, names.length - 1)]!;
        const { key, keyId } = keys[name];
        const action = pick(1, 20);
        if (action === 1) {
          const answer = await call('keys.updateCredits', {
            keyId: keys.credits.keyId,
            operation: 'increment',
            value: topUp,
          });
          expect(answer.status).toBe(200);
          count('granted', topUp);
        } else if (action === 2) {
          expect((await call('keys.updateKey', { keyId: keys.managed.keyId, enabled: pick(0, 1) === 1 })).status).toBe(
            200,
          );
          count('changed');
        } else if (action === 3) {
          expect(
            (await call('keys.addPermissions', { keyId: keys.managed.keyId, permissions: [`a.${pick(1, 9)}`] })).status,
          ).toBe(200);
          count('changed');
        } else if (action <= 6) {
          const identifier = 'everybody';
          const answer = await call('ratelimits.limit', {
            namespace: 'shared',
            identifier,
            limit: identified,
            duration,
          });
          count(answer.data.success ? 'passed' : 'blocked');
        } else {
          const { status, data } = await call('keys.verifyKey', { key });
          expect(status).toBe(200);
          count(`${keyId} ${data.code}`);
        }
      }
    }),
  );
  // Until nothing is left to admit: the number admitted is only exact if some requests were refused.
  const drain = async (keyId: string, key: string, code: string) => {
    while (countOf(`${keyId} ${code}`) === 0) {
      for (const { data } of await Promise.all(calls.map((call) => call('keys.verifyKey', { key })))) {
        count(`${keyId} ${data.code}`);
      }
    }
  };
  await drain(keys.credits.keyId, keys.credits.key, 'USAGE_EXCEEDED');
  await drain(keys.limited.keyId, keys.limited.key, 'RATE_LIMITED');
  await drain(keys.ada.keyId, keys.ada.key, 'RATE_LIMITED');
  await drain(keys.both.keyId, keys.both.key, 'RATE_LIMITED');
  while (countOf('blocked') === 0) {
    const answer = await ask('ratelimits.limit', {
      namespace: 'shared',
      identifier: 'everybody',
      limit: identified,
      duration,
    });
    count(answer.data.success ? 'passed' : 'blocked');
  }

  const left = async (keyId: string) => (await ask('keys.getKey', { keyId })).data.credits!.remaining!;
  const valid = (key: { keyId: string }) => countOf(`${key.keyId} VALID`);
  // In any order of the increments: granted = charged + left.
  const granted = credits + countOf('granted');
  expect(valid(keys.credits) + (await left(keys.credits.keyId))).toBe(granted);
  expect(valid(keys.limited)).toBe(limit);
  expect(valid(keys.ada) + valid(keys.adaToo)).toBe(shared);
  // Requests that the limit refuses are not charged.
  expect(valid(keys.both)).toBe(150);
  expect(await left(keys.both.keyId)).toBe(credits - 150);
  expect(valid(keys.managed) + (await left(keys.managed.keyId))).toBe(100_000);
  expect(countOf('passed')).toBe(identified);

  const period = { start: Date.now() - 2 * 3_600_000, end: Date.now() + 3_600_000, granularity: 'day' } as const;
  let counted = 0;
  for (const { keyId } of Object.values(keys)) {
    const rows = await ask('analytics.getVerifications', { ...period, apiId, keyId });
    const counts: Record<string, number> = {};
    for (const row of rows.data) counts[row.outcome!] = (counts[row.outcome!] ?? 0) + row.count;
    expect(counts).toEqual(codesOf(keyId));
    counted += Object.values(counts).reduce((sum, n) => sum + n, 0);
  }
  const total = await ask('analytics.getVerifications', { ...period, apiId, groupBy: [] });
  expect(total.data.reduce((sum, row) => sum + row.count, 0)).toBe(counted);
  const limits = await ask('analytics.getRatelimits', { ...period, namespace: 'shared', identifier: 'everybody' });
  expect(limits.data.reduce((sum, row) => sum + row.passed, 0)).toBe(countOf('passed'));
  expect(limits.data.reduce((sum, row) => sum + row.blocked, 0)).toBe(countOf('blocked'));

  const audited: Record<string, number> = {};
  for (let cursor: string | undefined; ; ) {
    const page = await ask('audit.listEvents', { limit: 100, ...(cursor && { cursor }) });
    for (const { operation } of page.data) audited[operation] = (audited[operation] ?? 0) + 1;
    cursor = page.pagination.cursor;
    if (!cursor) break;
  }
  expect(audited['keys.updateCredits']).toBe(countOf('granted') / topUp);
  expect((audited['keys.updateKey'] ?? 0) + (audited['keys.addPermissions'] ?? 0)).toBe(countOf('changed'));

  report({
    order: '7.1',
    fault: 'Four servers on one Redis verify and manage the same keys at once',
    expected:
      'admissions = what limits and credits allow; credits granted = charged + left; usage counts = answers given',
    measured:
      `${counted} verifications, ${countOf('passed') + countOf('blocked')} limit checks, ${countOf('changed') + countOf('granted') / topUp} changes ` +
      `from ${calls.length} callers; admitted ${valid(keys.limited)} of a limit of ${limit}, ${valid(keys.ada) + valid(keys.adaToo)} of ` +
      `${shared} shared by two keys, ${countOf('passed')} of ${identified}; ${granted} credits granted = ${valid(keys.credits)} charged + ` +
      `${await left(keys.credits.keyId)} left; every answer counted once`,
  });
});
