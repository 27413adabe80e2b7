// Units and credits that a server has leased and not used come back, whatever is changed meanwhile: a limit of n admits
// exactly n, and a balance lacks what was spent. The server that changes is another one, or the holder itself.

import { describe, expect, test } from 'vitest';
import { dayMs, hourMs, type InputOf } from '../../support/harness.ts';
import { sample } from '../../support/testIf.ts';
import { heldServers, newName } from './heldServers.ts';

const held = heldServers(2);
const [holder, other] = held.servers as [typeof held.first, typeof held.first];
const { ok } = other;
const { createKey } = held;
type Server = typeof holder;
type Ratelimit = NonNullable<InputOf<'keys.createKey'>['ratelimits']>[number];

const requests = { name: 'requests', limit: 1000, duration: hourMs, autoApply: true };
const further = { name: 'further', limit: 5000, duration: hourMs, autoApply: true };

/** Verifies until this many passed. The holder has leases of units then, of which it has used a part. */
async function use(server: Server, key: string, times: number, more: Partial<InputOf<'keys.verifyKey'>> = {}) {
  const leases = server.counts.granted.length;
  for (let time = 0; time < times; time++) {
    expect((await server.ok('keys.verifyKey', { key, ...more })).valid).toBe(true);
  }
  expect(server.counts.granted.slice(leases).some((units) => units > 0)).toBe(true);
}

/** Verifies until one is refused. Returns how many passed. */
async function fill(server: Server, key: string, more: Partial<InputOf<'keys.verifyKey'>> = {}) {
  for (let passed = 0; ; passed++) {
    const { valid, code } = await server.ok('keys.verifyKey', { key, ...more });
    if (valid) continue;
    expect(code).toBe('RATE_LIMITED');
    return passed;
  }
}

