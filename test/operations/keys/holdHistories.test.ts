// Random histories of holds and of limits that end against a simple model. At every moment what was granted to a key is
// what was spent, what is held and what is left; the same for the units of each limit; and once all holds have expired,
// nothing is held.
//
// With one server and with two, with leases and without. A failure prints its seed and its last steps: SEED=<n> repeats
// it, RUNS=<n> runs more histories.

import { describe, expect, test } from 'vitest';
import { codeOf, type Periodic, quotaCodes, quotaOf, storedDuration } from '../../../src/domain/quota.ts';
import { heldServers } from '../../decide/leases/heldServers.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import {
  type ChangedLimit,
  creditsFor,
  type HeldKey,
  HoldModel,
  type ModelLimit,
  type SharedBalance,
  type Wanted,
} from '../../support/holdModel.ts';
import { random, seed } from '../../support/random.ts';

const runs = Number(process.env.RUNS ?? 6);
const steps = 120;

const plain = harness(undefined, { leaseMs: 0 });
const second = harness(undefined, { leaseMs: 0, nowMs: () => plain.clock.now });
const leased = heldServers(2, {
  leaseLongMs: 3000,
  nowMs: () => plain.clock.now,
  leaseNowMs: () => plain.clock.now,
});

type Call = (typeof plain)['call'];
type Pick = (min: number, max: number) => number;

const fine = { name: 'fine', limit: 40, duration: hourMs, autoApply: true };
const coarse = { name: 'coarse', limit: 1000, duration: hourMs, autoApply: false };
const short = { name: 'short', limit: 300, duration: 2000, autoApply: true };
const minute = { name: 'minute', limit: 1000, duration: 60_000, autoApply: true };
const ofIdentity = { name: 'shared', limit: 900, duration: 5 * 60_000, autoApply: true };
const jobs = { name: 'jobs', limit: 3, duration: 60_000, autoApply: true, type: 'concurrency' as const };
const streams = { name: 'streams', limit: 100, duration: 10 * 60_000, autoApply: false, type: 'concurrency' as const };
const together = { name: 'together', limit: 5, duration: hourMs, autoApply: true, type: 'concurrency' as const };
const hourly = { name: 'hourly', limit: 60, duration: codeOf('hour', 90_000), autoApply: true };
const daily = { name: 'daily', limit: 500, duration: codeOf('day', 1_234_567), autoApply: false };
const slots = ['jobs', 'streams', 'together'];
// Most durations are no multiples of 64 ms: those of slices are not exact 64ths of them.
const limitSets: ModelLimit[][] = [
  [fine, coarse],
  [minute, { ...fine, duration: 10_000 }],
  [minute],
  [coarse],
  [{ ...coarse, limit: 60 }, fine],
  [short, coarse, { ...fine, limit: 2000 }],
  [],
  [jobs, coarse],
  [fine, { ...jobs, limit: 2, duration: hourMs }, streams],
  [
    { ...streams, autoApply: true, duration: 2000 },
    { ...jobs, limit: 70 },
  ],
  [{ name: 'jobs', limit: 60, duration: 60_000, autoApply: true }, streams],
  [hourly, daily, fine],
  [{ ...daily, limit: 40, autoApply: true }, coarse],
];

/** A request in which quotas have their period. */
const withPeriods = (input: unknown) =>
  JSON.parse(JSON.stringify(input), (_, value) => {
    const quota = typeof value?.duration === 'number' && quotaOf(value.duration);
    return quota ? { ...value, duration: undefined, ...quota } : value;
  });

interface World {
  pick: Pick;
  /** One of the servers. */
  call: Call;
  model: HoldModel;
  keys: HeldKey[];
  /** Ids of holds that were made, also of ended ones. */
  made: string[];
  /** Whether `credits` and `remaining` are those of Redis. */
  isExact: boolean;
  /** Ends all leases. */
  settled: () => Promise<unknown>;
  trace: string[];
}

const one = <Value>(pick: Pick, values: readonly Value[]): Value => values[pick(0, values.length - 1)]!;

async function send<Name extends Parameters<Call>[0]>(world: World, name: Name, input: InputOf<Name>) {
  const answer = await world.call(name, withPeriods(input));
  const { status, data } = answer;
  const {
    identity: _,
    ratelimits,
    ...rest
  } = (data ?? {}) as { identity?: unknown; ratelimits?: { remaining?: number }[] };
  const short = JSON.stringify({ ...rest, left: ratelimits?.map(({ remaining }) => remaining) });
  world.trace.push(`${plain.clock.now} ${name} ${JSON.stringify(input)} -> ${status} ${short}`);
  expect(status, answer.error?.detail).not.toBe(500);
  return answer;
}

