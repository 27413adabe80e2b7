// A ledger of holds over real HTTP: callers are killed between a verification and its settlement, servers and Redis by
// kill -9 in between. Whenever nothing is on its way, granted is spent, held and left; after all expiries nothing is
// held.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { type Client, openClient } from '../support/client.ts';
import { hourMs } from '../support/harness.ts';
import { build, endAll, run, startRedis, startTollgate, temporaryDir } from '../support/processes.ts';
import { random, seed } from '../support/random.ts';
import { report } from './report.ts';

const granted = 10_000_000;
const limit = { name: 'tokens', limit: 1_000_000_000, duration: 24 * hourMs, autoApply: true };
const ttlMs = 3_000;
const callersAtOnce = 6;

beforeAll(build, 120_000);
afterEach(endAll);

/**
 * A caller, as a process of its own: it verifies with a hold, works, and settles. It writes what it is about to settle
 * before it sends that, and what was acknowledged. A settlement without an answer is sent again, to the other server.
 */
const caller = `
  const [file, rootKey, keys, seed] = JSON.parse(process.argv[1]);
  const fs = require('node:fs');
  let state = seed;
  const pick = (max) => { state = (state * 1103515245 + 12345) % 2147483648; return state % max; };
  const line = (...words) => fs.writeSync(1, words.join(' ') + '\\n');
  async function send(name, input) {
    const urls = JSON.parse(fs.readFileSync(file, 'utf8'));
    const signal = AbortSignal.timeout(6000);
    const headers = { authorization: 'Bearer ' + rootKey, 'content-type': 'application/json' };
    const options = { method: 'POST', headers, body: JSON.stringify(input), signal };
    try {
      const response = await fetch(urls[pick(urls.length)] + '/v2/' + name, options);
      return { status: response.status, ...(await response.json()) };
    } catch {
      return { status: 0 };
    }
  }
  const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  async function again(name, input) {
    for (;;) {
      const answer = await send(name, input);
      if (answer.status !== 0 && answer.status !== 503) return answer;
      await wait(20);
    }
  }
  async function work() {
    const key = keys[pick(keys.length)];
    const cost = pick(40);
    const hold = { ttl: ${ttlMs}, ...(pick(2) === 0 && { id: 'own-' + seed + '-' + pick(1e9) }) };
    const request = { key, credits: { cost }, ratelimits: [{ name: 'tokens', cost }], hold };
    const held = hold.id ? await again('keys.verifyKey', request) : await send('keys.verifyKey', request);
    if (held.status !== 200) return line('unanswered', cost);
    const holdId = held.data.hold.id;
    line('held', holdId, cost);
    await wait(pick(15));
    const what = pick(20);
    if (what === 0) return;
    if (what < 3) await again('keys.extendHold', { holdId, ttl: ${ttlMs} });
    if (what < 5) return void (await again('keys.releaseHold', { holdId }));
    const actual = pick(60);
    line('settling', holdId, actual);
    const amounts = { credits: { cost: actual }, ratelimits: [{ name: 'tokens', cost: actual }] };
    const settled = await again('keys.settleHold', { holdId, ...amounts });
    line('settled', holdId, actual, settled.status);
  }
  (async () => { for (;;) await work(); })();
`;

/** What the callers wrote: by hold the amount that they settle, and whether that was acknowledged. */
function openLedger() {
  const ledger = { holds: 0, killed: 0, settling: new Map<string, number>(), settled: new Map<string, number>() };
  const others: string[] = [];
  return {
    ...ledger,
    others,
    read(printed: string) {
      // A killed caller may have written a part of a line.
      for (const line of printed.split('\n').slice(0, -1)) {
        const [what, holdId, cost, status] = line.split(' ') as [string, string, string, string];
        if (what === 'held') this.holds++;
        if (what === 'settling') this.settling.set(holdId, Number(cost));
        if (what === 'settled' && status === '200') this.settled.set(holdId, Number(cost));
        else if (what === 'settled') others.push(line);
      }
    },
  };
}

interface KeyOfLedger {
  keyId: string;
  key: string;
}

/** Credits of a key, which are read while nothing changes. */
async function creditsOf(call: Client['call'], { keyId }: KeyOfLedger) {
  const left = (await call('keys.getKey', { keyId })).data.credits!.remaining;
  let held = 0;
  for (let cursor: string | undefined; ; ) {
    const page = await call('keys.listHolds', { keyId, limit: 100, ...(cursor && { cursor }) });
    for (const { credits } of page.data) held += credits!;
    cursor = page.pagination.cursor;
    if (!cursor) break;
  }
  const period = {
    start: Date.now() - 3 * hourMs,
    end: Date.now() + hourMs,
    granularity: 'total' as const,
    groupBy: [],
  };
  const usage = (await call('analytics.getVerifications', { keyId, ...period })).data;
  return { left, held, spent: usage.reduce((sum, { spentCredits }) => sum + spentCredits, 0) };
}