describe.each([
  ['another server', other],
  ['the holder', holder],
])('changed by %s', (_by, changer) => {
  type Fields = Partial<InputOf<'keys.updateKey'>>;
  const set = (changes: Fields) => (keyId: string) => changer.ok('keys.updateKey', { keyId, ...changes });
  const inTurn =
    <Of>(...changes: ((of: Of) => Promise<unknown>)[]) =>
    async (of: Of) => {
      for (const change of changes) await change(of);
    };
  const longer = { ...requests, duration: 2 * hourMs };
  /** A limit for 200 ms, in which the key is used. */
  const forAWhile = (limit: Partial<Ratelimit>) => async (keyId: string, key: string) => {
    const until = held.clock.now + 200;
    await set({ ratelimit: { name: requests.name, limit: 1000, until, ...limit } })(keyId);
    await use(holder, key, 30);
    held.clock.advance(200);
  };
  const ofKey: [string, (keyId: string, key: string) => Promise<unknown>, number?, Ratelimit[]?][] = [
    ['nothing', async () => {}],
    ['its name', set({ name: 'renamed' })],
    ['the same limits, written again', set({ ratelimits: [requests] })],
    ['its number, up', set({ ratelimits: [{ ...requests, limit: 1001 }] }), 1001],
    ['its number, down', set({ ratelimits: [{ ...requests, limit: 400 }] }), 400],
    ['another limit is added', set({ ratelimits: [requests, further] })],
    ['another limit is added before it', set({ ratelimits: [further, requests] })],
    ['another limit is removed', set({ ratelimits: [requests] }), 1000, [further, requests]],
    ['its duration, there and back', inTurn(set({ ratelimits: [longer] }), set({ ratelimits: [requests] }))],
    ['a temporary limit of another duration is set and used, and ends', forAWhile({ duration: longer.duration })],
    ['a temporary limit of a higher number is set and used, and ends', forAWhile({ limit: 100_000 }), 970],
    [
      'deleted and restored',
      inTurn(
        (keyId) => changer.ok('keys.deleteKey', { keyId }),
        (keyId) => changer.ok('keys.restoreKey', { keyId }),
      ),
    ],
    ['disabled and enabled', inTurn(set({ enabled: false }), set({ enabled: true }))],
    ['it gets credits', set({ credits: { remaining: 100_000 } })],
    ['it gets an identity', async (keyId) => set({ externalId: await newIdentity([further]) })(keyId)],
  ];
  async function newIdentity(ratelimits: Ratelimit[]) {
    const externalId = newName();
    await ok('identities.createIdentity', { externalId, ratelimits });
    return externalId;
  }
  test.each(sample(ofKey))(
    'a limit of a key admits exactly its number: %s',
    async (_what, change, admits = 1000, ratelimits = [requests]) => {
      const { key, keyId } = await createKey({ ratelimits });
      await use(holder, key, 300);
      await change(keyId, key);
      expect(300 + (await fill(other, key))).toBe(admits);
    },
  );

  test('a limit of a key admits exactly its number, after five changes', async () => {
    const { key, keyId } = await createKey({ ratelimits: [requests] });
    for (let time = 1; time <= 5; time++) {
      await use(holder, key, 100);
      await changer.ok('keys.updateKey', { keyId, ratelimits: [{ ...requests, limit: 1000 + time }] });
    }
    expect(500 + (await fill(other, key))).toBe(1005);
  });

  /** The key in use and another one of its identity. */
  interface Shared {
    keyId: string;
    apiId: string;
    identity: string;
  }
  const setIdentity =
    (changes: Partial<InputOf<'identities.updateIdentity'>>) =>
    ({ identity }: Shared) =>
      changer.ok('identities.updateIdentity', { identity, ...changes });
  const setKey =
    (changes: Fields) =>
    ({ keyId }: Shared) =>
      set(changes)(keyId);
  const ofIdentity: [string, (shared: Shared) => Promise<unknown>, number?][] = [
    ['its number', setIdentity({ ratelimits: [{ ...requests, limit: 1001 }] }), 1001],
    ['another limit is added', setIdentity({ ratelimits: [requests, further] })],
    [
      'its duration, there and back',
      inTurn(setIdentity({ ratelimits: [longer] }), setIdentity({ ratelimits: [requests] })),
    ],
    [
      'a temporary limit of another duration is set, and ends',
      async (shared) => {
        const ratelimit = { name: requests.name, limit: 1000, duration: 2 * hourMs, until: held.clock.now + 200 };
        await setIdentity({ ratelimit })(shared);
        held.clock.advance(200);
      },
    ],
    ['its meta', setIdentity({ meta: { a: 1 } })],
    ['the key in use is deleted', ({ keyId }) => changer.ok('keys.deleteKey', { keyId })],
    ['the key in use is deleted for good', ({ keyId }) => changer.ok('keys.deleteKey', { keyId, permanent: true })],
    ['the key in use is unlinked', setKey({ externalId: null })],
    [
      'the key in use gets another identity',
      async ({ keyId }) => set({ externalId: await newIdentity([requests]) })(keyId),
    ],
    [
      'the key in use is unlinked and linked again',
      inTurn(setKey({ externalId: null }), ({ keyId, identity }) => set({ externalId: identity })(keyId)),
    ],
    ['the API of the key in use is deleted', ({ apiId }) => changer.ok('apis.deleteApi', { apiId })],
    ['the key in use gets a limit of its own', setKey({ ratelimits: [further] })],
    ['the key in use gets a limit of that name', setKey({ ratelimits: [requests] })],
  ];
  test.each(sample(ofIdentity))(
    'a limit of an identity admits exactly its number: %s',
    async (_what, change, admits = 1000) => {
      const identity = newName();
      await ok('identities.createIdentity', { externalId: identity, ratelimits: [requests] });
      const { key, keyId, apiId } = await createKey({ externalId: identity });
      const second = await createKey({ externalId: identity });
      await use(holder, key, 300);
      await change({ keyId, apiId, identity });
      expect(300 + (await fill(other, second.key))).toBe(admits);
    },
  );

  test('a limit of an identity of a month, of which another limit is changed five times', async () => {
    const identity = newName();
    const month = { name: 'month', limit: 20_000, duration: 30 * dayMs, autoApply: true };
    await ok('identities.createIdentity', { externalId: identity, ratelimits: [month, further] });
    const { key } = await createKey({ externalId: identity });
    for (let time = 1; time <= 5; time++) {
      await use(holder, key, 400);
      await changer.ok('identities.updateIdentity', {
        identity,
        ratelimits: [month, { ...further, limit: 50_000 + time }],
      });
    }
    await held.recallAll();
    const look = await ok('keys.verifyKey', {
      key,
      ratelimits: [
        { name: 'month', cost: 0 },
        { name: 'further', cost: 0 },
      ],
    });
    expect(look.ratelimits!.map(({ name, remaining }) => [name, remaining])).toEqual([
      ['month', 18_000],
      ['further', 48_005],
    ]);
  });

  const named = { ratelimits: [{ ...requests, autoApply: false }] };
  const adHoc: [string, (keyId: string) => Promise<unknown>][] = [
    ['a limit is added to the key', set({ ratelimits: [further] })],
    ['a limit of its name and duration is added to the key, and removed', inTurn(set(named), set({ ratelimits: [] }))],
    ['a limit of its name and duration is added to the key', set(named)],
  ];
  test.each(sample(adHoc))('an ad hoc limit admits exactly its number: %s', async (_what, change) => {
    const { key, keyId } = await createKey();
    const ratelimits = [{ name: 'requests', limit: 1000, duration: hourMs }];
    await use(holder, key, 300, { ratelimits });
    await change(keyId);
    expect(300 + (await fill(other, key, { ratelimits }))).toBe(1000);
  });

  const check = () => ({ namespace: 'lost', identifier: newName(), limit: 1000, duration: hourMs });
  type Check = ReturnType<typeof check>;
  const setOverride = (more: Partial<Check> & { lastsMs?: number }) => (of: Check) => {
    const { lastsMs, ...override } = { ...of, ...more };
    return changer.ok('ratelimits.setOverride', {
      ...override,
      ...(lastsMs && { until: held.clock.now + lastsMs }),
    });
  };
  const deleteOverride = ({ namespace, identifier }: Check) =>
    changer.ok('ratelimits.deleteOverride', { namespace, identifier });
  const useIt = async (of: Check) => {
    for (let time = 0; time < 30; time++) await holder.ok('ratelimits.limit', of);
  };
  const itEnds = async () => held.clock.advance(200);
  const longerOne = { duration: 2 * hourMs };
  const ofCheck: [string, (of: Check) => Promise<unknown>, number?][] = [
    ['an override of the same duration is set', setOverride({})],
    ['an override of the same duration and another number is set', setOverride({ limit: 1100 }), 1100],
    ['an override of another duration is set and deleted', inTurn(setOverride(longerOne), deleteOverride)],
    ['an override of another duration is set, used and deleted', inTurn(setOverride(longerOne), useIt, deleteOverride)],
    [
      'a temporary override of another duration is set and used, and ends',
      inTurn(setOverride({ ...longerOne, lastsMs: 200 }), useIt, itEnds),
    ],
    [
      'a temporary override of a higher limit is set and used, and ends',
      inTurn(setOverride({ limit: 100_000, lastsMs: 200 }), useIt, itEnds),
      970,
    ],
  ];
  test.each(sample(ofCheck))(
    'a limit of an identifier admits exactly its number: %s',
    async (_what, change, admits = 1000) => {
      const of = check();
      const limit = async (server: Server) => (await server.ok('ratelimits.limit', of)).success;
      for (let time = 0; time < 300; time++) expect(await limit(holder)).toBe(true);
      expect(holder.counts.granted.some((units) => units > 0)).toBe(true);
      await change(of);
      let passed = 300;
      while (await limit(other)) passed++;
      expect(passed).toBe(admits);
    },
  );

  test('an override of another duration, while it is deleted and set again, admits exactly its number', async () => {
    const of = check();
    const override = { ...of, limit: 500, duration: 2 * hourMs };
    const { namespace, identifier } = of;
    await ok('ratelimits.setOverride', override);
    for (let time = 0; time < 200; time++) expect((await holder.ok('ratelimits.limit', of)).success).toBe(true);
    await changer.ok('ratelimits.deleteOverride', { namespace, identifier });
    await changer.ok('ratelimits.setOverride', override);
    let passed = 200;
    while ((await other.ok('ratelimits.limit', of)).success) passed++;
    expect(passed).toBe(500);
  });
});