async function makeKey(world: World, name: string): Promise<HeldKey> {
  const { pick, model, call } = world;
  const { apiId } = (await call('apis.createApi', { name })).data;
  const limits = one(pick, limitSets);
  const refill = pick(0, 2) === 0 ? ({ interval: 'daily', amount: 150 } as const) : undefined;
  const identity = pick(0, 2) > 0 ? 'held.one' : undefined;
  const remaining = pick(0, identity ? 1 : 4) === 0 ? undefined : pick(0, 400);
  const { keyId, key } = (
    await send(world, 'keys.createKey', {
      apiId,
      ratelimits: limits,
      ...(remaining !== undefined && { credits: { remaining, ...(refill && { refill }) } }),
      ...(identity && { externalId: identity }),
    })
  ).data;
  return model.addKey({
    keyId,
    key,
    apiId,
    limits,
    identity,
    balance: remaining,
    refill: remaining === undefined ? undefined : refill,
  });
}

/** Limits in a request: of the key, its identity, or its own. */
function wantedOf({ pick, model }: World, key: HeldKey): Wanted[] {
  const names = model.limitsOf(key).map(({ name }) => name);
  const wanted: Wanted[] = [...new Set(names)]
    .filter(() => pick(0, 1) === 0)
    .map((name) => ({ name, cost: slots.includes(name) ? pick(0, 2) : pick(0, 12) }));
  if (pick(0, 2) > 0) return wanted;
  // Also by the name of a limit of the key or, more often, of the identity.
  const ofOwner = model.identityLimitsOf(key.identity).map(({ name }) => name);
  const name = one(pick, ['adhoc', ...[...names, ...ofOwner, ...ofOwner].filter((each) => !slots.includes(each))]);
  const adhoc = {
    name,
    cost: pick(0, 5),
    limit: one(pick, [30, 500]),
    duration: one(pick, [hourMs, 60_000, hourly.duration]),
  };
  return [...wanted.filter((each) => each.name !== name), adhoc];
}

async function verify(world: World, key: HeldKey, wanted: Wanted[], cost: number, hold?: object, tags?: string[]) {
  const { model, isExact } = world;
  const input = {
    key: key.key,
    credits: { cost },
    ...(wanted.length > 0 && { ratelimits: wanted }),
    ...(hold && { hold }),
    ...(tags && { tags }),
  };
  const expected = model.verify(key, wanted, cost, hold as never, tags);
  const { status, data } = await send(world, 'keys.verifyKey', input as never);
  expect([status, data?.code]).toEqual([expected.status, expected.code]);
  if (status !== 200 || expected.code === 'NOT_FOUND') return;
  expect(data.hold?.expires).toEqual(expected.expires);
  if (data.hold) {
    model.name(expected, data.hold.id);
    world.made.push(data.hold.id);
  }
  if (!isExact) return;
  expect(shownIn(data)).toEqual(model.shownOf(key));
  if (expected.left)
    expect(
      Object.fromEntries(data.ratelimits?.map((limit) => [limit.name + storedDuration(limit), limit.remaining]) ?? []),
    ).toEqual(expected.left);
}

/** Credits and debt of a response, and those of its identity. */
function shownIn(data: object) {
  type Shown = { credits?: number; debt?: number };
  const { credits, debt, identity } = data as Shown & { identity?: Shown };
  return [
    [credits, debt],
    [identity?.credits, identity?.debt],
  ];
}

async function newHold(world: World) {
  const { pick, keys } = world;
  const key = one(pick, keys);
  const hold = {
    ttl: one(pick, [1000, 2000, 60_000, 2 * hourMs, dayMs]),
    ...(pick(0, 2) === 0 && { onExpiry: 'charge' }),
    ...(pick(0, 2) === 0 && { id: `own${pick(1, 6)}` }),
  };
  const tags = one(pick, [undefined, ['a'], ['b', 'a', 'b']]);
  await verify(world, key, wantedOf(world, key), pick(0, 2) === 0 ? 1 : pick(0, 25), hold, tags);
}