test('callers, servers and Redis are killed: what is held adds up, and ends', async () => {
  const pick = random(seed);
  const dir = temporaryDir();
  let redis = await startRedis(dir, { fsync: 'always' });
  const settings = { REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '3000' };
  const servers = [await startTollgate(settings), await startTollgate(settings)];
  const rootKey = await servers[0]!.firstRootKey();
  // A server that is started again has another address.
  const file = join(dir, 'urls.json');
  const publish = () => writeFileSync(file, JSON.stringify(servers.map(({ url }) => url)));
  publish();
  const { call } = openClient(servers[1]!.url, rootKey);
  const { apiId } = (await call('apis.createApi', { name: 'holds' })).data;
  const keys: KeyOfLedger[] = [];
  for (let count = 0; count < 3; count++)
    keys.push((await call('keys.createKey', { apiId, credits: { remaining: granted }, ratelimits: [limit] })).data);

  const ledger = openLedger();
  let started = 0;
  const start = () => {
    const argument = JSON.stringify([file, rootKey, keys.map(({ key }) => key), seed + 7919 * started++]);
    return run(process.execPath, ['-e', caller, argument]);
  };
  const callers = Array.from({ length: callersAtOnce }, start);
  const kill = async (index: number) => {
    const killed = callers[index]!;
    await killed.stop('SIGKILL');
    ledger.killed++;
    ledger.read(killed.out);
  };
  /** Stops every caller for a moment, between any two of its steps. */
  const looks: number[] = [];
  const look = async () => {
    for (const { child } of callers) child.kill('SIGSTOP');
    await delay(400);
    for (const key of keys) {
      // What has just expired is held by none, and is given back within the interval of the sweeper.
      const adds = async () => {
        const { left, held, spent } = await creditsOf(call, key);
        expect(left + held + spent, `look ${looks.length}`).toBe(granted);
        return held;
      };
      looks.push(await vi.waitFor(adds, { timeout: 3 * ttlMs, interval: 100 }));
    }
    for (const { child } of callers) child.kill('SIGCONT');
  };

  const rounds = process.env.FAULTS_RESULTS ? 12 : 4;
  for (let round = 0; round < rounds; round++) {
    await delay(pick(300, 900));
    const index = pick(0, callersAtOnce - 1);
    await kill(index);
    callers[index] = start();
    await look();
    if (round % 2 === 0) {
      await servers[0]!.stop('SIGKILL');
      servers[0] = await startTollgate(settings);
      publish();
    } else {
      await redis.stop('SIGKILL');
      redis = await startRedis(dir, { fsync: 'always' });
    }
    await vi.waitFor(async () => expect((await call('apis.getApi', { apiId })).status).toBe(200), 30_000);
  }
  await delay(pick(300, 900));
  for (let index = 0; index < callersAtOnce; index++) await kill(index);

  await vi.waitFor(
    async () => {
      for (const key of keys) expect((await creditsOf(call, key)).held).toBe(0);
    },
    { timeout: 4 * ttlMs, interval: 200 },
  );
  let spent = 0;
  for (const key of keys) {
    await vi.waitFor(async () => {
      const credits = await creditsOf(call, key);
      expect(credits.left + credits.spent).toBe(granted);
    }, 5_000);
    spent += (await creditsOf(call, key)).spent;
  }
  let units = 0;
  for (const { key } of keys) {
    const { ratelimits } = (
      await call('keys.verifyKey', { key, credits: { cost: 0 }, ratelimits: [{ name: 'tokens', cost: 0 }] })
    ).data;
    units += limit.limit - ratelimits![0]!.remaining;
  }
  const sum = (amounts: Map<string, number>) => [...amounts.values()].reduce((all, cost) => all + cost, 0);
  const known = sum(ledger.settled);
  // Each settlement that a killed caller sent was applied once or not at all.
  expect(spent).toBeGreaterThanOrEqual(known);
  expect(spent).toBeLessThanOrEqual(sum(ledger.settling));
  expect(units).toBe(spent);
  expect(ledger.others).toEqual([]);
  expect(looks.some((held) => held > 0)).toBe(true);
  expect(ledger.settled.size).toBeGreaterThan(20);
  report({
    order: '4.5',
    fault:
      'Callers killed between a verification and its settlement; kill -9 of servers and of Redis (`appendfsync always`)',
    expected: 'granted is spent, held and left at every moment; each settlement is charged once; nothing stays held',
    measured:
      `${ledger.holds} holds of ${started} callers, ${ledger.killed} of them killed; ${ledger.settled.size} settlements ` +
      `acknowledged, ${ledger.settling.size - ledger.settled.size} cut off; ${looks.length} looks with up to ` +
      `${Math.max(...looks)} credits held; ${spent} of ${known} to ${sum(ledger.settling)} credits and as many units spent`,
  });
}, 240_000);
