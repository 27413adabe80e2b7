// The circuit breaker, with a real Redis that hangs (SIGSTOP: its connections stay open) and continues.

import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { presented } from '../../src/domain/keyString.ts';
import { openStore, type Store } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { openRedisProcess } from '../support/processes.ts';
import { redisNodes } from '../support/redisNodes.ts';
import { thoroughTest } from '../support/testIf.ts';
import { unitMs } from '../support/unit.ts';

/** Every limit of time here is a multiple of it. */
const commandTimeoutMs = Math.ceil(400 * unitMs());

let redis: Awaited<ReturnType<typeof openRedisProcess>>;
let store: Store;
const events: string[] = [];

const open = (url: string, to = events) =>
  openStore({ ...testSettings, url, commandTimeoutMs, onEvent: (message) => void to.push(message) });

beforeEach(async () => {
  events.length = 0;
  redis = await openRedisProcess();
  store = await open(redis.url);
});
afterEach(async () => {
  redis.signal('SIGCONT');
  await store.close();
  await redis.close();
});

/** The result of a check with a made-up root key: `unauthorized` means that Redis decided. */
async function check(workspaceId = 'ws_1', of = store): Promise<{ code: string; ms: number }> {
  const startedAt = performance.now();
  const rootKey = { ...presented('no root key'), workspaceId };
  const limit = { namespace: 'n', identifier: 'i', limit: 1, durationMs: 1000, cost: 1 };
  const code = await Promise.resolve(of.decide.limitChecks.prepare(rootKey, [limit]).decide()).then(
    () => 'decided',
    (error) => error.code,
  );
  return { code, ms: performance.now() - startedAt };
}

/** Stops Redis. Resolves when requests are refused at once. */
async function openBreaker() {
  redis.signal('SIGSTOP');
  expect((await check()).ms).toBeGreaterThan(commandTimeoutMs / 2);
  await vi.waitFor(async () => expect((await check()).ms).toBeLessThan(commandTimeoutMs / 2), {
    timeout: 12 * commandTimeoutMs,
  });
}

const callsOf = async (admin: Redis) => /cmdstat_fcall:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? '0';

test('a Redis that hangs delays requests by one and a half command timeouts; then they fail immediately and are not sent', async () => {
  const admin = new Redis(redis.socket);
  onTestFinished(() => void admin.disconnect());
  expect((await check()).code).toBe('unauthorized');
  const before = Number(await callsOf(admin));

  redis.signal('SIGSTOP');
  const stoppedAt = performance.now();
  const early = await Promise.all(Array.from({ length: 20 }, () => check()));
  expect(new Set(early.map(({ code }) => code))).toEqual(new Set(['store_unavailable']));
  await delay((3 / 4) * commandTimeoutMs - Math.max(0, performance.now() - stoppedAt - commandTimeoutMs));
  const late: number[] = [];
  for (let request = 0; request < 50; request++) {
    const { code, ms } = await check(`ws_${request}`);
    expect(code).toBe('store_unavailable');
    late.push(ms);
  }
  expect(Math.max(...late)).toBeLessThan(commandTimeoutMs / 4);

  redis.signal('SIGCONT');
  await vi.waitFor(async () => expect((await check()).code).toBe('unauthorized'), {
    timeout: 3 * commandTimeoutMs,
    interval: 10,
  });
  // The first 20 were one batch. The 50 were not sent to Redis.
  expect(Number(await callsOf(admin)) - before).toBeLessThan(10);
  for (let request = 0; request < 50; request++) expect((await check()).code).toBe('unauthorized');
  expect(events).toEqual([
    'Redis: it does not reply; commands fail at once until it does',
    expect.stringMatching(/^Redis: it replies again, \d+\.\d s after the first timeout$/),
  ]);
});

test('the first request after a hang is served, also if there were none meanwhile', async () => {
  await openBreaker();
  redis.signal('SIGCONT');
  await vi.waitFor(() => expect(events.at(-1)).toMatch(/replies again/), { timeout: 3 * commandTimeoutMs });
  expect((await check()).code).toBe('unauthorized');
});

test('a server that was itself stopped for a while does not refuse later requests', async () => {
  const during = check();
  await new Promise(setImmediate);
  const startedAt = performance.now();
  while (performance.now() - startedAt < 2 * commandTimeoutMs);
  await during;
  const after = await Promise.all(Array.from({ length: 20 }, () => check()));
  expect(after.map(({ code }) => code)).toEqual(Array.from({ length: 20 }, () => 'unauthorized'));
  for (let request = 0; request < 20; request++) expect((await check()).code).toBe('unauthorized');
  expect(events).toEqual([]);
});

test('a Redis that is killed while it hangs is used again after its restart', async () => {
  await openBreaker();
  await redis.kill();
  expect((await check()).code).toBe('store_unavailable');
  await redis.start();
  await vi.waitFor(async () => expect((await check()).code).toBe('unauthorized'), {
    timeout: 8 * commandTimeoutMs,
    interval: 20,
  });
});

thoroughTest('a store can be closed while the breaker is open, and then sends no probes', async () => {
  // The other store of this file goes on with its heartbeat.
  const own: string[] = [];
  const other = await open(redis.url, own);
  redis.signal('SIGSTOP');
  await check('ws_1', other);
  await delay(commandTimeoutMs);
  const count = own.length;
  expect(count).toBeGreaterThan(0);
  await other.close();
  redis.signal('SIGCONT');
  await delay(3 * commandTimeoutMs);
  expect(own.length).toBe(count);
});

thoroughTest(
  'in a Cluster the workspaces of a node that hangs are refused at once, those of the others are served',
  async () => {
    const nodes = redisNodes();
    onTestFinished(() => nodes.stop());
    const { url, masters } = await nodes.startCluster({ nodeTimeoutMs: 60_000 });
    const clustered = await open(url);
    onTestFinished(() => clustered.close());

    const slots = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        const workspaceId = `ws_${index}`;
        return { workspaceId, slot: (await masters[0]!.admin.cluster('KEYSLOT', `{${workspaceId}}`)) as number };
      }),
    );
    const [hanging, well] = [slots.filter(({ slot }) => slot < 5461), slots.filter(({ slot }) => slot >= 5461)].map(
      (some) => some.slice(0, 5),
    );
    const all = async (some = well!) => Promise.all(some.map(async ({ workspaceId }) => check(workspaceId, clustered)));

    expect(new Set((await all([...hanging!, ...well!])).map(({ code }) => code))).toEqual(new Set(['unauthorized']));
    masters[0]!.process.kill('SIGSTOP');
    onTestFinished(() => void masters[0]!.process.kill('SIGCONT'));
    await all(hanging);
    await delay(commandTimeoutMs);
    for (const { code, ms } of await all(hanging)) {
      expect(code).toBe('store_unavailable');
      expect(ms).toBeLessThan(commandTimeoutMs / 2);
    }
    for (const { code } of await all(well)) expect(code).toBe('unauthorized');
    masters[0]!.process.kill('SIGCONT');
    await vi.waitFor(
      async () => {
        for (const { code } of await all(hanging)) expect(code).toBe('unauthorized');
      },
      { timeout: 5 * commandTimeoutMs, interval: 20 },
    );
  },
);