/** Holds of one key that expire before the next look at it, in several slices of its windows. */
async function holdsDueTogether(world: World) {
  const { pick, keys } = world;
  const key = one(pick, keys);
  for (let count = pick(2, 6); count > 0; count--) {
    const hold = { ttl: 3000, ...(pick(0, 3) === 0 && { onExpiry: 'charge' }) };
    await verify(world, key, wantedOf(world, key), pick(0, 5), hold);
    if (pick(0, 2) === 0) await verify(world, key, wantedOf(world, key), pick(0, 5));
    plain.clock.advance(one(pick, [0, 1, 19, 90, 400]));
  }
  plain.clock.advance(3000);
}

/** A settlement of a hold whose balance was set since, by credits alone: the shortest way. */
async function setAndSettle(world: World) {
  const { pick, model, keys } = world;
  const key = one(pick, keys);
  const holdId = model.idsOf(key, 'open').at(-1);
  if (!holdId || key.deleted) return;
  const remaining = pick(0, 400);
  const shared = model.sharedOf(key.identity) && pick(0, 1) === 0;
  const operation = 'set' as const;
  if (shared) {
    await send(world, 'identities.updateCredits', { identity: key.identity!, operation, value: remaining });
    model.setShared(key.identity!, remaining);
  } else {
    await send(world, 'keys.updateCredits', { keyId: key.keyId, operation, value: remaining });
    model.updateCredits(key, operation, remaining);
  }
  await change(world, 'settle', holdId, pick(0, 30));
}

/** The id of a hold: one of the last that were made, one that was given back, or an unknown one. */
function anyHold({ pick, model, made, keys }: World): string {
  const released = pick(0, 3) === 0 ? model.idsOf(one(pick, keys), 'released') : [];
  if (released.length > 0) return one(pick, released);
  return made.length > 0 && pick(0, 9) > 0 ? one(pick, made.slice(-12)) : 'hold_unknown';
}

/** `alone`: the credits of a settlement that names nothing else. */
async function change(
  world: World,
  action: 'settle' | 'release' | 'extend',
  holdId = anyHold(world),
  alone?: number | undefined,
) {
  const { pick, model } = world;
  const held = model.heldBy(holdId);
  const ttl = one(pick, [1000, 30_000, hourMs]);
  const credits = alone ?? (pick(0, 2) === 0 ? undefined : Math.max(0, (held?.cost ?? 5) + pick(-30, 30)));
  const ratelimits = (held?.windows ?? [])
    .filter(() => alone === undefined && pick(0, 1) === 0)
    .map(({ name, units }) => ({ name, cost: Math.max(0, units + pick(-15, 15)) }));
  const unique = [...new Map(ratelimits.map((each) => [each.name, each])).values()];
  if (alone === undefined && pick(0, 30) === 0) unique.push({ name: one(pick, ['none', 'together']), cost: 1 });
  const amounts = {
    ...(credits !== undefined && { credits: { cost: credits } }),
    ...(unique.length > 0 && { ratelimits: unique }),
  };
  const times = pick(0, 3) === 0 ? 2 : 1;
  for (let time = 0; time < times; time++) {
    const expected = model.change(holdId, action, { ttl, credits, ratelimits: unique });
    const sent =
      action === 'settle'
        ? await send(world, 'keys.settleHold', { holdId, ...amounts })
        : action === 'release'
          ? await send(world, 'keys.releaseHold', { holdId })
          : await send(world, 'keys.extendHold', { holdId, ttl });
    expect(sent.status).toBe(expected.status);
    if (expected.expires !== undefined)
      expect((sent.data as { hold: { expires: number } }).hold.expires).toBe(expected.expires);
    if (expected.late !== undefined) expect((sent.data as { late: boolean }).late).toBe(expected.late);
    if (expected.status === 200 && action !== 'extend' && world.isExact && expected.shown)
      expect(shownIn(sent.data)).toEqual(expected.shown);
  }
}

/** Limits of which some end soon. */
const withEnds = (pick: Pick, limits: readonly ModelLimit[]): ChangedLimit[] =>
  limits.map((limit) => {
    const until = one(pick, [undefined, undefined, null, plain.clock.now + one(pick, lasting)]);
    return until === undefined ? limit : { ...limit, until };
  });
const lasting = [1, 40, 500, 2000, 31_000, hourMs, 5 * hourMs];

