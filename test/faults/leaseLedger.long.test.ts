// An outside checker of leases in calm: four servers on one Redis under load, with LEASE_CREDITS=1, while everything
// that leases depend on is changed at random servers. In the end each window has counted what was admitted, each
// balance lacks what was spent, and usage is what was answered: nothing is lost, and nothing is counted twice.
//
// LEDGER_SECONDS=1800 runs for half an hour, SEED=<n> repeats the choices, and LEDGER_LEASE_MS=0 checks the checker.

import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { lengthOf, storedDuration } from '../../src/domain/quota.ts';
import { dayMs, hourMs, type InputOf } from '../support/harness.ts';
import { build, endAll } from '../support/processes.ts';
import { random, seed } from '../support/random.ts';
import { decidedLocally, type LeaseRig, type LeaseServer, openLeaseRig } from './leaseRig.ts';
import { report } from './report.ts';

const seconds = Number(process.env.LEDGER_SECONDS ?? 60);
const leaseMs = Number(process.env.LEDGER_LEASE_MS ?? 100);
vi.setConfig({ testTimeout: 1000 * seconds + 240_000 });
beforeAll(build, 120_000);
afterEach(endAll);

const callersEach = 3;
/** More than any window counts. */
const large = 100_000_000;
/** A quota whose period neither begins nor ends during the test. */
const quota = { period: 'year' as const, anchor: Date.now() - 180 * dayMs };
const quotaLength = lengthOf(storedDuration(quota), Date.now());
/** No unit expires during the test. The last one is that of the quota. */
const durations = [dayMs, 2 * dayMs, quotaLength] as const;
const lasting = (duration: number) => (duration === quotaLength ? quota : { duration });

/** A sum for each name. */
class Sums extends Map<string, number> {
  add(name: string, units: number) {
    this.set(name, this.of(name) + units);
  }
  of(name: string): number {
    return this.get(name) ?? 0;
  }
}

/** What was answered. */
class Answers {
  /** Units by window: `owner name duration`. The owner is a key, an identity or an identifier. */
  readonly admitted = new Sums();
  /** Credits by key. */
  readonly spent = new Sums();
  /** Answers by `what outcome`: a key, an identity, an API, a tag. */
  readonly outcomes = new Sums();
  /** Answers by hour, certainly and perhaps in it. */
  readonly surely = new Sums();
  readonly perhaps = new Sums();
  total = 0;

  count(names: readonly string[], code: string, sentAt: number) {
    for (const name of names) this.outcomes.add(`${name} ${code}`, 1);
    const [from, to] = [sentAt, Date.now()].map((time) => Math.floor(time / hourMs)) as [number, number];
    if (from === to) this.surely.add(`${from}`, 1);
    for (let hour = from; hour <= to; hour++) this.perhaps.add(`${hour}`, 1);
  }
}

interface Key {
  key: string;
  keyId: string;
  externalId?: string | undefined;
  /** What was granted to its balance; undefined for none. */
  credits?: number;
  /** What its requests name: costs, an ad hoc limit, tags. */
  requests: Omit<InputOf<'keys.verifyKey'>, 'key'>[];
}

type Ratelimit = NonNullable<InputOf<'keys.createKey'>['ratelimits']>[number];
/** Limits of keys are named key1 and so on, those of identities ids1: an answer tells them apart. */
const limit = (name: string, most = 500, duration: number = durations[0]): Ratelimit => ({
  name,
  limit: most,
  ...lasting(duration),
  type: duration === quotaLength ? 'quota' : 'window',
  autoApply: true,
});
const refills = [1000, 2000, 3000].map((amount) => ({ interval: 'monthly' as const, amount, refillDay: refillDay() }));
/** No refill is due during the test. */
function refillDay() {
  return (new Date(Date.now() + 15 * dayMs).getUTCDate() % 28) + 1;
}

/** The remainder of the number of a check, also of an override, is the index of its duration. */
const checkLimit = 9_000_000;
const checkOf = (identifier: string): InputOf<'ratelimits.limit'> => ({
  namespace: 'ledger',
  identifier,
  limit: checkLimit,
  duration: durations[0],
});

