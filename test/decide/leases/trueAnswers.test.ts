// What a lone server answers to a lone client is what Redis alone would answer: `remaining`, `credits`, `reset`, and
// all else. The same requests are sent to a server with leases and to one without, which has a workspace of its own, at
// the same times. A failure prints how many answers differ, and the first one. SEED=<n> repeats it.

import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';
import { heldServers, newName } from './heldServers.ts';

const leased = heldServers(1, { leaseMs: 100 });
const { clock, first } = leased;
const plain = harness(undefined, { leaseMs: 0, nowMs: () => clock.now });

type Call = (typeof first)['ok'];
type Sent = () => Promise<unknown>;
/** What a client may send to one of the servers, the same in the same order on both. */
interface Client {
  requests: Sent[];
  /** Sent much less often. Of their answers, balances are compared. */
  changes?: Sent[];
  /** What is stored in the end, once everything is settled. */
  stored?: Sent[];
}
type Make = (ok: Call, root: (permissions: string[]) => Promise<Call>) => Promise<Client>;

/** Without ids, which differ. */
const verified = (ok: Call, input: InputOf<'keys.verifyKey'>) => async () => {
  const { code, credits, ratelimits } = await ok('keys.verifyKey', input);
  return { code, credits, ratelimits: ratelimits?.map(({ id: _, ...result }) => result) };
};
const checked = (ok: Call, input: InputOf<'ratelimits.limit'>) => async () => {
  const { overrideId, ...result } = await ok('ratelimits.limit', input);
  return { ...result, isOverridden: overrideId !== undefined };
};
const allChecked = (ok: Call, input: InputOf<'ratelimits.multiLimit'>) => async () => {
  const { passed, limits } = await ok('ratelimits.multiLimit', input);
  return { passed, limits: limits.map(({ overrideId: _, identifier: _other, ...result }) => result) };
};

const limit = (name: string, most: number, duration: number) => ({ name, limit: most, duration, autoApply: true });
const requests = limit('requests', 2000, hourMs);

async function newKey(ok: Call, input: Omit<InputOf<'keys.createKey'>, 'apiId'> = {}) {
  const { apiId } = await ok('apis.createApi', { name: 'twins' });
  return { apiId, ...(await ok('keys.createKey', { ...input, apiId })) };
}

/** The balance, the last use and the usage of a key, and of its API. */
const storedOf = (ok: Call, { keyId, apiId }: { keyId: string; apiId: string }): Sent[] => {
  const period = () => ({ start: clock.now - 2 * dayMs, end: clock.now + hourMs, granularity: 'hour' as const });
  return [
    async () => {
      const { credits, lastUsedAt } = await ok('keys.getKey', { keyId });
      return { credits, lastUsedAt };
    },
    () => ok('analytics.getVerifications', { ...period(), keyId }),
    () => ok('analytics.getVerifications', { ...period(), apiId }),
  ];
};

