// A caller that guesses keys causes no more work than one with a valid key, and learns nothing from the time of
// responses. The test measures processor time of the server and Redis, because wall-clock time includes other load of
// the machine.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { createKeyString, createRootKeyString, workspaceOfRootKey } from '../../src/domain/keyString.ts';
import type { Answered } from '../support/client.ts';
import { report } from './report.ts';
import { percentile, type Rig, startRig } from './rig.ts';

const rounds = 50;
/** Rounds before the measured ones, because V8 still compiles the code of each kind. */
const warmRounds = 4;
const perRound = 1600;
const callers = 16;
/**
 * Keys of each kind, as real callers do not send the same key again and again. There are as many unknown keys, because
 * what is asked again within the term of a lease costs less, whatever the outcome.
 */
const keysEach = 500;
/** The typical key of bench/RESULTS.md, without the fields that a verification does not use. */
const typical = {
  name: 'typical',
  meta: { plan: 'pro', team: 'payments', region: 'eu-west-1', n: 42 },
  credits: { remaining: 1_000_000_000 },
  ratelimits: [{ name: 'requests', limit: 1_000_000, duration: 60_000, autoApply: true }],
};

/** Never asked again, so it is compared with a right key only. */
const guess = 'a new key each time';
const anyOf = (keys: readonly string[]) => keys[Math.floor(Math.random() * keysEach)]!;

/** A root key, and the key to verify with it. */
interface Presented {
  as: string;
  key: string;
}

let rig: Rig;
let kinds: Record<string, () => Presented>;

beforeAll(async () => {
  rig = await startRig();
  const manyKeys = async (name: string, as?: string) => {
    const { apiId } = await rig.ok('apis.createApi', { name }, as);
    const keys: string[] = [];
    while (keys.length < keysEach) {
      const made = Array.from({ length: 25 }, () => rig.ok('keys.createKey', { apiId, ...typical }, as));
      keys.push(...(await Promise.all(made)).map(({ key }) => key));
    }
    return { apiId, any: () => anyOf(keys) };
  };
  const { apiId, any: right } = await manyKeys('guessed');
  const { any: hidden } = await manyKeys('hidden');
  const { any: others } = await manyKeys('other', await rig.createWorkspace());
  const { key: narrow } = await rig.ok('rootKeys.createRootKey', { permissions: [`api.${apiId}.verify_key`] });

  const workspaceId = workspaceOfRootKey(narrow)!;
  const noWorkspaceId = `ws_${'1'.repeat(16)}`;
  const unknown = Array.from({ length: keysEach }, () => createKeyString({ byteLength: 16 }).key);
  kinds = {
    right: () => ({ as: narrow, key: right() }),
    'wrong root key': () => ({ as: createRootKeyString(workspaceId).key, key: right() }),
    'root key of no workspace': () => ({ as: createRootKeyString(noWorkspaceId).key, key: right() }),
    [guess]: () => ({ as: narrow, key: createKeyString({ byteLength: 16 }).key }),
    'unknown key': () => ({ as: narrow, key: anyOf(unknown) }),
    "another workspace's key": () => ({ as: narrow, key: others() }),
    'key of an API the root key may not see': () => ({ as: narrow, key: hidden() }),
  };
});
afterAll(() => rig.stop());

const verify = ({ as, key }: Presented): Promise<Answered> => rig.send('keys.verifyKey', JSON.stringify({ key }), as);

/** Processor time of a request in microseconds, server and Redis together. */
async function costUs(present: () => Presented): Promise<number> {
  // The keys are created before. Otherwise this process would send fewer requests at a time, and batches would be
  // smaller.
  const presented = Array.from({ length: perRound }, present);
  const cpuUs = () => rig.server.cpuUs() + rig.redis.cpuUs();
  const before = cpuUs();
  const caller = async () => {
    for (let next = presented.pop(); next; next = presented.pop()) await verify(next);
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return (cpuUs() - before) / perRound;
}

test('wrong root keys and wrong keys cost no more than right ones, and one wrong key as much as another', async () => {
  const statuses: Record<string, string> = {};
  for (const [kind, present] of Object.entries(kinds)) {
    const { status, body } = await verify(present());
    statuses[kind] = status === 200 ? JSON.parse(body).data.code : `${status}`;
  }
  expect(statuses).toEqual({
    right: 'VALID',
    'wrong root key': '401',
    'root key of no workspace': '401',
    [guess]: 'NOT_FOUND',
    'unknown key': 'NOT_FOUND',
    "another workspace's key": 'NOT_FOUND',
    'key of an API the root key may not see': 'NOT_FOUND',
  });

  // The kinds alternate, so that other load of the machine affects all of them.
  const costs: Record<string, number[]> = Object.fromEntries(Object.keys(kinds).map((kind) => [kind, []]));
  for (let round = 0; round < warmRounds + rounds; round++) {
    for (const [kind, present] of Object.entries(kinds)) {
      const cost = await costUs(present);
      if (round >= warmRounds) costs[kind]!.push(cost);
    }
  }
  const median = (kind: string) => percentile(costs[kind]!, 50);
  // Compared within each round, as the machine is slower in some minutes than in others.
  const toRight = (kind: string) =>
    percentile(
      costs[kind]!.map((cost, round) => cost / costs.right![round]!),
      50,
    );
  const ratios = Object.keys(kinds).map((kind) => [kind, toRight(kind)] as const);
  // 10 % tolerance for other load of the machine.
  for (const [kind, ratio] of ratios) expect(ratio, kind).toBeLessThan(1.1);
  // Keys that are reported as NOT_FOUND, for different reasons.
  const unseen = Object.keys(kinds).filter((kind) => statuses[kind] === 'NOT_FOUND' && kind !== guess);
  for (const kind of unseen) {
    expect(median(kind) / median('unknown key'), kind).toBeGreaterThan(0.75);
    expect(median(kind) / median('unknown key'), kind).toBeLessThan(1.33);
  }

  report({
    order: '10.6',
    fault: 'Wrong root keys and wrong keys, as fast as right ones',
    expected: 'they cost no more than a right one; all keys that are NOT_FOUND cost the same, for whichever reason',
    measured: `a right one ${median('right').toFixed(0)} µs of processor time (server and Redis); ${ratios
      .slice(1)
      .map(([kind, ratio]) => `${kind} ${ratio.toFixed(2)}`)
      .join(', ')} times that`,
  });
}, 180_000);