async function openLedger(rig: LeaseRig) {
  const pick = random(seed);
  const answers = new Answers();
  const one = <Item>(items: readonly Item[]): Item => items[pick(0, items.length - 1)]!;
  const anyServer = () => one(rig.servers).client;
  const { apiId } = rig;

  const identities = ['ada', 'bob'];
  for (const externalId of identities)
    await rig.ok('identities.createIdentity', { externalId, ratelimits: [limit('ids1')] });
  const roleId = (await rig.ok('permissions.createRole', { name: 'reader', permissions: ['docs.read'] })).roleId;
  const newKey = async (
    requests: Key['requests'],
    { remaining, ...input }: Omit<InputOf<'keys.createKey'>, 'apiId'> & { remaining?: number } = {},
  ): Promise<Key> => {
    const credits = remaining === undefined ? {} : { credits: { remaining, refill: refills[0] } };
    const created = await rig.newKey({ ...input, ...credits });
    return {
      ...created,
      externalId: input.externalId,
      requests,
      ...(remaining !== undefined && { credits: remaining }),
    };
  };
  const two = { ratelimits: [{ name: 'key1', cost: 2 }] };
  const limited = [
    await newKey([{}], { ratelimits: [limit('key1')] }),
    await newKey([{}, two], { ratelimits: [limit('key1')] }),
  ];
  // Only its number changes, because a deletion erases the counters of limits that a key has no more.
  const numbered = await newKey([{}], { ratelimits: [limit('key1')] });
  const renewed = await newKey([{}], { ratelimits: [limit('key1', 500, quotaLength)] });
  const members = [
    await newKey([{}], { externalId: 'ada' }),
    await newKey([{ tags: ['a'] }, { tags: ['b'] }, { tags: ['a', 'b'] }], { externalId: 'ada' }),
    await newKey([{}, { tags: ['a'] }], { externalId: 'bob', ratelimits: [limit('key1', 5000)] }),
  ];
  const credited = [
    await newKey([{}], { remaining: 50_000 }),
    await newKey([{}, { credits: { cost: 3 } }], { remaining: 80_000 }),
    await newKey([{ tags: ['b'] }, {}, { tags: ['c', 'b'] }], {
      remaining: 30_000,
      externalId: 'bob',
      ratelimits: [limit('key1', 2000)],
    }),
  ];
  const adHoc = [await newKey([{ ratelimits: [{ name: 'key3', limit: 1_000_000, duration: durations[0] }] }])];
  const permanent = [...limited, numbered, renewed, ...members, ...credited, ...adHoc];
  const identifiers = ['x', 'y'];
  /** Keys that are used and deleted for good, one after the other. */
  const mortal: { now: Key; all: Key[] } = { now: await newKey([{}], { externalId: 'ada' }), all: [] };
  mortal.all.push(mortal.now);
  /** What most requests are about, for a second or so. */
  let hot: (() => Key | string)[] = [];
  const things = [
    ...permanent.map((key) => () => key),
    () => mortal.now,
    ...identifiers.map((identifier) => () => identifier),
  ];
  const heat = () => (hot = [one(things), one(things), () => mortal.now]);
  heat();

  async function verify({ client }: LeaseServer, of: Key) {
    const request = one(of.requests);
    const sentAt = Date.now();
    const { status, data } = await client.call('keys.verifyKey', { key: of.key, ...request });
    expect(status).toBe(200);
    const { code, valid, credits, ratelimits = [], identity } = data;
    answers.total++;
    if (code === 'NOT_FOUND') return;
    const names = [of.keyId, apiId, ...(identity ? [identity.externalId] : []), ...(request.tags ?? [])];
    answers.count(names, code, sentAt);
    if (!valid) return;
    if (credits !== undefined) answers.spent.add(of.keyId, request.credits?.cost ?? 1);
    for (const { name, duration } of ratelimits) {
      const owner = name.startsWith('i') ? identity!.externalId : of.keyId;
      answers.admitted.add(
        `${owner} ${name} ${duration}`,
        request.ratelimits?.find((each) => each.name === name)?.cost ?? 1,
      );
    }
  }

  async function check({ client }: LeaseServer, identifier: string) {
    const cost = pick(1, 8) === 1 ? 2 : 1;
    const { status, data } = await client.call('ratelimits.limit', { ...checkOf(identifier), cost });
    expect(status).toBe(200);
    answers.total++;
    answers.outcomes.add(`${identifier} ${data.success ? 'passed' : 'blocked'}`, 1);
    if (data.success) answers.admitted.add(`${identifier} ${durations[data.limit % 3]}`, cost);
  }

  /** A caller of a server, until `isDone`. */
  async function load(server: LeaseServer, isDone: () => boolean) {
    while (!isDone()) {
      const thing = (pick(1, 10) === 1 ? one(things) : one(hot))();
      for (let times = 0; times < 30 && !isDone(); times++) {
        if (typeof thing === 'string') await check(server, thing);
        else await verify(server, thing);
      }
      await delay(1);
    }
  }

  const updated = (key: Key, changes: Omit<InputOf<'keys.updateKey'>, 'keyId'>) =>
    anyServer().ok('keys.updateKey', { keyId: key.keyId, ...changes });
  /** A number near what is admitted, so that the limit is full now and then. */
  const near = (owner: string, name: string, duration: number) =>
    Math.max(100, answers.admitted.of(`${owner} ${name} ${duration}`) + pick(-100, 5000));
  function limitsOf(owner: string, kind: 'ids' | 'key'): Ratelimit[] {
    const [first, second] = [`${kind}1`, `${kind}2`];
    const duration = one(durations);
    const all = [
      limit(first, near(owner, first, durations[0])),
      limit(second, near(owner, second, duration), duration),
    ];
    return one([[all[0]!], all, all.toReversed()]);
  }
  const withBalance = [...credited];
  async function addCredits() {
    const key = one(withBalance);
    // Less than the key has, also when the change is made some thousand requests later. Often more than Redis has,
    // while servers hold the rest.
    const most = Math.floor(0.9 * (key.credits! - answers.spent.of(key.keyId))) - 3000;
    const isMore = most < 1 || pick(0, 1) === 0;
    const [operation, value] = isMore
      ? (['increment', pick(1, 20_000)] as const)
      : (['decrement', pick(1, most)] as const);
    key.credits! += isMore ? value : -value;
    await anyServer().ok('keys.updateCredits', { keyId: key.keyId, operation, value });
  }
  const changes: Record<string, () => Promise<unknown>> = {
    'limits of a key': () => {
      const key = one([...limited, members[2]!, credited[2]!]);
      return updated(key, { ratelimits: limitsOf(key.keyId, 'key') });
    },
    'a limit of its ad hoc name is added to a key, or removed': () =>
      updated(adHoc[0]!, {
        ratelimits: one([[], [{ ...limit('key3', large), autoApply: false }], [limit('key1', large)]]),
      }),
    'the number of a limit of a key': () => {
      const [key, duration] = one([[numbered, durations[0]] as const, [renewed, quotaLength] as const]);
      return updated(key, { ratelimits: [limit('key1', near(key.keyId, 'key1', duration), duration)] });
    },
    'limits of an identity': () => {
      const identity = one(identities);
      return anyServer().ok('identities.updateIdentity', { identity, ratelimits: limitsOf(identity, 'ids') });
    },
    'the meta of an identity': () =>
      anyServer().ok('identities.updateIdentity', { identity: one(identities), meta: { at: pick(0, 9) } }),
    'the link of a key': () => updated(one(members), { externalId: one([...identities, null]) }),
    'the refill of a key': () => updated(one(withBalance), { credits: { refill: one([...refills, null]) } } as never),
    'the balance of a key': addCredits,
    'the name and meta of a key': () =>
      updated(one(permanent), { name: `name ${pick(0, 99)}`, meta: { at: pick(0, 9) } }),
    'the roles of a key': () => updated(one(permanent), { roles: one([[], ['reader']]) }),
    'the permissions of a role': () =>
      anyServer().ok('permissions.setRolePermissions', {
        roleId,
        permissions: one([['docs.read'], ['docs.read', 'docs.write']]),
      }),
    'a key disabled and enabled': async () => {
      const key = one(permanent);
      await updated(key, { enabled: false });
      await delay(pick(0, 20));
      await updated(key, { enabled: true });
    },
    'a key deleted and restored': async () => {
      const { keyId } = one([numbered, renewed, members[0]!, members[1]!, credited[0]!, credited[1]!]);
      await anyServer().ok('keys.deleteKey', { keyId });
      await delay(pick(0, 20));
      await anyServer().ok('keys.restoreKey', { keyId });
    },
    'a key deleted for good': async () => {
      const { keyId } = mortal.now;
      const [tags, externalId] = [one([['a'], undefined]), one(identities)];
      mortal.now = await newKey([tags ? { tags } : {}], { externalId });
      mortal.all.push(mortal.now);
      await anyServer().ok('keys.deleteKey', { keyId, permanent: true });
    },
    'an override': async () => {
      const { namespace, identifier } = checkOf(one(identifiers));
      const number = pick(0, 6);
      if (number === 6) return anyServer().call('ratelimits.deleteOverride', { namespace, identifier });
      const duration = durations[number % 3]!;
      const most = Math.max(100, answers.admitted.of(`${identifier} ${duration}`) + pick(-100, 5000));
      return anyServer().ok('ratelimits.setOverride', {
        namespace,
        identifier,
        ...lasting(duration),
        limit: most - (most % 3) + (number % 3),
      });
    },
  };
  const changed = new Sums();
  async function change(isDone: () => boolean) {
    while (!isDone()) {
      const what = one(Object.keys(changes));
      await changes[what]!();
      changed.add(what, 1);
      if (pick(1, 8) === 1) heat();
      await delay(pick(10, 150));
    }
  }
  return { answers, changed, load, change, keys: { permanent, credited, adHoc, mortal }, identities, identifiers };
}
type Ledger = Awaited<ReturnType<typeof openLedger>>;