const clients: Record<string, Make> = {
  async 'a limit of a key'(ok) {
    const made = await newKey(ok, { ratelimits: [requests] });
    return { requests: [verified(ok, { key: made.key })], stored: storedOf(ok, made) };
  },
  async 'a limit of a key, at cost 1 and 2'(ok) {
    const { key } = await newKey(ok, { ratelimits: [requests] });
    const two = { key, ratelimits: [{ name: 'requests', cost: 2 }] };
    return { requests: [verified(ok, { key }), verified(ok, two)] };
  },
  async 'a limit of a key, with two tags, and a look'(ok) {
    const { key } = await newKey(ok, { ratelimits: [requests] });
    const look = { key, ratelimits: [{ name: 'requests', cost: 0 }] };
    return { requests: [...['a', 'b'].map((tag) => verified(ok, { key, tags: [tag] })), verified(ok, look)] };
  },
  async 'a limit of a key, by two root keys'(ok, root) {
    const { key } = await newKey(ok, { ratelimits: [requests] });
    return { requests: [verified(ok, { key }), verified(await root(['api.*.verify_key']), { key })] };
  },
  async credits(ok) {
    const made = await newKey(ok, { credits: { remaining: 2000 } });
    return { requests: [verified(ok, { key: made.key })], stored: storedOf(ok, made) };
  },
  async 'credits, at cost 1, 2 and 0, that are used up'(ok) {
    const made = await newKey(ok, { credits: { remaining: 700 } });
    const costs = [1, 2, 0].map((cost) => verified(ok, { key: made.key, credits: { cost } }));
    return { requests: costs, stored: storedOf(ok, made) };
  },
  async 'credits, two limits of the key and two of the identity'(ok) {
    const externalId = newName();
    const ratelimits = [limit('minute', 1500, 60_000), requests];
    await ok('identities.createIdentity', {
      externalId,
      ratelimits: [limit('day', 3000, dayMs), limit('hour', 1200, hourMs)],
    });
    const made = await newKey(ok, { externalId, ratelimits, credits: { remaining: 2000 } });
    const two = { key: made.key, credits: { cost: 2 }, ratelimits: [{ name: 'day', cost: 3 }] };
    return { requests: [verified(ok, { key: made.key }), verified(ok, two)], stored: storedOf(ok, made) };
  },
  async 'a limit of an identity, by two keys'(ok) {
    const externalId = newName();
    await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    const keys = [
      await newKey(ok, { externalId }),
      await newKey(ok, { externalId, ratelimits: [limit('own', 900, hourMs)] }),
    ];
    return { requests: keys.map(({ key }) => verified(ok, { key })) };
  },
  async 'ad hoc limits'(ok) {
    const { key } = await newKey(ok, { ratelimits: [requests] });
    const adHoc = (most: number, duration: number) => ({
      key,
      ratelimits: [{ name: 'requests', limit: most, duration }],
    });
    return {
      requests: [adHoc(900, hourMs), adHoc(1000, 60_000), adHoc(300, hourMs)].map((input) => verified(ok, input)),
    };
  },
  async 'a limit that is full again and again'(ok) {
    const { key } = await newKey(ok, { ratelimits: [limit('second', 90, 1000)] });
    const seven = { key, ratelimits: [{ name: 'second', cost: 7 }] };
    return { requests: [verified(ok, { key }), verified(ok, { key }), verified(ok, seven)] };
  },
  async 'a cost above the limit'(ok) {
    const { key } = await newKey(ok, { ratelimits: [requests] });
    const check = { namespace: 'twins', identifier: newName(), limit: 10, duration: hourMs, cost: 11 };
    return { requests: [verified(ok, { key, ratelimits: [{ name: 'requests', cost: 2001 }] }), checked(ok, check)] };
  },
  async 'a limit of an identifier'(ok) {
    return { requests: [checked(ok, { namespace: 'twins', identifier: newName(), limit: 2000, duration: hourMs })] };
  },
  async 'a limit of an identifier, at three costs'(ok) {
    const check = { namespace: 'twins', identifier: newName(), limit: 1200, duration: hourMs };
    return { requests: [0, 1, 2].map((cost) => checked(ok, { ...check, cost })) };
  },
  async 'two identifiers, which are the same text with the names of their namespaces before them'(ok) {
    const name = newName();
    const of = { limit: 2000, duration: hourMs };
    return {
      requests: [
        checked(ok, { ...of, namespace: 'twins', identifier: `a ${name}` }),
        checked(ok, { ...of, namespace: 'twins a', identifier: name, cost: 3 }),
      ],
    };
  },
  async 'a limit of an identifier that is full again and again, with another limit'(ok) {
    const check = { namespace: 'twins', identifier: newName(), limit: 90, duration: 1000 };
    return { requests: [check, check, { ...check, limit: 120 }].map((input) => checked(ok, input)) };
  },
  async multiLimit(ok) {
    const [one, two] = [newName(), newName()].map((identifier) => ({
      namespace: 'twins',
      identifier,
      limit: 2000,
      duration: hourMs,
    }));
    const both = [one!, { ...two!, cost: 2 }];
    return { requests: [allChecked(ok, both), allChecked(ok, [...both].reverse()), checked(ok, one!)] };
  },
  async 'an override'(ok) {
    const of = { namespace: 'twins', identifier: newName() };
    await ok('ratelimits.setOverride', { ...of, limit: 1500, duration: 2 * hourMs });
    return { requests: [checked(ok, { ...of, limit: 10, duration: 1000 })] };
  },
};

