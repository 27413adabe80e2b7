// The index of ends in lua/include/limitList.lua: after any changes of keys, identities, overrides and APIs it has
// exactly the temporary limits and overrides that are stored, and ratelimits.listTemporary returns exactly those in
// force.

import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { cliActor } from '../../../src/records/rootKeys.ts';
import { endFaults } from '../../support/ends.ts';
import { dayMs, harness } from '../../support/harness.ts';
import { readPages } from '../../support/lists.ts';
import { random, seed } from '../../support/random.ts';
import { snippets } from '../../support/snippet.ts';

const snippet = snippets();
const tollgate = harness();
const { call, clock, openWorkspace } = tollgate;
const minute = 60_000;

async function openIndexed() {
  const workspace = await openWorkspace();
  return { ...workspace, faults: () => endFaults(snippet, workspace.workspaceId, clock.now) };
}
type Workspace = Awaited<ReturnType<typeof openIndexed>>;

interface Ids {
  apis: string[];
  live: { keyId: string; key: string | undefined }[];
  deleted: string[];
  identities: string[];
}

const names = ['one', 'two', 'three'];
const identifiers = ['ada', 'bob', 'guest_*'];
const namespaces = ['mail', 'sms'];

/** One random change. */
async function changeSomething(
  { workspaceId, rootKey, of }: Workspace,
  pick: (min: number, max: number) => number,
  ids: Ids,
) {
  const one = <Item>(items: readonly Item[]) => items[pick(0, items.length - 1)]!;
  // Most end within the next steps.
  const until = () => one([undefined, clock.now + pick(1, 60), clock.now + 20, clock.now + 1000]);
  const limitOf = (name: string) => ({ name, limit: pick(1, 3), duration: one([minute, 2 * minute]), until: until() });
  const limits = () => names.filter(() => pick(0, 1) === 1).map(limitOf);
  const ratelimit = () =>
    one([
      () => ({ name: one(names), limit: null }),
      () => limitOf(one(names)),
      () => ({ ...limitOf(one(names)), until: null }),
    ])();
  const changed = () => one<() => object>([() => ({ ratelimits: limits() }), () => ({ ratelimit: ratelimit() })])();
  const apiId = one(ids.apis);
  const owner = () => (ids.identities.length > 0 && pick(0, 1) === 1 ? { externalId: one(ids.identities) } : {});
  const given = () => ({ namespace: one(namespaces), identifier: one(identifiers), limit: 1, duration: minute });
  const setOverride = () => of('ratelimits.setOverride', { ...given(), until: until() });
  const changes: Record<string, (it: Ids['live'][number] | undefined) => Promise<unknown>> = {
    async create() {
      ids.live.push(await of('keys.createKey', { apiId, ratelimits: limits(), ...owner() }));
    },
    async import() {
      const keys = names.map(() => ({ hash: randomBytes(32).toString('base64'), ratelimits: limits() }));
      const { migrated } = await of('keys.migrateKeys', { apiId, migrationId: 'old', keys });
      ids.live.push(...migrated.map(({ keyId }) => ({ keyId, key: undefined })));
    },
    update: async (it) => it && of('keys.updateKey', { keyId: it.keyId, ...changed() }),
    rename: async (it) => it && of('keys.updateKey', { keyId: it.keyId, name: 'other', ...owner() }),
    // Replaces what has ended, of the key and its identity.
    verify: async (it) => it?.key && of('keys.verifyKey', { key: it.key, ratelimits: [] }),
    async reroll(it) {
      if (it) ids.live.push(await of('keys.rerollKey', { keyId: it.keyId, expiration: 1000 }));
    },
    async delete(it) {
      if (!it) return;
      const permanent = pick(0, 2) === 0;
      await of('keys.deleteKey', { keyId: it.keyId, permanent });
      ids.live.splice(ids.live.indexOf(it), 1);
      if (!permanent) ids.deleted.push(it.keyId);
    },
    async restore() {
      const keyId = ids.deleted.pop();
      if (!keyId) return;
      await of('keys.restoreKey', { keyId });
      ids.live.push({ keyId, key: undefined });
    },
    async createIdentity() {
      const externalId = `user_${clock.now}_${pick(0, 1e9)}`;
      await of('identities.createIdentity', { externalId, ratelimits: limits() });
      ids.identities.push(externalId);
    },
    async updateIdentity() {
      const identity = one(ids.identities);
      if (identity) await of('identities.updateIdentity', { identity, ...changed() });
    },
    async deleteIdentity() {
      if (pick(0, 2) > 0 || ids.identities.length === 0) return;
      await of('identities.deleteIdentity', { identity: ids.identities.shift()! });
    },
    setOverride,
    // Twice as likely as another change, so that many are set again.
    setOverrideToo: setOverride,
    async deleteOverride() {
      const { namespace, identifier } = given();
      await call('ratelimits.deleteOverride', { namespace, identifier }, rootKey);
    },
    async deleteApi() {
      if (pick(0, 4) > 0) return;
      await of('apis.deleteApi', { apiId, permanent: true });
      const isKept = (keyId: string) => !keyId.endsWith(apiId.slice(-8));
      ids.live = ids.live.filter(({ keyId }) => isKept(keyId));
      ids.deleted = ids.deleted.filter(isKept);
      ids.apis.splice(ids.apis.indexOf(apiId), 1, (await of('apis.createApi', { name: 'another' })).apiId);
    },
    purge: async () => tollgate.store.sweep.purge(workspaceId),
    sweep: async () => tollgate.store.sweep.ended(workspaceId),
  };
  await one(Object.values(changes))(one(ids.live));
  clock.advance(pick(0, 5));
}