/** What does not add up: [what, is, should be]. */
type Differences = [string, number, number][];

/** Each window counts what was admitted. Then it is filled: exactly 200 more pass. */
async function windowsOf(rig: LeaseRig, { answers, keys, identities, identifiers }: Ledger): Promise<Differences> {
  const { ok } = rig;
  const found: Differences = [];
  const differ = (what: string, is: number, should: number) => is !== should && found.push([what, is, should]);
  const admitted = (owner: string, name: string, duration: number) =>
    answers.admitted.of(`${owner} ${name} ${duration}`);
  const fill = async (send: (server: LeaseServer) => Promise<boolean>) => {
    let passed = 0;
    const caller = async (server: LeaseServer) => {
      while (await send(server)) passed++;
    };
    await Promise.all([...rig.servers, ...rig.servers].map(caller));
    return passed;
  };
  const isValid = (key: string) => async (server: LeaseServer) =>
    (await server.client.ok('keys.verifyKey', { key, credits: { cost: 0 } })).valid;
  /** Compares the windows of an owner, whose limits `write` writes, with those that `look` finds. */
  async function windows(
    owner: string,
    kind: string,
    write: (ratelimits: Ratelimit[]) => Promise<unknown>,
    key: string,
  ) {
    for (const name of [`${kind}1`, `${kind}2`, `${kind}3`]) {
      for (const duration of durations) {
        await write([limit(name, large, duration)]);
        const look = await ok('keys.verifyKey', { key, credits: { cost: 0 }, ratelimits: [{ name, cost: 0 }] });
        const state = look.ratelimits!.find((each) => each.name === name)!;
        differ(`window ${owner} ${name} ${duration}`, large - state.remaining, admitted(owner, name, duration));
      }
    }
    await write([limit(`${kind}1`, admitted(owner, `${kind}1`, durations[0]) + 200)]);
    differ(`filled ${owner}`, await fill(isValid(key)), 200);
    await write([]);
  }
  for (const { keyId, key } of keys.permanent) {
    await ok('keys.updateKey', { keyId, externalId: null });
    await windows(keyId, 'key', (ratelimits) => ok('keys.updateKey', { keyId, ratelimits }), key);
  }
  for (const identity of identities) {
    const { key } = await rig.newKey({ externalId: identity });
    await windows(identity, 'ids', (ratelimits) => ok('identities.updateIdentity', { identity, ratelimits }), key);
  }
  for (const identifier of identifiers) {
    for (const duration of durations) {
      const of = checkOf(identifier);
      const override = { namespace: of.namespace, identifier, ...lasting(duration) };
      await ok('ratelimits.setOverride', { ...override, limit: large });
      const used = answers.admitted.of(`${identifier} ${duration}`);
      differ(
        `window ${identifier} ${duration}`,
        large - (await ok('ratelimits.limit', { ...of, cost: 0 })).remaining,
        used,
      );
      await ok('ratelimits.setOverride', { ...override, limit: used + 200 });
      differ(
        `filled ${identifier}`,
        await fill(async ({ client }) => (await client.ok('ratelimits.limit', of)).success),
        200,
      );
    }
  }
  return found;
}