/** With changes by the same client, each of which may happen at any time. */
const changing: Record<string, Make> = {
  async 'a key that is changed'(ok) {
    const refill = { interval: 'daily', amount: 3000 } as const;
    const made = await newKey(ok, { credits: { remaining: 2000, refill }, ratelimits: [requests] });
    const { key, keyId } = made;
    const update = (changes: Omit<InputOf<'keys.updateKey'>, 'keyId'>) => () =>
      ok('keys.updateKey', { keyId, ...changes });
    const credits = (operation: 'increment' | 'decrement', value: number) => async () =>
      (await ok('keys.updateCredits', { keyId, operation, value })).remaining;
    const changes: Sent[] = [
      update({ name: 'renamed' }),
      update({ ratelimits: [{ ...requests, limit: 2100 }] }),
      update({ ratelimits: [{ ...requests, duration: 2 * hourMs }] }),
      update({ ratelimits: [limit('further', 4000, hourMs), requests] }),
      update({ ratelimits: [requests] }),
      update({ enabled: false }),
      update({ enabled: true }),
      update({ credits: { refill: { interval: 'monthly', amount: 100 } } } as never),
      update({ credits: { refill } } as never),
      credits('increment', 50),
      credits('decrement', 50),
      async () => {
        await ok('keys.deleteKey', { keyId });
        await ok('keys.restoreKey', { keyId });
      },
    ];
    const two = { key, credits: { cost: 2 }, ratelimits: [{ name: 'requests', cost: 3 }] };
    return { requests: [verified(ok, { key }), verified(ok, two)], changes, stored: storedOf(ok, made) };
  },
  async 'an identity that is changed'(ok) {
    const identity = newName();
    const another = newName();
    for (const externalId of [identity, another]) {
      await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    }
    const [one, two] = [await newKey(ok, { externalId: identity }), await newKey(ok, { externalId: identity })];
    const update = (ratelimits: (typeof requests)[]) => () => ok('identities.updateIdentity', { identity, ratelimits });
    const link = (externalId: string | null) => () => ok('keys.updateKey', { keyId: one.keyId, externalId });
    const changes: Sent[] = [
      update([{ ...requests, limit: 2200 }]),
      update([{ ...requests, duration: 2 * hourMs }]),
      update([limit('further', 4000, hourMs), requests]),
      update([requests]),
      link(another),
      link(null),
      link(identity),
      () => ok('keys.updateKey', { keyId: one.keyId, ratelimits: [limit('own', 3000, hourMs)] }),
      () => ok('keys.updateKey', { keyId: one.keyId, ratelimits: [] }),
    ];
    return { requests: [one, two].map(({ key }) => verified(ok, { key })), changes, stored: storedOf(ok, one) };
  },
  async 'a limit of a key that ends, and one of its identity'(ok) {
    const identity = newName();
    const shared = limit('shared', 2600, hourMs);
    await ok('identities.createIdentity', { externalId: identity, ratelimits: [shared] });
    const made = await newKey(ok, { externalId: identity, ratelimits: [requests] });
    const { key, keyId } = made;
    const own = (most: number, duration: number, lastsMs?: number) => () => {
      const ratelimit = { name: 'requests', limit: most, duration, ...(lastsMs && { until: clock.now + lastsMs }) };
      return ok('keys.updateKey', { keyId, ratelimit });
    };
    const ofIdentity = (most: number, duration: number, lastsMs?: number) => () => {
      const ratelimit = { name: 'shared', limit: most, duration, ...(lastsMs && { until: clock.now + lastsMs }) };
      return ok('identities.updateIdentity', { identity, ratelimit });
    };
    const added = (lastsMs: number) => () =>
      ok('keys.updateKey', {
        keyId,
        ratelimit: { ...limit('added', 3000, hourMs), until: clock.now + lastsMs },
      });
    const changes: Sent[] = [
      ...[7, 30, 80].flatMap((lastsMs) => [
        own(2200, hourMs, lastsMs),
        own(2200, 2 * hourMs, lastsMs),
        ofIdentity(2700, hourMs, lastsMs),
        ofIdentity(2700, 2 * hourMs, lastsMs),
        added(lastsMs),
      ]),
      own(1, hourMs, 20),
      own(requests.limit, hourMs),
      ofIdentity(shared.limit, hourMs),
    ];
    const two = { key, ratelimits: [{ name: 'requests', cost: 3 }] };
    return { requests: [verified(ok, { key }), verified(ok, two)], changes, stored: storedOf(ok, made) };
  },
  async 'an override that is changed'(ok) {
    const of = { namespace: 'twins', identifier: newName() };
    const set = (most: number, duration: number) => () =>
      ok('ratelimits.setOverride', { ...of, limit: most, duration });
    await set(1500, hourMs)();
    const changes: Sent[] = [
      set(1500, hourMs),
      set(1700, hourMs),
      set(1700, 2 * hourMs),
      () => ok('ratelimits.deleteOverride', of).catch(() => {}),
    ];
    return { requests: [1, 2].map((cost) => checked(ok, { ...of, limit: 1000, duration: hourMs, cost })), changes };
  },
  async 'an override that ends'(ok) {
    const of = { namespace: 'twins', identifier: newName() };
    const set = (most: number, duration: number, lastsMs?: number) => () =>
      ok('ratelimits.setOverride', {
        ...of,
        limit: most,
        duration,
        ...(lastsMs && { until: clock.now + lastsMs }),
      });
    await set(1500, hourMs)();
    const changes: Sent[] = [
      ...[7, 30, 80].flatMap((lastsMs) => [set(1700, hourMs, lastsMs), set(1700, 2 * hourMs, lastsMs)]),
      set(0, hourMs, 20),
      set(1500, hourMs),
      () => ok('ratelimits.deleteOverride', of).catch(() => {}),
    ];
    return { requests: [1, 2].map((cost) => checked(ok, { ...of, limit: 1000, duration: hourMs, cost })), changes };
  },
};