/** Sets all limits of a key or an identity, or sends them back as a caller does that knows no end, or changes one. */
async function changeLimits(
  world: World,
  of: HeldKey | SharedBalance,
  operation: 'keys.updateKey' | 'identities.updateIdentity',
  reference: object,
  limits: readonly ModelLimit[],
) {
  const { pick, model } = world;
  const isDeleted = 'deleted' in of && of.deleted;
  const present = 'keyId' in of ? model.ownLimitsOf(of) : model.identityLimitsOf(externalIdOf(reference));
  const way = pick(0, 2);
  let changes: object;
  let change: () => number;
  if (way === 0) {
    const ratelimits = withEnds(pick, limits);
    changes = { ratelimits };
    change = () => model.setLimits(of, ratelimits);
  } else if (way === 1 || present.length === 0) {
    const ratelimits = present.map(({ name, limit, duration, autoApply }) => ({ name, limit, duration, autoApply }));
    changes = { ratelimits };
    change = () => model.setLimits(of, ratelimits);
  } else {
    const [given] = withEnds(pick, [one(pick, present)]);
    const { name, limit, duration, until } = given!;
    const others = duration < quotaCodes ? [2000, hourMs] : [hourly.duration, daily.duration];
    const ratelimit = {
      name,
      limit: one(pick, [limit, limit, 2, 25, 90]),
      ...(pick(0, 2) === 0 && { duration: one(pick, [duration, ...others]) }),
      ...('until' in given! && { until }),
    };
    changes = { ratelimit };
    change = () => model.setLimit(of, ratelimit);
  }
  const { status } = await send(world, operation, { ...reference, ...changes } as never);
  expect(status).toBe(isDeleted ? 404 : change());
}
const externalIdOf = (reference: object) => (reference as { identity?: string }).identity;

async function manage(world: World) {
  const { pick, model, keys } = world;
  const key = one(pick, keys);
  const { keyId } = key;
  const update = async (changes: object, ofModel: () => void) => {
    const { status } = await send(world, 'keys.updateKey', { keyId, ...changes } as never);
    expect(status).toBe(key.deleted ? 404 : 200);
    if (!key.deleted) ofModel();
  };
  const identity = one(pick, ['held.one', 'held.two', undefined]);
  const remaining = pick(0, 400);
  switch (pick(0, 8)) {
    case 0:
    case 8:
      return changeLimits(world, key, 'keys.updateKey', { keyId }, one(pick, limitSets));
    case 1:
      return update({ externalId: identity ?? null }, () => (key.identity = identity));
    case 2:
      return update({ credits: { remaining } }, () => model.set(key, remaining));
    case 3:
      return update({ credits: null }, () => model.set(key, undefined));
    case 4:
      return update({ enabled: !key.enabled }, () => (key.enabled = !key.enabled));
    case 5: {
      const { status } = await send(world, key.deleted ? 'keys.restoreKey' : 'keys.deleteKey', { keyId });
      if (status === 200) model.erase(key);
      return;
    }
    default: {
      const operation = one(pick, ['set', 'increment', 'decrement'] as const);
      const value = pick(0, 150);
      const { status } = await send(world, 'keys.updateCredits', { keyId, operation, value });
      expect(status).toBe(model.updateCredits(key, operation, value));
    }
  }
}

const externalIds = ['held.one', 'held.two'];

/** Changes the balance of an identity, or deletes and creates it. */
async function manageIdentity(world: World) {
  const { pick, model } = world;
  const identity = one(pick, externalIds);
  const remaining = pick(0, 300);
  switch (pick(0, 6)) {
    case 0:
      return makeIdentity(world, identity);
    case 6:
      return changeLimits(
        world,
        model.identity(identity),
        'identities.updateIdentity',
        { identity },
        one(pick, [[ofIdentity, together], [ofIdentity], [{ ...ofIdentity, limit: 50 }, together]]),
      );
    case 1: {
      await send(world, 'identities.updateIdentity', { identity, credits: null });
      return model.setShared(identity, undefined);
    }
    case 2:
    case 3: {
      const refill = one(pick, [undefined, null, { interval: 'daily' as const, amount: 90 }]);
      await send(world, 'identities.updateIdentity', { identity, credits: { remaining, refill } });
      return model.setShared(identity, remaining, refill);
    }
    default: {
      const operation = one(pick, ['set', 'increment', 'decrement'] as const);
      const { status } = await send(world, 'identities.updateCredits', { identity, operation, value: remaining });
      expect(status).toBe(model.updateShared(identity, operation, remaining));
    }
  }
}

