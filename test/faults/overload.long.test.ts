// Overload. Redis is slowed down, so that a few requests are too many. Requests arrive at three times the rate that is
// served, without waiting for responses. Each must be served in bounded time, or refused at once.

import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Answered } from '../support/client.ts';
import { report } from './report.ts';
import { atRate, percentile, type Rig, startRig } from './rig.ts';

const inFlightMax = 50;
const redisTimeoutMs = 2000;
/**
 * Redis sleeps this long again and again. Between two sleeps it serves the requests in flight, at most `inFlightMax`.
 */
const standstillMs = 150;
/** Tolerance for other load of the machine. */
const slackMs = 400;

let rig: Rig;
let key: string;

beforeEach(async () => {
  rig = await startRig({
    redis: ['--enable-debug-command', 'local'],
    env: { IN_FLIGHT_MAX: `${inFlightMax}`, REDIS_TIMEOUT_MS: `${redisTimeoutMs}` },
  });
  const { apiId } = await rig.ok('apis.createApi', { name: 'overload' });
  ({ key } = await rig.ok('keys.createKey', { apiId, credits: { remaining: credits } }));
});
afterEach(() => rig.stop());

const credits = 1_000_000_000;

/** Returns a function that ends it. */
function slowRedis() {
  let stopped = false;
  async function run() {
    while (!stopped) await rig.admin.call('DEBUG', 'SLEEP', `${standstillMs / 1000}`);
  }
  const running = run();
  return async () => {
    stopped = true;
    await running;
  };
}

type Call = () => Promise<Answered>;

/** Requests served per second when `inFlightMax` callers each wait for their response. */
async function servedPerSecond(call: Call, seconds: number): Promise<number> {
  const startedAt = performance.now();
  const until = startedAt + seconds * 1000;
  let served = 0;
  const caller = async () => {
    while (performance.now() < until) if ((await call()).status === 200) served++;
  };
  await Promise.all(Array.from({ length: inFlightMax }, caller));
  // The last requests of the callers are served after that: counted without their time they were half of the rate.
  return served / ((performance.now() - startedAt) / 1000);
}

/** The refusals of verifications have 503, as they wait for Redis, and those of management 429. */
function sortOut(answers: readonly Answered[], refusal: number) {
  const took = (status: number) => answers.filter((answer) => answer.status === status).map(({ tookMs }) => tookMs);
  const others = new Set(answers.map(({ status }) => status).filter((status) => status !== 200 && status !== refusal));
  return { served: took(200), refused: took(refusal), others: [...others] };
}

const verify = () => rig.send('keys.verifyKey', JSON.stringify({ key }));
const create = () => rig.send('apis.createApi', '{"name":"one more"}');

const ms = (value: number) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;

test.each([
  ['verifications', verify, 503],
  ['management requests', create, 429],
])(
  'three times the %s that can be served: the rest is refused at once, and afterwards all are served',
  async (what, call, refusal) => {
    let charged = 0;
    const counted: Call = async () => {
      const answer = await call();
      if (answer.status === 200) charged++;
      return answer;
    };
    await servedPerSecond(counted, 1); // Warm.
    const restore = slowRedis();
    const rate = await servedPerSecond(counted, 3);
    await atRate(3 * rate, 3, counted);
    const memoryBefore = rig.server.memoryMb();
    const { served, refused, others } = sortOut(await atRate(3 * rate, 10, counted), refusal);
    const memoryAfter = rig.server.memoryMb();
    await restore();
    const well = sortOut(await atRate(50, 1, counted), refusal);

    expect(others).toEqual([]);
    // As many are served as without the overload, each before the timeout.
    expect(served.length).toBeGreaterThan(0.5 * 10 * rate);
    // A management request has two round trips to Redis after it has waited: for the root key, and for its script.
    const afterWaiting = call === verify ? 0 : 2 * standstillMs;
    expect(percentile(served, 99)).toBeLessThan(redisTimeoutMs + afterWaiting + slackMs);
    // Refused without waiting for Redis, which nearly always sleeps for longer than that.
    expect(refused.length).toBeGreaterThan(10 * rate);
    expect(percentile(refused, 50)).toBeLessThan(standstillMs / 3);
    expect(memoryAfter).toBeLessThan(memoryBefore + 30);
    expect({ ...well, served: well.served.length }).toEqual({ served: 50, refused: [], others: [] });
    expect(percentile(well.served, 50)).toBeLessThan(standstillMs);
    if (call === verify) {
      const { data } = JSON.parse(
        (await rig.send('keys.verifyKey', JSON.stringify({ key, credits: { cost: 0 } }))).body,
      );
      expect(data.credits).toBe(credits - charged);
    }

    report({
      order: '10.1',
      fault: `Overload: three times the ${what} that can be served (${Math.round(rate)}/s, IN_FLIGHT_MAX ${inFlightMax}, Redis answering every ${standstillMs} ms)`,
      expected: `as many served as before, in bounded time; the rest ${refusal} at once; memory flat; well again at once`,
      measured: `${Math.round(served.length / 10)}/s served with p99 ${ms(percentile(served, 99))}; ${Math.round(refused.length / 10)}/s refused in ${ms(percentile(refused, 50))} (median); memory ${memoryBefore.toFixed(0)} to ${memoryAfter.toFixed(0)} MB; then ${ms(percentile(well.served, 50))}`,
    });
  },
  120_000,
);