/** With holds that are settled, given back and expire. */
const holding: Record<string, Make> = {
  async 'holds of a key with a limit'(ok) {
    return holdsOf(ok, await newKey(ok, { ratelimits: [requests] }), 1);
  },
  async 'holds of a key with credits and a limit'(ok) {
    return holdsOf(ok, await newKey(ok, { credits: { remaining: 4000 }, ratelimits: [requests] }), 1);
  },
  async 'holds that use up the credits'(ok) {
    return holdsOf(ok, await newKey(ok, { credits: { remaining: 3000 } }), 20);
  },
  async 'holds that use up a limit'(ok) {
    return holdsOf(ok, await newKey(ok, { ratelimits: [limit('requests', 900, 20_000)] }), 20);
  },
  async 'holds of a limit of an identity'(ok) {
    const externalId = newName();
    await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    const other = await newKey(ok, { externalId });
    // Units of expired holds are seen by the leases of other keys when these end.
    const client = await holdsOf(ok, await newKey(ok, { externalId }), 10, 60_000);
    return { ...client, requests: [...client.requests, ...Array(5).fill(verified(ok, { key: other.key }))] };
  },
};

async function holdsOf(
  ok: Call,
  made: { key: string; keyId: string; apiId: string },
  cost: number,
  shortestMs = 1000,
): Promise<Client> {
  const { key } = made;
  const { credits, ratelimits: limits } = await ok('keys.verifyKey', { key });
  const ratelimits = limits?.map(({ name }) => ({ name, cost }));
  const request = { key, ...(credits !== undefined && { credits: { cost } }), ...(ratelimits && { ratelimits }) };
  const open: string[] = [];
  const held = (ttl: number) => async () => {
    const { code, credits, ratelimits, hold } = await ok('keys.verifyKey', { ...request, hold: { ttl } });
    if (hold) open.push(hold.id);
    return { code, credits, ratelimits: ratelimits?.map(({ id: _, ...result }) => result), expires: hold?.expires };
  };
  const settled = (actual: number) => async () => {
    const holdId = open.shift();
    if (!holdId) return undefined;
    const of = ratelimits?.map(({ name }) => ({ name, cost: actual }));
    const amounts = { ...(credits !== undefined && { credits: { cost: actual } }), ...(of && { ratelimits: of }) };
    const { keyId: _, ...answer } = await ok('keys.settleHold', { holdId, ...amounts });
    return answer;
  };
  const released = async () => {
    const holdId = open.pop();
    return holdId && { credits: (await ok('keys.releaseHold', { holdId })).credits };
  };
  const plain = Array<Sent>(14).fill(verified(ok, { key }));
  const ends = [settled(0), settled(cost), settled(3 * cost), released];
  return { requests: [...plain, held(shortestMs), held(60_000), held(60_000), ...ends], stored: storedOf(ok, made) };
}

