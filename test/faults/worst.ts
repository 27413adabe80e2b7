// A search for the batch that blocks Redis longest. It changes mixtures of verifications, ends of holds and limit
// checks under many root keys at random, and continues with those that cost more. The schemas accept all requests. A
// mixture is sent in one turn of the event loop.

import { AcceptedRootKeys } from '../../src/decide/accepted.ts';
import { openDecide } from '../../src/decide/decide.ts';
import { Leasing } from '../../src/decide/leases/leasing.ts';
import { Tail } from '../../src/decide/tail/tail.ts';
import type { PresentedRootKey } from '../../src/domain/caller.ts';
import { createRootKeyString, digestOf, digestTextOf } from '../../src/domain/keyString.ts';
import { compileInput } from '../../src/input/validate.ts';
import { settleHold } from '../../src/operations/keys/settleHold.ts';
import { verifyKey } from '../../src/operations/keys/verifyKey.ts';
import { multiLimit } from '../../src/operations/ratelimits/multiLimit.ts';
import { digestOf as digestOfKey } from '../../src/records/keys.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { connect } from '../../src/redis/connection.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { dataVersion } from '../../src/scripts/layout.ts';
import { loadScripts } from '../../src/scripts/scripts.ts';
import { openStore, type Store } from '../../src/store.ts';
import { dayMs, type InputOf, testSettings } from '../support/harness.ts';
import { keyspace, survey } from '../support/keyspace.ts';
import type { Rig } from './rig.ts';

/** A whole number between two, both included. */
type Pick = (min: number, max: number) => number;

const unchanging = { deactivate: async () => {}, mayLengthen: () => true, redisAgeMs: async () => 0 };

const times = <Item>(count: number, make: (index: number) => Item) =>
  Array.from({ length: count }, (_, at) => make(at));
const hour = 3_600_000;
/** Keys and root keys of each kind, so that a batch uses each only once: it would read a record only once. */
const clones = 24;
/** Namespaces with the maximum of wildcards. Together they have the maximum of a workspace. */
const wildNamespaces = 9;
/** The wildcards that take longest to compare. */
const wildcard = (index: number) => (index < 16 ? `*ab${index}*` : `${'a'.repeat(79)}${index}*`);
const padded = (text: string, characters: number) => `${text}.`.padEnd(characters, 'x');

const keyKinds = [
  ...(['plain', 'direct', 'many', 'wide', 'windows', 'empty', 'disabled', 'unknown'] as const),
  ...(['held', 'slots', 'temporary', 'planned'] as const),
] as const;
const rootKinds = ['all', 'lacking', 'holding'] as const;
const queries = {
  none: undefined,
  missing: 'none.such',
  eight: times(8, (index) => `w${index * 12}.5`).join(' OR '),
  long: times(75, (index) => `w${index + 10}.*`).join(' AND '),
  parts: 'a.'.repeat(490),
};
const namespaces = ['plain', 'wild', 'wilds', 'names', 'new'] as const;
type KeyKind = (typeof keyKinds)[number];

interface Verification {
  kind: 'verify';
  root: (typeof rootKinds)[number];
  /** The index of the key and the root key among those of their kinds. */
  clone: number;
  key: KeyKind;
  query: keyof typeof queries;
  /** Number of ad hoc limits. `newLimits`: with new names each time. */
  limits: number;
  newLimits: boolean;
  /** The request also names a limit that does not exist. */
  missingLimit: boolean;
  tags: number;
  /** It makes a hold; with an id that no hold has, so that settlements are searched for it. */
  hold: 'none' | 'numbered' | 'named';
}

/** The end of a hold of a key: one that is open, was settled, or does not exist. */
interface Settlement {
  kind: 'settle';
  root: (typeof rootKinds)[number];
  clone: number;
  key: 'held' | 'slots';
  hold: 'open' | 'settled' | 'unknown';
}

interface Check {
  kind: 'limit';
  root: (typeof rootKinds)[number];
  clone: number;
  checks: number;
  namespace: (typeof namespaces)[number];
  newIdentifiers: boolean;
}

type Item = Verification | Settlement | Check;

export interface Mixture {
  /** The server has no snapshots yet. */
  cold: boolean;
  items: Item[];
}