/** An identity without a balance, in the place of one of this name, which holds no longer find. */
async function makeIdentity({ call, model }: World, externalId: string) {
  await call('identities.deleteIdentity', { identity: externalId, permanent: true } as never);
  const ratelimits = [ofIdentity, together, { ...daily, limit: 300, autoApply: true }];
  await call('identities.createIdentity', withPeriods({ externalId, ratelimits }));
  model.addIdentity(externalId, ratelimits);
}

/** A key whose balance, if it has none of its own, is that of its identity. */
async function makeShared(world: World) {
  const remaining = world.pick(0, 300);
  await send(world, 'identities.updateIdentity', { identity: 'held.one', credits: { remaining } });
  world.model.setShared('held.one', remaining);
}

/** Those of the model have the code of a quota as their duration, responses its period. */
const shownLimits = (limits: readonly (Omit<ModelLimit, 'type'> & Periodic & { type?: string | undefined })[] = []) =>
  limits.map(({ name, limit, autoApply, type, until, former, ...lasts }) => {
    const shown = { name, limit, duration: storedDuration(lasts), autoApply, until };
    const isSlots = type === 'concurrency' && { type };
    const before = former && { ...former, duration: storedDuration(former), period: undefined, anchor: undefined };
    return JSON.parse(JSON.stringify({ ...shown, ...isSlots, former: before }));
  });

/** Compares all that is held and left, and the limits in force. */
async function check(world: World) {
  const { model, keys } = world;
  await world.settled();
  await sweepAll(world);
  for (const identity of externalIds) {
    const { credits, ratelimits } = (await world.call('identities.getIdentity', { identity })).data;
    expect(shownLimits(ratelimits), identity).toEqual(shownLimits(model.identityLimitsOf(identity)));
    expect([credits?.remaining, credits?.debt], identity).toEqual(creditsFor(model.sharedOf(identity)?.balance));
  }
  for (const key of keys.filter(({ deleted }) => !deleted)) {
    const { credits, ratelimits } = (await world.call('keys.getKey', { keyId: key.keyId })).data;
    expect(shownLimits(ratelimits)).toEqual(shownLimits(model.ownLimitsOf(key)));
    expect([credits?.remaining, credits?.debt]).toEqual(model.creditsOf(key));
    const open = (await world.call('keys.listHolds', { keyId: key.keyId })).data;
    const textOf = (slots: { name: string; cost: number }[] = []) =>
      slots.map(({ name, cost }) => `${name} ${cost}`).join();
    expect(open.map(({ id, credits, expires, slots }) => [id, credits, expires, textOf(slots)]).sort()).toEqual(
      model.openOf(key),
    );
    model.checkSums(key);
    const names = new Set(model.limitsOf(key).map(({ name }) => name));
    const limits = [...names].map((name) => ({ name, cost: 0 }));
    if (key.enabled) await verify(world, key, limits, 0);
  }
}

async function sweepAll({ model }: World) {
  while (await plain.store.sweep.holds(workspaceOf(model)));
  while (await plain.store.sweep.refill(workspaceOf(model)));
  model.sweep();
}
const workspaces = new WeakMap<HoldModel, string>();
const workspaceOf = (model: HoldModel) => workspaces.get(model)!;

async function step(world: World) {
  const { pick, keys } = world;
  const what = pick(0, 22);
  if (what === 21) return holdsDueTogether(world);
  if (what === 22) return setAndSettle(world);
  if (what < 6) return newHold(world);
  if (what < 9) {
    const key = one(pick, keys);
    return verify(world, key, wantedOf(world, key), pick(0, 10));
  }
  if (what < 12) return change(world, 'settle');
  if (what === 12) return change(world, 'release');
  if (what === 13) return change(world, 'extend');
  if (what === 14) return manage(world);
  if (what === 15) return check(world);
  if (what === 20) return manageIdentity(world);
  plain.clock.advance(
    pick(0, 5) === 0
      ? one(pick, [hourMs, 3 * hourMs, dayMs, 25 * hourMs])
      : one(pick, [1, 40, 500, 1000, 2000, 31_000, 61_000]),
  );
  if (pick(0, 1) === 0) await sweepAll(world);
}

