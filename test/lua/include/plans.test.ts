// Plans in Redis (lua/include/plans.lua): after any changes of keys, identities, APIs and plans, the lists of owners
// have exactly those that have a plan, and nothing names a plan that does not exist.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { workspaceKey } from '../../../src/redis/names.ts';
import { harness, hourMs } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';
import { snippets } from '../../support/snippet.ts';
import { volumeTest } from '../../support/testIf.ts';

const snippet = snippets();
const tollgate = harness();
const { call, clock, openWorkspace } = tollgate;

const planIds = ['free', 'pro', 'Pro'];
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };

type Workspace = Awaited<ReturnType<typeof openWorkspace>>;
interface Owner {
  id: string;
  apiId?: string;
  planId: string | undefined;
  isDeleted?: boolean;
}
interface World {
  plans: Set<string>;
  apis: Map<string, { isDeleted: boolean }>;
  keys: Owner[];
  identities: Owner[];
}

/** The members of the lists of owners in Redis, as ids. */
async function listed(workspaceId: string, planId: string) {
  const workspace = workspaceKey(workspaceId);
  const keys = await snippet.redis.zrange(`${workspace}:plk:${planId}`, '0', '-1');
  const identities = await snippet.redis.zrange(`${workspace}:pli:${planId}`, '0', '-1');
  return {
    keys: keys.map((member) => `key_${member.slice(8)}${member.slice(0, 8)}`).sort(),
    identities: identities.map((id16) => `id_${id16}`).sort(),
  };
}

const idsWith = (owners: readonly Owner[], planId: string) =>
  owners.flatMap((owner) => (!owner.isDeleted && owner.planId === planId ? [owner.id] : [])).sort();

async function expectSame({ workspaceId, of, rootKey }: Workspace, { plans, apis, keys, identities }: World) {
  for (const planId of planIds) {
    const expected = { keys: idsWith(keys, planId), identities: idsWith(identities, planId) };
    expect(await listed(workspaceId, planId), planId).toEqual(expected);
    if (!plans.has(planId)) {
      expect(expected).toEqual({ keys: [], identities: [] });
      expect((await call('plans.getPlan', { planId }, rootKey)).status).toBe(404);
      continue;
    }
    expect(await of('plans.getPlan', { planId })).toMatchObject({
      keyCount: expected.keys.length,
      identityCount: expected.identities.length,
    });
  }
  const isInApi = ({ apiId }: Owner) => !apis.get(apiId!)!.isDeleted;
  for (const deleted of [false, true]) {
    const wanted = (owner: Owner) => (owner.isDeleted ?? false) === deleted;
    const plansOf = (owners: readonly Owner[]) =>
      Object.fromEntries(owners.filter(wanted).map((owner) => [owner.id, owner.planId]));
    const listedKeys = await of('keys.listKeys', { deleted, limit: 100 });
    expect(Object.fromEntries(listedKeys.map(({ keyId, planId }) => [keyId, planId]))).toEqual(
      plansOf(keys.filter(isInApi)),
    );
    const listedIdentities = await of('identities.listIdentities', { deleted, limit: 100 });
    expect(Object.fromEntries(listedIdentities.map(({ id, planId }) => [id, planId]))).toEqual(plansOf(identities));
  }
}