const plainRoot = async (permissions: string[]): Promise<Call> => {
  const rootKey = await plain.createRootKey(permissions);
  return async (name, input) => (await plain.call(name, input, rootKey)).data;
};
const leasedRoot = async (permissions: string[]): Promise<Call> => {
  const rootKey = await leased.createRootKey(permissions);
  return async (name, input) => (await first.call(name, input, rootKey)).data;
};

const balanceIn = (answer: unknown) => (typeof answer === 'number' ? answer : null);

/**
 * Sends `times` requests, and more while leases have decided few of them; between requests the clock advances by up to
 * `stepMs`. Fails if any answer differs.
 */
async function compare(
  make: Make,
  { times, stepMs, changesOf = 0 }: { times: number; stepMs: number; changesOf?: number },
) {
  const pick = random(seed);
  const one = await make(first.ok, leasedRoot);
  const two = await make(plain.ok, plainRoot);
  const differences: object[] = [];
  async function send(sentTo: (client: Client) => Sent, at: number | string) {
    const [answer, expected] = [await sentTo(one)(), await sentTo(two)()];
    if (JSON.stringify(answer) !== JSON.stringify(expected)) differences.push({ at, answer, expected });
  }
  // Leases decide about a twentieth of the random requests, of which some hold. In some runs it is fewer: what is
  // refused again and again asks for none in up to 512 decisions.
  const isEnough = () => first.counts.decided > times / 50;
  for (let time = 1; time <= times || (!isEnough() && time <= 10 * times); time++) {
    clock.advance(pick(0, stepMs));
    // Lets the server settle what it decided.
    if (pick(1, 50) === 1) await turn();
    const { changes } = one;
    if (changes && pick(1, changesOf) === 1) {
      const number = pick(0, changes.length - 1);
      await send(
        (client) => async () => balanceIn(await client.changes![number]!()),
        `change ${number} before ${time}`,
      );
    }
    const number = pick(0, one.requests.length - 1);
    await send((client) => client.requests[number]!, time);
  }
  // On a busy machine, where terms end before they are used, a few must do.
  expect(first.counts.decided).toBeGreaterThan(0);
  await leased.recallAll();
  for (let number = 0; number < (one.stored?.length ?? 0); number++) {
    await send((client) => client.stored![number]!, `stored ${number}`);
  }
  expect({ seed, wrong: differences.length, of: times, first: differences[0] }).toEqual({
    seed,
    wrong: 0,
    of: times,
    first: undefined,
  });
}

describe('the answers to a lone client are true', () => {
  test.each(Object.entries(clients))('%s', (_what, make) => compare(make, { times: 800, stepMs: 0 }));
});
describe('also while time passes', () => {
  test.each(Object.entries(clients))('%s', (_what, make) => compare(make, { times: 800, stepMs: 8 }));
});
describe('also with changes', () => {
  test.each(Object.entries(changing))('%s', (_what, make) => compare(make, { times: 1500, stepMs: 3, changesOf: 30 }));
});
describe('also with holds', () => {
  test.each(Object.entries(holding))('%s', (_what, make) => compare(make, { times: 1500, stepMs: 8 }));
});