async function balancesOf({ ok }: LeaseRig, { answers, keys }: Ledger): Promise<Differences> {
  const found: Differences = [];
  for (const { keyId, credits } of keys.credited) {
    const should = credits! - answers.spent.of(keyId);
    const is = (await ok('keys.getKey', { keyId })).credits!.remaining!;
    if (is !== should) found.push([`balance ${keyId}`, is, should]);
  }
  return found;
}

/** Usage by key, API, identity, tag and hour. */
async function usageOf(
  { ok, apiId }: LeaseRig,
  { answers, keys, identities, identifiers }: Ledger,
): Promise<Differences> {
  const found: Differences = [];
  const period = { start: Date.now() - dayMs, end: Date.now() + hourMs };
  const seen = new Set<string>();
  async function compare(name: string, filter: InputOf<'analytics.getVerifications'>) {
    const counted = new Sums();
    const rows = await ok('analytics.getVerifications', { ...period, ...filter });
    for (const { outcome, count } of rows) counted.add(`${name} ${outcome}`, count);
    for (const each of new Set([...counted.keys(), ...answers.outcomes.keys()])) {
      if (!each.startsWith(`${name} `) || seen.has(each)) continue;
      seen.add(each);
      if (counted.of(each) !== answers.outcomes.of(each))
        found.push([`usage ${each}`, counted.of(each), answers.outcomes.of(each)]);
    }
  }
  for (const { keyId } of [...keys.permanent, ...keys.mortal.all]) await compare(keyId, { apiId, keyId });
  for (const externalId of identities) await compare(externalId, { apiId, externalId });
  for (const tag of ['a', 'b']) await compare(tag, { apiId, tag });
  await compare(apiId, { apiId });
  const hours = new Sums();
  for (const { time, count } of await ok('analytics.getVerifications', { ...period, apiId, groupBy: [] })) {
    hours.add(`${time! / hourMs}`, count);
  }
  // An identity and tags count again what their keys count: an answer is once in the hours of the API.
  for (const [hour, count] of hours) {
    if (count < answers.surely.of(hour)) found.push([`hour ${hour}, at least`, count, answers.surely.of(hour)]);
    if (count > answers.perhaps.of(hour)) found.push([`hour ${hour}, at most`, count, answers.perhaps.of(hour)]);
  }
  for (const identifier of identifiers) {
    const is = { passed: 0, blocked: 0 };
    for (const { passed, blocked } of await ok('analytics.getRatelimits', {
      ...period,
      namespace: 'ledger',
      identifier,
    })) {
      is.passed += passed;
      is.blocked += blocked;
    }
    for (const each of ['passed', 'blocked'] as const) {
      const should = answers.outcomes.of(`${identifier} ${each}`);
      if (is[each] !== should) found.push([`usage ${identifier} ${each}`, is[each], should]);
    }
  }
  return found;
}