/** All holds expire: nothing is held, and everything that was spent was counted. */
async function finish(world: World) {
  const { model, keys } = world;
  plain.clock.advance(25 * hourMs);
  await check(world);
  for (const { keyId, deleted, apiId, spent, limited, spentByTag } of keys) {
    if (deleted) continue;
    expect((await world.call('keys.listHolds', { keyId })).data).toEqual([]);
    const period = {
      start: model.startMs - dayMs,
      end: plain.clock.now + hourMs,
      granularity: 'day' as const,
      groupBy: [],
    };
    for (const filter of [{ keyId }, { apiId }]) {
      const rows = (await world.call('analytics.getVerifications', { ...period, ...filter })).data;
      expect(
        rows.reduce((sum, { spentCredits }) => sum + spentCredits, 0),
        `spent by ${keyId}, ${limited}`,
      ).toBe(spent);
    }
    const rows = (
      await world.call('analytics.getVerifications', { ...period, granularity: 'total', groupBy: ['tag'], keyId })
    ).data;
    const byTag = rows.map(({ tag = '', spentCredits }) => [tag, spentCredits]).filter(([, sum]) => sum);
    const expected = Object.entries(spentByTag).filter(([, sum]) => sum);
    expect(byTag.sort(), `spent by tag of ${keyId}`).toEqual(expected.sort());
  }
}

async function history(
  number: number,
  servers: Call[],
  isExact: boolean,
  workspaceId: string,
  settled: World['settled'],
) {
  const pick = random(number);
  const model = new HoldModel(plain.clock);
  workspaces.set(model, workspaceId);
  const world: World = {
    pick,
    model,
    keys: [],
    made: [],
    isExact,
    settled,
    trace: [],
    call: ((name, input, as) => one(pick, servers)(name, input, as)) as Call,
  };
  try {
    for (const externalId of externalIds) await makeIdentity(world, externalId);
    if (pick(0, 1) === 0) await makeShared(world);
    world.keys.push(await makeKey(world, 'one'), await makeKey(world, 'two'));
    for (let count = 0; count < steps; count++) await step(world);
    await finish(world);
  } catch (error) {
    (error as Error).message += `\n\nSEED=${number}\n${world.trace.slice(-Number(process.env.TRACE ?? 40)).join('\n')}`;
    throw error;
  }
}

const seeds = Array.from({ length: runs }, (_, run) => seed + 1000 * run);
const noLeases = async () => {};

describe('granted is spent, held and left', () => {
  test.each(seeds)(
    'on one server: %i',
    (number) => history(number, [plain.call], true, plain.workspaceId, noLeases),
    60_000,
  );
  test.each(seeds)(
    'on two servers: %i',
    (number) => {
      const other = ((name, input) => second.call(name, input, plain.rootKey)) as Call;
      return history(number, [plain.call, other], true, plain.workspaceId, noLeases);
    },
    60_000,
  );
  test.each(seeds)(
    'with leases, on two servers: %i',
    (number) =>
      history(number, leased.servers.map(({ call }) => call) as Call[], false, leased.workspaceId, () =>
        leased.recallAll(),
      ),
    60_000,
  );
});