/** One random change, of Tollgate and of what is expected. */
async function changeSomething({ of, rootKey }: Workspace, world: World, pick: (min: number, max: number) => number) {
  const one = <Item>(items: readonly Item[]): Item | undefined => items[pick(0, items.length - 1)];
  const { plans, apis, keys, identities } = world;
  const isLive = ({ isDeleted, apiId }: Owner) => !isDeleted && !(apiId !== undefined && apis.get(apiId)!.isDeleted);
  const isRestorable = ({ isDeleted, apiId }: Owner) =>
    isDeleted === true && !(apiId !== undefined && apis.get(apiId)!.isDeleted);
  const somePlan = () => one([undefined, ...plans]);
  const [key, identity] = [one(keys.filter(isLive)), one(identities.filter(isLive))];
  const apiId = one([...apis].flatMap(([id, { isDeleted }]) => (isDeleted ? [] : [id])));
  const remove = (owners: Owner[], owner: Owner, permanent: boolean) => {
    if (permanent) owners.splice(owners.indexOf(owner), 1);
    else owner.isDeleted = true;
  };
  const restored = (owner: Owner) => {
    owner.isDeleted = false;
  };
  const changes: (() => Promise<unknown> | undefined)[] = [
    async () => {
      const planId = one(planIds)!;
      if (plans.has(planId))
        return of('plans.updatePlan', { planId, ratelimits: [{ ...requests, limit: pick(1, 9) }] });
      plans.add(planId);
      return of('plans.createPlan', { planId, ratelimits: [requests] });
    },
    async () => {
      const planId = one([...plans]);
      const replaceWith = one([undefined, ...plans]);
      if (planId === undefined || planId === replaceWith) return;
      const isUsed = idsWith(keys, planId).length + idsWith(identities, planId).length > 0;
      const { status } = await call('plans.deletePlan', { planId, ...(replaceWith && { replaceWith }) }, rootKey);
      expect(status).toBe(isUsed && replaceWith === undefined ? 412 : 200);
      if (status !== 200) return;
      plans.delete(planId);
      // A deleted owner does not get a later plan with its planId.
      for (const owner of [...keys, ...identities])
        if (owner.planId === planId) owner.planId = owner.isDeleted ? undefined : replaceWith;
    },
    async () => {
      if (apiId === undefined) return;
      const planId = somePlan();
      const { keyId } = await of('keys.createKey', { apiId, ...(planId && { planId }) });
      keys.push({ id: keyId, apiId, planId });
    },
    async () => {
      if (!key) return;
      const { keyId } = await of('keys.rerollKey', { keyId: key.id, expiration: hourMs });
      keys.push({ ...key, id: keyId });
    },
    async () => {
      if (!key) return;
      const planId = somePlan();
      await of('keys.updateKey', { keyId: key.id, planId: planId ?? null });
      key.planId = planId;
    },
    // With other limits only, the plan stays.
    async () => key && of('keys.updateKey', { keyId: key.id, ratelimit: { ...requests, limit: pick(1, 9) } }),
    async () => {
      if (!key) return;
      const permanent = pick(0, 3) === 0;
      await of('keys.deleteKey', { keyId: key.id, permanent });
      remove(keys, key, permanent);
    },
    async () => {
      const deleted = one(keys.filter(isRestorable));
      if (!deleted) return;
      await of('keys.restoreKey', { keyId: deleted.id });
      restored(deleted);
    },
    async () => {
      const planId = somePlan();
      const externalId = `user.${identities.length}.${pick(0, 1e9)}`;
      const { identityId } = await of('identities.createIdentity', { externalId, ...(planId && { planId }) });
      identities.push({ id: identityId, planId });
    },
    async () => {
      if (!identity) return;
      const planId = somePlan();
      await of('identities.updateIdentity', { identity: identity.id, planId: planId ?? null });
      identity.planId = planId;
    },
    async () => {
      if (!identity) return;
      const permanent = pick(0, 3) === 0;
      await of('identities.deleteIdentity', { identity: identity.id, permanent });
      remove(identities, identity, permanent);
    },
    async () => {
      const deleted = one(identities.filter(isRestorable));
      if (!deleted) return;
      await of('identities.restoreIdentity', { identityId: deleted.id });
      restored(deleted);
    },
    // A deleted API may be restored with the plans of its keys.
    async () => {
      const api = one([...apis]);
      if (!api || pick(0, 2) > 0) return;
      const [id, stored] = api;
      stored.isDeleted = !stored.isDeleted;
      return stored.isDeleted ? of('apis.deleteApi', { apiId: id }) : of('apis.restoreApi', { apiId: id });
    },
  ];
  await one(changes)!();
  clock.advance(pick(0, 5));
}

volumeTest('after random changes the lists of owners are exact, and no reply names a plan that is gone', async () => {
  for (let history = 0; history < 4; history++) {
    const workspace = await openWorkspace();
    const pick = random(seed + history);
    const world: World = { plans: new Set(), apis: new Map(), keys: [], identities: [] };
    for (const name of ['one', 'two'])
      world.apis.set((await workspace.of('apis.createApi', { name })).apiId, { isDeleted: false });
    for (let step = 0; step < 80; step++) {
      await changeSomething(workspace, world, pick);
      if (step % 4 === 3) await expectSame(workspace, world);
    }
  }
});

test('a deleted key of a deleted plan is exported without it, so that it can be imported', async () => {
  const { workspaceId, of } = await openWorkspace();
  const { apiId } = await of('apis.createApi', { name: 'moved' });
  for (const planId of ['gone', 'kept']) await of('plans.createPlan', { planId, ratelimits: [requests] });
  const made: string[] = [];
  for (const planId of ['gone', 'kept']) {
    const { keyId } = await of('keys.createKey', { apiId, planId, ratelimits: [{ ...requests, name: 'own' }] });
    made.push(keyId);
    await of('keys.deleteKey', { keyId });
  }
  await of('plans.deletePlan', { planId: 'gone' });
  const page = await tollgate.store.keys.export(workspaceId, { apiId, deleted: true, count: 10 });
  expect(page!.items.map(({ keyId, planId }) => [keyId, planId])).toEqual([
    [made[0], undefined],
    [made[1], 'kept'],
  ]);
});

test('an own limit replaces that of the plan with its name, and the limits of a plan keep their ids', async () => {
  const body = `
    local own, of_plan = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
    local texts = {}
    for index, l in ipairs(plans.merged(own, #of_plan > 0 and { limits = of_plan } or nil)) do
      texts[index] = table.concat({ l.name, int(l.limit), l.id or '', l.of_plan and 'plan' or 'own' }, ' ')
    end
    return texts`;
  const names = fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd', 'e'), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(names, names, async (own, planned) => {
      const limits = (list: string[], from: number) =>
        list.map((name, at) => ({ name, limit: from + at, duration: hourMs, id: `${from + at}` }));
      const [ofOwner, ofPlan] = [limits(own, 1), limits(planned, 100)];
      const texts = await snippet.run(body, 'tg:{ws_plans}', [JSON.stringify(ofOwner), JSON.stringify(ofPlan)]);
      expect(texts).toEqual([
        ...ofOwner.map(({ name, limit, id }) => `${name} ${limit} ${id} own`),
        ...ofPlan.flatMap(({ name, limit, id }) =>
          (own as string[]).includes(name) ? [] : [`${name} ${limit} ${id} plan`],
        ),
      ]);
    }),
    { seed, numRuns: 50 },
  );
});