test(`granted = admitted + left, and usage = answers, with changes of every kind (seed ${seed})`, async () => {
  const rig = await openLeaseRig(4, { env: { LEASE_MS: `${leaseMs}`, LEASE_LONG_MS: `${10 * leaseMs}` } });
  const ledger = await openLedger(rig);
  const { answers, changed } = ledger;
  const endsAt = performance.now() + 1000 * seconds;
  const isDone = () => performance.now() > endsAt;
  const callers = rig.servers.flatMap((server) =>
    Array.from({ length: callersEach }, () => ledger.load(server, isDone)),
  );
  await Promise.all([...callers, ledger.change(isDone)]);
  // A lease ends, and what it decided and left is settled.
  await delay(2000);
  const decided = await decidedLocally(rig.servers);
  if (leaseMs > 0) expect(decided).toBeGreaterThan(answers.total / 10);

  const usage = await usageOf(rig, ledger);
  const balances = await balancesOf(rig, ledger);
  const windows = await windowsOf(rig, ledger);
  expect({ seed, usage, balances, windows }).toEqual({ seed, usage: [], balances: [], windows: [] });
  const changes = [...changed.values()].reduce((sum, times) => sum + times, 0);
  report({
    order: '13.13',
    fault: `Four servers with leases of units and credits under load for ${seconds} s, while limits, quotas, links, refills, balances, roles, keys and overrides are changed at random servers`,
    expected:
      'granted = admitted + left for each window and balance; usage = answers by key, API, identity, tag and hour',
    measured: `${answers.total} answers, ${decided} of them without Redis, ${changes} changes of ${changed.size} kinds; ${answers.admitted.size} windows and ${ledger.keys.credited.length} balances exact, every answer counted`,
  });
});
