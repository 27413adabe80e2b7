// While leases are recalled for a request, no others are granted: so it waits for one recall, whatever others ask for.

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { Decide } from '../../../src/decide/decide.ts';
import { digestTextOf } from '../../../src/domain/keyString.ts';
import { harness } from '../../support/harness.ts';
import { redisOfFile } from '../../support/ofFile.ts';
import { openServer, presentedOf, untilGranted } from './lateServer.ts';

const leaseMs = 40;
/** The pause: two terms and 100 ms. */
const pauseMs = 2 * leaseMs + 100;

// Redis's clock stands still, so that a pause ends when the test says so.
const app = harness(undefined, { leaseMs: 0 });
type Server = Awaited<ReturnType<typeof openServer>>;
const redis = await redisOfFile();
let holder: Server;
let waiting: Server;
let newcomer: Server;
let withoutLeases: Server;
beforeAll(async () => {
  const open = (term: number) => openServer(redis, term, () => app.clock.now);
  [holder, waiting, newcomer, withoutLeases] = [
    await open(leaseMs),
    await open(leaseMs),
    await open(leaseMs),
    await open(0),
  ];
  // A server asks for leases from a term after it connected on, once it hears of recalls.
  const warm = checkOf(randomBytes(4).toString('hex'));
  for (const server of [holder, waiting, newcomer]) await untilGranted(server, () => warm(server, 1));
});
afterAll(() => Promise.all([holder, waiting, newcomer, withoutLeases].map(({ decider }) => decider.leasing.close())));

const presented = () => presentedOf(app);

/** Whether a request of this cost passes, of a limit or balance of 1000. */
type Request = (server: { decider: Decide }, cost: number) => Promise<boolean>;

function checkOf(identifier: string): Request {
  const check = { namespace: 'pause', identifier, limit: 1000, durationMs: 3_600_000 };
  return async ({ decider }, cost) =>
    (await decider.limitChecks.prepare(presented(), [{ ...check, cost }]).decide()).passed;
}

/** With a limit of its own, or credits: a request of several units names the cost of either. */
function verificationOf(key: string): Request {
  return async ({ decider }, cost) => {
    const ratelimits = [{ name: 'requests', cost }];
    const request = { digest: digestTextOf(key), cost: 0, ratelimits };
    return (await decider.verifications.prepare(presented(), request).decide()).outcome === 'VALID';
  };
}

const ratelimits = [{ name: 'requests', limit: 1000, duration: 3_600_000 }];
const kinds: Record<string, () => Promise<{ [who in 'holder' | 'waiting' | 'newcomer']: Request }>> = {
  async 'a limit check'() {
    const request = checkOf(randomBytes(4).toString('hex'));
    return { holder: request, waiting: request, newcomer: request };
  },
  async 'a verification'() {
    const request = verificationOf((await app.createKey({ ratelimits })).key);
    return { holder: request, waiting: request, newcomer: request };
  },
  async 'verifications of keys that share an identity'() {
    const externalId = randomBytes(4).toString('hex');
    await app.ok('identities.createIdentity', { externalId, ratelimits });
    const keys = await Promise.all(
      [1, 2, 3].map(async () => verificationOf((await app.createKey({ externalId })).key)),
    );
    return { holder: keys[0]!, waiting: keys[1]!, newcomer: keys[2]! };
  },
};

test.each(Object.entries(kinds))('%s', async (_kind, make) => {
  const by = await make();
  const spent = await untilGranted(holder, () => by.holder(holder, 1));
  holder.isLate = true;
  newcomer.granted.length = 0;
  waiting.recalls.length = 0;

  // One unit more than there are, so that it is refused in the end, and others find units.
  const refused = by.waiting(waiting, 1000 - spent + 1);
  await vi.waitFor(() => expect(waiting.recalls).toEqual([leaseMs]), { timeout: 15_000, interval: 1 });
  for (let times = 0; times < 20; times++) expect(await by.newcomer(newcomer, 1)).toBe(true);
  expect(newcomer.granted).toEqual([]);
  holder.isLate = false;
  expect(await refused).toBe(false);
  expect(waiting.recalls).toEqual([leaseMs]);

  // A server that is granted nothing asks again some 30 requests later.
  app.clock.advance(pauseMs - 1);
  for (let times = 0; times < 80; times++) await by.newcomer(newcomer, 1);
  expect(newcomer.granted).toEqual([]);
  app.clock.advance(1);
  await untilGranted(newcomer, () => by.newcomer(newcomer, 1));
});

test('a server without leases waits for the term of the others', async () => {
  const request = checkOf(randomBytes(4).toString('hex'));
  const spent = await untilGranted(holder, () => request(holder, 1));
  holder.isLate = true;
  expect(await request(withoutLeases, 1000 - spent)).toBe(false);
  expect(withoutLeases.recalls).toEqual([leaseMs]);
  holder.isLate = false;
});