const plain: Verification = {
  kind: 'verify',
  root: 'all',
  clone: 0,
  key: 'plain',
  query: 'none',
  limits: 0,
  newLimits: false,
  missingLimit: false,
  tags: 0,
  hold: 'none',
};
const settlement: Settlement = { kind: 'settle', root: 'all', clone: 0, key: 'held', hold: 'open' };

/** The start of the search: requests that are known to be expensive, a full batch of each. */
export const beginnings: Mixture[] = [
  ...rootKinds.map((root) => uniform({ ...plain, root })),
  ...keyKinds.flatMap((key) => [uniform({ ...plain, key }), uniform({ ...plain, key }, false)]),
  ...(Object.keys(queries) as (keyof typeof queries)[]).map((query) => uniform({ ...plain, key: 'wide', query })),
  uniform({ ...plain, key: 'windows', limits: 50, newLimits: true, tags: 20, root: 'holding' }),
  ...(['held', 'slots'] as const).flatMap((key) => [
    uniform({ ...plain, key, hold: 'numbered' }),
    uniform({ ...plain, key, limits: 49, hold: 'named' }),
    ...(['open', 'settled', 'unknown'] as const).map((hold) => uniform({ ...settlement, key, hold })),
  ]),
  ...namespaces.map((namespace) =>
    uniform({ kind: 'limit', root: 'holding', clone: 0, checks: 100, namespace, newIdentifiers: true }),
  ),
];

function uniform(item: Item, cold = true): Mixture {
  return { cold, items: times(clones, (clone) => ({ ...item, clone })) };
}

const oneOf = <Item>(items: readonly Item[], pick: Pick): Item => items[pick(0, items.length - 1)]!;
/** 0, `most`, or a random number between them. */
const some = (most: number, pick: Pick) => [0, most, pick(0, most)][pick(0, 2)]!;

function randomItem(pick: Pick): Item {
  const common = { root: oneOf(rootKinds, pick), clone: pick(0, clones - 1) };
  if (pick(0, 3) === 0) {
    const namespace = oneOf(namespaces, pick);
    return {
      kind: 'limit',
      ...common,
      checks: Math.max(1, some(100, pick)),
      namespace,
      newIdentifiers: pick(0, 1) === 0,
    };
  }
  if (pick(0, 4) === 0) {
    const hold = oneOf(['open', 'settled', 'unknown'] as const, pick);
    return { kind: 'settle', ...common, key: oneOf(['held', 'slots'] as const, pick), hold };
  }
  return {
    kind: 'verify',
    ...common,
    key: oneOf(keyKinds, pick),
    query: oneOf(Object.keys(queries) as (keyof typeof queries)[], pick),
    limits: some(49, pick),
    newLimits: pick(0, 1) === 0,
    missingLimit: pick(0, 9) === 0,
    tags: some(20, pick),
    hold: oneOf(['none', 'numbered', 'named'] as const, pick),
  };
}

/** A copy of the mixture with some items replaced, moved, or changed in a field. */
export function changed({ cold, items }: Mixture, pick: Pick): Mixture {
  const next = [...items];
  for (let change = pick(1, 4); change > 0; change--) {
    const at = pick(0, next.length - 1);
    const kind = pick(0, 4);
    if (kind === 0) next[at] = randomItem(pick);
    else if (kind === 1) next.splice(at, 0, randomItem(pick));
    else if (kind === 2 && next.length > 1) next.splice(at, 1);
    else if (kind === 3) next.unshift(next.splice(at, 1)[0]!);
    else {
      // One field takes the value that it has in a random item.
      const other = randomItem(pick);
      const field = oneOf(Object.keys(other), pick);
      if (other.kind === next[at]!.kind) next[at] = { ...next[at]!, [field]: other[field as keyof typeof other] };
    }
  }
  return { cold: pick(0, 9) === 0 ? !cold : cold, items: next.slice(0, 2 * clones) };
}