/** What is in force and temporary, by the operations that read records. */
async function readTemporary({ of, rootKey }: Workspace, ids: Ids): Promise<string[]> {
  const lineOf = (owner: string, limits: readonly object[] = []) =>
    (limits as { name?: string; until?: number; limit: number; former?: object }[]).flatMap(
      ({ name, until, limit, former }) =>
        until === undefined ? [] : [`${until} ${owner} ${name} ${limit} ${JSON.stringify(former)}`],
    );
  const lines: string[] = [];
  for (const { keyId } of ids.live) lines.push(...lineOf(keyId, (await of('keys.getKey', { keyId })).ratelimits));
  for (const identity of ids.identities)
    lines.push(...lineOf(identity, (await of('identities.getIdentity', { identity })).ratelimits));
  for (const namespace of namespaces)
    for (const identifier of identifiers) {
      const { status, data } = await call('ratelimits.getOverride', { namespace, identifier }, rootKey);
      if (status === 200) lines.push(...lineOf(`${namespace} ${identifier}`, [data]));
    }
  return lines.sort();
}

test('a key whose limit has ended is deleted: nothing is left, before and after another decision about it', async () => {
  const { of, faults } = await openIndexed();
  const { apiId } = await of('apis.createApi', { name: 'one' });
  for (const permanent of [false, true]) {
    const ratelimits = ['gone', 'stays'].map((name) => ({ name, limit: 1, duration: minute, until: clock.now + 1 }));
    const { keyId, key } = await of('keys.createKey', { apiId, ratelimits });
    await of('keys.updateKey', { keyId, ratelimit: { name: 'stays', limit: 2, until: clock.now + 1000 } });
    expect(await faults()).toEqual({ faults: [], count: 2 });
    clock.advance(1);
    expect(await faults()).toEqual({ faults: [], count: 2 });
    if (permanent) await of('keys.verifyKey', { key });
    expect(await faults()).toEqual({ faults: [], count: permanent ? 1 : 2 });
    await of('keys.deleteKey', { keyId, permanent });
    expect(await faults()).toEqual({ faults: [], count: 0 });
    if (permanent) continue;
    await of('keys.restoreKey', { keyId });
    expect(await faults()).toEqual({ faults: [], count: 1 });
    await of('keys.deleteKey', { keyId });
  }
});

test('an import: a deleted key is in it once it is restored, and what has ended until a sweep', async () => {
  const { workspaceId, of, faults } = await openIndexed();
  const { apiId } = await of('apis.createApi', { name: 'imported' });
  const keptFormer = { limit: 1, duration: minute, autoApply: false };
  const ratelimits = [
    { name: 'lasts', limit: 2, duration: minute, until: clock.now + 1000, keptFormer },
    { name: 'ended', limit: 2, duration: minute, until: clock.now, keptFormer },
    { name: 'gone', limit: 2, duration: minute, until: clock.now, keptFormer: null },
  ];
  const keys = [undefined, clock.now + dayMs].map((restorableUntil) => ({
    digest: randomBytes(32),
    start: '',
    ratelimits,
    restorableUntil,
  }));
  const { store } = tollgate;
  const created = await store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: true }, cliActor);
  expect(await faults()).toEqual({ faults: [], count: 3 });
  await store.identities.create(workspaceId, [{ externalId: 'imported', ratelimits }], cliActor);
  expect(await faults()).toEqual({ faults: [], count: 6 });
  const override = { namespace: 'mail', limit: 1, duration: minute, former: { limit: 2, duration: minute } };
  for (const [index, untilMs] of [clock.now + 1000, clock.now].entries()) {
    const keptId = `1111111111111${index + 1}11`;
    await store.overrides.set(workspaceId, { ...override, identifier: `${index}`, untilMs, keptId }, cliActor);
  }
  expect(await faults()).toEqual({ faults: [], count: 7 });
  await of('keys.restoreKey', { keyId: (created as { created: string[] }).created[1]! });
  expect(await faults()).toEqual({ faults: [], count: 10 });
  await store.sweep.ended(workspaceId);
  expect(await faults()).toEqual({ faults: [], count: 4 });
});

test(`it is exact after any changes (seed ${seed})`, { timeout: 120_000 }, async () => {
  const pick = random(seed);
  const workspace = await openIndexed();
  const apis = [];
  for (const name of ['one', 'two']) apis.push((await workspace.of('apis.createApi', { name })).apiId);
  const ids: Ids = { apis, live: [], deleted: [], identities: [] };
  let listed = 0;
  for (let step = 0; step < 400; step++) {
    await changeSomething(workspace, pick, ids);
    if (step % 10 < 9) continue;
    // Keys of deleted APIs leave it when they are removed.
    while (await tollgate.store.sweep.purge(workspace.workspaceId));
    expect((await workspace.faults()).faults, `step ${step}`).toEqual([]);
    if (step % 40 < 39) continue;
    const pages = await readPages((at) => call('ratelimits.listTemporary', { limit: 3, ...at }, workspace.rootKey));
    const items = pages.flat();
    expect(items.map(({ until }) => until)).toEqual(items.map(({ until }) => until).toSorted((a, b) => a - b));
    const lines = items.map((item) => {
      const owner = item.keyId ?? item.externalId ?? `${item.namespace} ${item.identifier}`;
      return `${item.until} ${owner} ${item.name} ${item.limit} ${JSON.stringify(item.former)}`;
    });
    expect(lines.sort(), `step ${step}`).toEqual(await readTemporary(workspace, ids));
    listed += lines.length;
  }
  // There was something to compare.
  expect(listed).toBeGreaterThan(20);
  // The sweeper removes everything that has ended.
  clock.advance(1000);
  while (await tollgate.store.sweep.ended(workspace.workspaceId));
  expect((await workspace.faults()).count).toBe(0);
});