/** Without windows, whose slices move with the clock: credits alone, which no step of the clock may lose. */
test.each(seeds)('also while the clock steps forward and back: %i', { timeout: 60_000 }, async (number) => {
  const pick = random(number);
  const { clock, ok, call, createKey } = plain;
  const startMs = clock.now;
  const { key, keyId } = await createKey({ credits: { remaining: 5000 }, ratelimits: [fine, coarse] });
  let granted = 5000;
  let latest = startMs;
  const made: string[] = [];
  const spentOf = async () => {
    const period = { start: startMs - 80 * dayMs, end: latest + dayMs, granularity: 'day' as const, groupBy: [] };
    const rows = (await ok('analytics.getVerifications', { ...period, keyId })) as { spentCredits: number }[];
    return rows.reduce((sum, { spentCredits }) => sum + spentCredits, 0);
  };
  const check = async () => {
    while (await plain.store.sweep.holds(plain.workspaceId));
    const { remaining, debt = 0 } = (await ok('keys.getKey', { keyId })).credits! as {
      remaining: number;
      debt?: number;
    };
    const open = await ok('keys.listHolds', { keyId });
    const heldNow = open.reduce((sum, { credits }) => sum + credits!, 0);
    expect(remaining - debt + heldNow + (await spentOf()), `granted, SEED=${number}`).toBe(granted);
    return open.length;
  };
  for (let count = 0; count < 60; count++) {
    const what = pick(0, 11);
    const holdId = made[pick(0, Math.max(0, made.length - 1))] ?? 'hold_none';
    if (what < 4) {
      const hold = { ttl: pick(1, 100) * 1000, onExpiry: one(pick, ['release', 'charge'] as const) };
      const ratelimits = [{ name: 'coarse', cost: pick(0, 3) }];
      const { data } = await call('keys.verifyKey', { key, credits: { cost: pick(0, 30) }, ratelimits, hold });
      if (data.hold) made.push(data.hold.id);
    } else if (what < 6) await call('keys.settleHold', { holdId, credits: { cost: pick(0, 60) } });
    else if (what === 6) await call('keys.releaseHold', { holdId });
    else if (what === 7) await call('keys.extendHold', { holdId, ttl: pick(1, 90) * 1000 });
    else if (what === 8) {
      await ok('keys.updateCredits', { keyId, operation: 'increment', value: 10 });
      granted += 10;
    } else clock.now += one(pick, [-2 * dayMs, -hourMs, -70_000, -1, 1, 5000, 70_000, hourMs, 2 * dayMs]);
    latest = Math.max(latest, clock.now);
    if (pick(0, 3) === 0) await check();
  }
  clock.now = latest + 2 * dayMs;
  latest = clock.now;
  expect(await check()).toBe(0);
  clock.now = Math.max(startMs, latest);
});

/** What is taken of a concurrency limit are always the slots of its open holds, whatever the clock does. */
test.each(seeds)(
  'slots are those of open holds, also while the clock steps: %i',
  { timeout: 60_000 },
  async (number) => {
    const pick = random(number);
    const { clock, ok, call, createKey } = plain;
    const owner = `stepped${number}`;
    await ok('identities.createIdentity', {
      externalId: owner,
      ratelimits: [{ ...together, limit: 100, duration: 60_000 }],
    });
    const keys = [
      await createKey({ ratelimits: [jobs], externalId: owner }),
      await createKey({
        externalId: owner,
        ratelimits: [{ ...streams, autoApply: true, limit: 80, duration: 90_000 }],
      }),
    ];
    const limits: Record<string, number> = { jobs: 3, streams: 80, together: 100 };
    const made: string[] = [];
    const trace: string[] = [];
    const check = async () => {
      while (await plain.store.sweep.holds(plain.workspaceId));
      const taken: Record<string, number> = { jobs: 0, streams: 0, together: 0 };
      for (const { keyId } of keys)
        for (const { slots = [] } of await ok('keys.listHolds', { keyId }))
          for (const { name, cost } of slots) taken[name]! += cost;
      for (const { key } of keys) {
        const names = ['together', key === keys[0]!.key ? 'jobs' : 'streams'];
        const { ratelimits } = await ok('keys.verifyKey', {
          key,
          ratelimits: names.map((name) => ({ name, cost: 0 })),
        });
        for (const { name, remaining } of ratelimits!) {
          expect(remaining, `${name}, SEED=${number}\n${trace.join('\n')}`).toBe(limits[name]! - taken[name]!);
          expect(taken[name]).toBeLessThanOrEqual(limits[name]!);
        }
      }
    };
    for (let count = 0; count < 60; count++) {
      const what = pick(0, 9);
      const holdId = made[pick(0, Math.max(0, made.length - 1))] ?? 'hold_none';
      trace.push(`${clock.now} ${what} ${holdId}`);
      if (what < 4) {
        const hold = pick(0, 1) === 0 ? { hold: { ttl: pick(1, 100) * 1000 } } : {};
        const { data } = await call('keys.verifyKey', { key: one(pick, keys).key, ...hold });
        if (data.hold) made.push(data.hold.id);
      } else if (what === 4) await call('keys.settleHold', { holdId });
      else if (what === 5) await call('keys.releaseHold', { holdId });
      else if (what === 6) await call('keys.extendHold', { holdId, ttl: pick(1, 120) * 1000 });
      else {
        clock.advance(one(pick, [1, 500, 1500, 20_000, 61_000, -1, -1500, -30_000, -hourMs]));
        // An expired slot of one key may be taken by the other one: then the clock must not undo the expiry.
        while (await plain.store.sweep.holds(plain.workspaceId));
      }
      if (pick(0, 2) === 0) await check();
    }
    await check();
  },
);
