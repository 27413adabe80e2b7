import { expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const { call, ok, openWorkspace, clock } = harness();

async function workspaceWith(planIds: readonly string[]) {
  const workspace = await openWorkspace();
  for (const planId of planIds) await workspace.of('plans.createPlan', { planId });
  return workspace;
}
const idsOf = (plans: readonly { planId: string }[]) => plans.map(({ planId }) => planId);

test('plans.listPlans: 200 in order of creation, page by page', async () => {
  const planIds = ['pro', 'basic', 'Zero', 'a', 'b'];
  const { of, rootKey } = await workspaceWith(planIds);
  expect(idsOf(await of('plans.listPlans', {}))).toEqual(planIds);
  const pages: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await call('plans.listPlans', { limit: 2, ...(cursor && { cursor }) }, rootKey);
    pages.push(...idsOf(page.data));
    // A change and a deletion do not disturb the order.
    await of('plans.updatePlan', { planId: 'pro', meta: { page: pages.length } });
    if (!page.pagination.hasMore) break;
    cursor = page.pagination.cursor!;
  }
  expect(pages).toEqual(planIds);
});

test('plans.listPlans: 200 with those whose planId contains the search, in each case', async () => {
  const { of } = await workspaceWith(['pro', 'Pro.yearly', 'basic', 'a.b', 'aXb']);
  expect(idsOf(await of('plans.listPlans', { search: 'PRO' }))).toEqual(['pro', 'Pro.yearly']);
  expect(idsOf(await of('plans.listPlans', { search: 'a.b' }))).toEqual(['a.b']);
  expect(await of('plans.listPlans', { search: '*' })).toEqual([]);
});

test('plans.listPlans: 200 with the same plans as getPlan; none of another workspace, and none that is deleted', async () => {
  const { of } = await workspaceWith(['pro', 'old']);
  await of('plans.updatePlan', { planId: 'pro', meta: { seats: 5 }, permissions: ['a.b'] });
  await of('identities.createIdentity', { externalId: 'acme', planId: 'pro' });
  await of('plans.deletePlan', { planId: 'old' });
  clock.advance(1);
  expect(await of('plans.listPlans', {})).toEqual([await of('plans.getPlan', { planId: 'pro' })]);
  expect(await (await openWorkspace()).of('plans.listPlans', {})).toEqual([]);
});

test('plans.listPlans: 200 with 100 plans of 25 limits and a large metadata each', async () => {
  const { of, rootKey } = await workspaceWith([]);
  const ratelimits = Array.from({ length: 25 }, (_, at) => ({ name: `limit ${at}`, limit: 5, duration: 1000 }));
  const meta = { text: 'x'.repeat(10_000) };
  for (let at = 0; at < 100; at++) await of('plans.createPlan', { planId: `large.${at}`, ratelimits, meta });
  const found: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await call('plans.listPlans', { limit: 100, ...(cursor && { cursor }) }, rootKey);
    found.push(...idsOf(page.data));
    if (!page.pagination.hasMore) break;
    cursor = page.pagination.cursor!;
  }
  expect(found).toEqual(Array.from({ length: 100 }, (_, at) => `large.${at}`));
});

test('plans.listPlans: 400 and 403', async () => {
  expect(await call('plans.listPlans', { limit: 101 })).toMatchObject(onlyInvalidAt('body.limit'));
  expect(await call('plans.listPlans', { limit: 0 })).toMatchObject(onlyInvalidAt('body.limit'));
  expect(await call('plans.listPlans', { search: '' })).toMatchObject(onlyInvalidAt('body.search'));
  expect((await call('plans.listPlans', {}, ['plan.*.create_plan'])).status).toBe(403);
  expect((await call('plans.listPlans', {}, ['plan.*.read_plan'])).status).toBe(200);
  await ok('plans.listPlans', {});
});