/** A mixture as a line of text, such as `24 verify(key wide), cold`. */
export function described({ cold, items }: Mixture): string {
  const counts = new Map<string, number>();
  for (const { clone: _, ...item } of items) {
    const base = (item.kind === 'verify' ? { ...plain } : {}) as Record<string, unknown>;
    const fields = Object.entries(item).filter(([name, value]) => name !== 'kind' && base[name] !== value);
    const text = `${item.kind}(${fields.map(([name, value]) => (value === true ? name : `${name} ${value}`)).join(', ')})`;
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return `${[...counts].map(([text, count]) => `${count} ${text}`).join(', ')}${cold ? ', cold' : ''}`;
}

/**
 * Creates a workspace with everything that makes requests expensive. Returns a function that measures mixtures in it.
 */
export async function openWorld(rig: Rig) {
  const { ok, url, rootKey } = rig;
  const workspaceId = `ws_${rootKey.split('_')[1]}`;
  // Of today: the server of the rig rolls the logs of yesterday up.
  const clock = { now: Math.max(Date.now() - 3 * hour, Math.floor(Date.now() / dayMs) * dayMs) };
  const store = await openStore({ ...testSettings, url, commandTimeoutMs: 60_000, nowMs: () => clock.now });
  const redis = await connect(url, { commandTimeoutMs: 60_000 });
  const scripts = await loadScripts(redis, workspaceKey);
  const { apiId, keys } = await makeKeys(ok);
  for (const index of times(wildNamespaces * 210, Number)) {
    const namespace = `wild${index % wildNamespaces}`;
    const identifier = wildcard(Math.floor(index / wildNamespaces));
    await ok('ratelimits.setOverride', { namespace, identifier, limit: 1e9, duration: hour });
  }
  const roots = { all: times(clones, () => rootKey), lacking: [] as string[], holding: [] as string[] };
  for (const kind of ['lacking', 'holding'] as const) {
    const held = [`api.${apiId}.verify_key`, 'ratelimit.*.limit', 'ratelimit.*.create_namespace'];
    for (const clone of times(clones, Number)) {
      const grants = times(250, (index) => `api.api_${clone}_${index}_${'x'.repeat(225)}.read_analytics`);
      const permissions = kind === 'holding' ? [...grants, ...held] : grants;
      const { key, start } = createRootKeyString(workspaceId);
      await store.rootKeys.create(workspaceId, { digest: digestOf(key), start, permissions }, cliActor);
      roots[kind].push(key);
    }
  }
  const world: World = { workspaceId, keys, roots, holds: { held: [], slots: [] } };
  await fillWindows(store, clock, world);
  await fillHolds(store, clock, world);
  for (const clone of times(clones / 2, Number))
    await ok('identities.deleteIdentity', { identity: externalIdOf('held', clones / 2 + clone) });
  const { seen } = await survey(redis);
  const lacking = keyspace.flatMap(({ name, isOld }) => (isOld || seen.has(name) || undecided.has(name) ? [] : [name]));

  let planVersion = 0;
  let took: number[] = [];
  let last: Promise<unknown> = Promise.resolve();
  /** Runs one call at a time and measures Redis's processor time, which excludes other load of the machine. */
  const measuring = {
    ...scripts,
    runPacked(...call: Parameters<typeof scripts.runPacked>) {
      const reply = last.then(async () => {
        const before = rig.redis.cpuUs();
        try {
          return await scripts.runPacked(...call);
        } finally {
          took.push(rig.redis.cpuUs() - before);
        }
      });
      last = reply.catch(() => {});
      return reply;
    },
  };
  /**
   * Without cached snapshots. Slugs of keys with many permissions are not read, as this happens outside of the script.
   */
  const fresh = () =>
    openDecide({
      ...testSettings,
      tail: new Tail(redis),
      openLeasing: (settle) => new Leasing({ ...testSettings, ...unchanging, redis, settle }),
      accepted: new AcceptedRootKeys(),
      dataVersion: { current: dataVersion },
      scripts: measuring,
      slugsOf: async () => [],
      digestOf: (workspace, id24) => digestOfKey(redis, workspace, id24),
      commandTimeoutMs: 60_000,
      now: () => clock.now,
    });

  /** The time of each call of the mixture, in microseconds, in order. */
  async function once({ cold, items }: Mixture) {
    const decide = fresh();
    took = [];
    // A snapshot is cached from the second use on.
    for (let warming = cold ? 0 : 2; warming > 0; warming--) await sendAll(decide, items);
    if (items.some((item) => item.kind === 'verify' && item.key === 'planned')) await changePlans(ok, ++planVersion);
    took = [];
    await sendAll(decide, items);
    return took;
  }

  const sendAll = (decide: ReturnType<typeof fresh>, items: Mixture['items']) =>
    Promise.allSettled(
      items.map((item) => requestOf(item, world)({ decide, dataVersion: store.dataVersion } as Store)),
    );

  return {
    /**
     * The longest script of the operations that read all holds of a key or end them, in milliseconds by Redis's slow
     * log: the minimum of some keys, because of other load of the machine.
     */
    async longestOfHolds() {
      const least = new Map<string, number>();
      for (const { begin } of world.holds.held.slice(0, 5)) {
        const keyId = begin.replace('hold_', 'key_');
        const apiId = (await ok('keys.getKey', { keyId })).apiId;
        const steps = {
          'keys.explainKey': () => ok('keys.explainKey', { keyId }),
          'keys.listHolds': () => ok('keys.listHolds', { keyId }),
          export: () => store.keys.export(workspaceId, { apiId, count: 1000 }),
          'keys.deleteKey': () => ok('keys.deleteKey', { keyId, permanent: true }),
          purge: async () => {
            while (await store.sweep.purge(workspaceId));
          },
        };
        for (const [name, run] of Object.entries(steps)) {
          await redis.config('SET', 'slowlog-log-slower-than', '1000');
          await redis.slowlog('RESET');
          await run();
          const entries = (await redis.slowlog('GET', 1000)) as [number, number, number, string[]][];
          const scripts = entries.filter(([, , , [command]]) => /eval|fcall/i.test(command!));
          const ms = Math.max(0, ...scripts.map(([, , us]) => us)) / 1000;
          least.set(name, Math.min(ms, least.get(name) ?? ms));
        }
      }
      const [[name, ms]] = [...least].sort(([, one], [, other]) => other - one) as [[string, number]];
      return { name, ms };
    },
    /** Kinds of records that no key and no caller of a batch has. */
    lacking,
    /**
     * The longest call of a mixture in microseconds, and the number of calls. The time of each call is the minimum of
     * several equal runs, because of other load of the machine.
     */
    async cost(mixture: Mixture, runs = 3) {
      let least = await once(mixture);
      for (let run = 1; run < runs; run++) {
        const next = await once(mixture);
        least = least.map((us, call) => Math.min(us, next[call] ?? us));
      }
      return { us: Math.max(...least), calls: least.length };
    },
    async close() {
      await store.close();
      await redis.quit();
    },
  };
}

interface World {
  workspaceId: string;
  keys: Record<KeyKind, string[]>;
  roots: Record<(typeof rootKinds)[number], string[]>;
  /** By key: ids of open holds, of those that were settled, and what the ids of all begin with. */
  holds: Record<Settlement['key'], { open: string[]; settled: string[]; begin: string }[]>;
}

/** Kinds of records that the world needs not have. */
const undecided = new Set([
  // No batch reads or writes them.
  ...[':data', ':rks', ':rkfull', ':apis', ':keys:<api8>', ':kd:<api8>', ':ke:<api8>', ':sb:<api8>', ':ik:<id16>'],
  ...[':sl:<api8>:<bound>', ':dead', ':da:<api8>', ':das', ':dq', ':purge', ':audit', ':refill', ':ove', ':ovu:<id16>'],
  ...[':uh:<key24>', ':uw:<api8>:<week>', ':sm:<api8>:<month>:<bound>', ':sc:<api8>:<month>', ':rolled', ':uz:<api8>'],
  // Batches of the search make them.
  ...[':rh:<hour>', ':ui:<externalId>', ':ut:<api8>:<day>', ':tags:<api8>', ':ul:<id16>:<day>', ':ud:<id16>:<day>'],
  ':un:<id16>:<day>',
  // Of leases: a batch reads one of each.
  ...[':lw:<owner>:<duration>:<name>', ':leases'],
]);

/** The plan of a key, or of its identity. */
const planIdOf = (owner: 'key' | 'identity', clone: number) => `${owner}.${clone}`;

const externalIdOf = (kind: KeyKind, clone: number) => padded(`${kind}${clone}`, 255);

const limitsFrom = (letter: string) =>
  times(50, (index) => ({
    name: padded(`${letter}${index}`, 128),
    limit: 2 ** 53 - 1,
    duration: hour + index,
    autoApply: true,
  }));

/** The most limits of a plan, other ones than an owner has, with a limit that tells versions apart. */
const planLimits = (version: number) =>
  limitsFrom('p')
    .slice(0, 25)
    .map((limit) => ({ ...limit, limit: 2 ** 52 + version }));

/** Changes all plans, so that the next batch merges the limits of their owners again. */
async function changePlans(ok: Rig['ok'], version: number) {
  for (const clone of times(clones, Number)) {
    for (const owner of ['key', 'identity'] as const) {
      await ok('plans.updatePlan', { planId: planIdOf(owner, clone), ratelimits: planLimits(version) });
    }
  }
}

/** Kinds of keys. All except the plain ones have large identities, limits or metadata. */
async function makeKeys(ok: Rig['ok']) {
  for (const role of times(100, Number)) {
    const permissions = times(1000, (index) => (index === 5 ? `w${role}.5` : padded(`w${role}.${index}`, 100)));
    await ok('permissions.createRole', { name: `w${role}`, permissions });
  }
  const { apiId } = await ok('apis.createApi', { name: 'worst' });
  const meta = { text: 'x'.repeat(10_000) };
  const ratelimits = limitsFrom('k');
  // The hold of a verification has no room for so many limits that apply by themselves.
  const named = (limits: typeof ratelimits) => limits.map((limit) => ({ ...limit, autoApply: false }));
  const slotLimits = times(20, (index) => ({
    name: padded(`c${index}`, 60),
    limit: 10_000,
    duration: 24 * hour,
    type: 'concurrency' as const,
  }));
  const roles = (count: number) => times(count, (index) => `w${index}`);
  const fields: Record<KeyKind, Omit<InputOf<'keys.createKey'>, 'apiId'>> = {
    plain: { credits: { remaining: 1e12 } },
    direct: { permissions: times(1000, (index) => padded(`w0.${index}`, 100)), ratelimits, meta },
    // The maximum of permissions that the script returns as slugs.
    many: { roles: roles(4), ratelimits, meta },
    wide: { roles: roles(100), ratelimits, meta },
    windows: { ratelimits },
    empty: { credits: { remaining: 0 }, ratelimits },
    disabled: { enabled: false, roles: roles(4), meta },
    unknown: {},
    held: { ratelimits: named(ratelimits), credits: { remaining: 1e12 }, meta },
    slots: { ratelimits: slotLimits },
    temporary: { ratelimits: limitsFrom('k').map((limit) => ({ ...limit, until: Date.now() + 1000 * hour })) },
    planned: { ratelimits: ratelimits.slice(0, 25), meta },
  };
  for (const clone of times(clones, Number)) {
    for (const owner of ['key', 'identity'] as const) {
      await ok('plans.createPlan', {
        planId: planIdOf(owner, clone),
        ratelimits: planLimits(0),
        roles: roles(20),
        permissions: times(100, (index) => padded(`w0.${index}`, 100)),
        meta,
      });
    }
  }
  const keys = {} as World['keys'];
  for (const kind of keyKinds) {
    keys[kind] = [];
    for (const clone of times(clones, Number)) {
      const externalId = externalIdOf(kind, clone);
      const credits = kind === 'held' && { credits: { remaining: 1e12 } };
      const isPlanned = kind === 'planned';
      const ofIdentity = limitsFrom('i').slice(0, isPlanned ? 25 : 50);
      const hasHolds = kind === 'held' || kind === 'slots';
      const plan = (owner: 'key' | 'identity') => isPlanned && { planId: planIdOf(owner, clone) };
      const limits = { ratelimits: hasHolds ? named(ofIdentity) : ofIdentity, meta, ...credits, ...plan('identity') };
      if (kind !== 'plain') await ok('identities.createIdentity', { externalId, ...limits });
      const common = { apiId, name: 'n'.repeat(255), ...(kind !== 'plain' && { externalId }), ...plan('key') };
      const input = { ...common, ...fields[kind] };
      keys[kind].push((await ok('keys.createKey', input)).key);
    }
  }
  keys.unknown = keys.unknown.map((key) => `${key}x`);
  return { apiId, keys };
}

/** Charges many units in every slice of the limits' durations, so that the windows have their maximum length. */
async function fillWindows(store: Store, clock: { now: number }, { workspaceId, keys, roots }: World) {
  const root = presentedOf(workspaceId, roots.all[0]!);
  for (const _ of times(70, Number)) {
    clock.now += Math.ceil((hour + 50) / 64);
    for (const letter of ['k', 'i']) {
      const ratelimits = limitsFrom(letter).map(({ name }) => ({ name, cost: 2 ** 40 }));
      await Promise.all(keys.windows.map((key) => verifyKey.prepare({ key, ratelimits }, root, store).decide()));
    }
  }
}

/** Fills keys with holds: as many bytes as they may have, slots with many ends, and settlements. */
async function fillHolds(store: Store, clock: { now: number }, { workspaceId, keys, roots, holds }: World) {
  const root = presentedOf(workspaceId, roots.all[0]!);
  const ratelimits = times(50, (index) => ({ name: padded(`h${index}`, 60), limit: 1e9, duration: hour }));
  const named = times(20, (index) => ({ name: padded(`c${index}`, 60) }));
  for (const kind of ['held', 'slots'] as const) {
    holds[kind] = await Promise.all(
      keys[kind].map(async (key) => {
        const open: string[] = [];
        const settled: string[] = [];
        for (let made = 0; made < (kind === 'held' ? 300 : 60); made++) {
          const limits = kind === 'held' ? ratelimits : named;
          const hold = { ttl: 20 * hour - made * 60_000 };
          const verifying = async () => verifyKey.prepare({ key, hold, ratelimits: limits }, root, store).decide();
          const verified = await verifying().catch(() => '');
          const id = /"hold":\{"id":"(\w[\w.-]+)"/.exec(verified)?.[1];
          if (id) open.push(id);
          else break;
        }
        // The search may settle all of them.
        const begin = open[0]!.slice(0, 'hold_'.length + 24);
        for (let ended = 0; ended < 40 && kind === 'held'; ended++) {
          const holdId = open.shift()!;
          await settleHold.prepare({ holdId }, root, store).decide();
          settled.push(holdId);
        }
        return { open, settled, begin };
      }),
    );
  }
  clock.now += 1;
}

const presentedOf = (workspaceId: string, rootKey: string): PresentedRootKey => ({
  workspaceId,
  digest: digestOf(rootKey),
  digestText: digestTextOf(rootKey),
});

let made = 0;
const checkVerify = compileInput(verifyKey.input);
const checkLimit = compileInput(multiLimit.input);

/** Checks the request of an item against its schema. Returns a function that sends it. */
function requestOf(item: Item, world: World): (store: Store) => string | Promise<string> {
  const { workspaceId, keys, roots } = world;
  const presented = presentedOf(workspaceId, roots[item.root][item.clone]!);
  if (item.kind === 'limit') {
    const nameAt = (index: number) =>
      ({
        plain: 'plain',
        wild: `wild${item.clone % wildNamespaces}`,
        wilds: `wild${index % wildNamespaces}`,
        names: padded(`n${index}`, 512),
        new: padded(`new${made}.${index}`, 512),
      })[item.namespace];
    const begin = item.newIdentifiers ? `${++made}.` : '';
    const input = times(item.checks, (index) => ({
      namespace: nameAt(index),
      identifier: `${'a'.repeat(490)}${begin}${index}`,
      limit: 1e9,
      duration: hour,
    }));
    checkLimit(input);
    return (store) => multiLimit.prepare(input, presented, store).decide();
  }
  if (item.kind === 'settle') {
    const { open, settled, begin } = world.holds[item.key][item.clone]!;
    const some = { open: open.pop(), settled: settled.at(-1), unknown: undefined }[item.hold];
    const holdId = some ?? `${begin}_unknown`;
    return (store) => settleHold.prepare({ holdId }, presented, store).decide();
  }
  const begin = item.newLimits ? `${++made}.` : '';
  const own = times(item.limits, (index) => ({ name: padded(`${begin}${index}`, 128), limit: 1e9, duration: hour }));
  const ratelimits = item.missingLimit ? [...own, { name: 'no such limit' }] : own;
  const permissions = queries[item.query];
  const tags = times(item.tags, (index) => padded(`t${index}`, 512));
  const input: InputOf<'keys.verifyKey'> = {
    key: keys[item.key][item.clone]!,
    ...(permissions !== undefined && { permissions }),
    ...(ratelimits.length > 0 && { ratelimits }),
    ...(tags.length > 0 && { tags }),
    ...(item.hold !== 'none' && { hold: { ttl: 1000, ...(item.hold === 'named' && { id: `new-${++made}` }) } }),
  };
  checkVerify(input);
  return (store) => verifyKey.prepare(input, presented, store).decide();
}
