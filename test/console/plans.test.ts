// Plans in a real browser: a tier from its creation to its end, and where the limits of a key are from.

import { beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, goTo, open, card, button, dialog, save, looksRight } = consoleInChromium(h);

  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const month = { period: 'month', autoApply: true } as const;
  const rows = (label: string) => page().getByRole('region', { name: label, exact: true }).locator('tbody tr');
  const edit = (heading: string) => card(heading).getByRole('button', { name: 'Edit' }).click();
  const act = async (name: string) => {
    await dialog().getByRole('button', { name, exact: true }).click();
    await dialog().waitFor({ state: 'detached' });
  };

  test('a plan is made, changed for those who have it, and deleted with another one in its place', async () => {
    await open('/plans');
    await page().getByText('There is no plan yet').waitFor();
    await button('New plan').click();
    await dialog().getByLabel('Plan (planId)').fill('free');
    await dialog().getByLabel('Units', { exact: true }).fill('100');
    await dialog().getByLabel('Per', { exact: true }).selectOption('month');
    // A limit of a plan has no end.
    expect(await dialog().getByLabel('Applies').count()).toBe(0);
    await dialog().getByLabel('Permissions').fill('docs.read');
    await dialog().getByLabel('Metadata').fill('{"seats":1}');
    await act('Create');
    expect(await ok('plans.getPlan', { planId: 'free' })).toMatchObject({
      ratelimits: [{ name: 'requests', limit: 100, period: 'month', autoApply: true }],
      permissions: ['docs.read'],
      meta: { seats: 1 },
    });
    await ok('plans.createPlan', { planId: 'pro', ratelimits: [{ name: 'requests', limit: 1000, ...month }] });
    for (const externalId of ['ada', 'bob']) await ok('identities.createIdentity', { externalId, planId: 'free' });
    const { keyId } = await h.createKey({ planId: 'free' });
    await expect.poll(() => rows('Plans').count()).toBe(2);
    await expect.poll(() => rows('Plans').first().textContent()).toContain('requests: 100 each month');
    await looksRight('plans');

    await rows('Plans').first().getByRole('link', { name: 'free' }).click();
    await expect.poll(() => rows('Customers').count()).toBe(2);
    await expect.poll(() => rows('Keys').count()).toBe(1);
    await looksRight('plan');
    await button('Edit …').click();
    await dialog().getByLabel('Units', { exact: true }).fill('200');
    await dialog().getByText('It applies to 2 customers and 1 key from').waitFor();
    await dialog().locator('summary').click();
    // What was not changed is not sent, so that changes by others stay.
    expect(await dialog().locator('pre').textContent()).not.toMatch(/permissions|roles|meta/);
    await save();
    await expect.poll(() => rows('Limits').textContent()).toContain('200 each month');
    await button('Edit …').click();
    await dialog().getByLabel('Permissions').fill('docs.read docs.write');
    await dialog().getByLabel('Metadata').fill('');
    await save();
    const changed = await ok('plans.getPlan', { planId: 'free' });
    expect(changed).toMatchObject({ ratelimits: [{ limit: 200 }], permissions: ['docs.read', 'docs.write'] });
    expect(changed).not.toHaveProperty('meta');

    await button('Delete …').click();
    const remove = dialog().getByRole('button', { name: 'Delete', exact: true });
    await dialog().getByLabel('Type free to confirm').fill('free');
    expect(await remove.isDisabled()).toBe(true);
    await dialog().getByLabel('Their plan from then on').fill('pro');
    await act('Delete');
    await expect.poll(() => rows('Plans').count()).toBe(1);
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ planId: 'pro' });
    expect(await ok('plans.getPlan', { planId: 'pro' })).toMatchObject({ keyCount: 1, identityCount: 2 });
  });

  test('a customer and a key get a plan, and the page of the key has where its limits are from', async () => {
    const limits = (units: number) => ['requests', 'tokens'].map((name) => ({ name, limit: units, ...month }));
    await ok('plans.createPlan', { planId: 'team', ratelimits: limits(1000), permissions: ['docs.read'] });
    await ok('plans.createPlan', {
      planId: 'special',
      ratelimits: [{ name: 'tokens', limit: 7, duration: 60_000, autoApply: true }],
    });
    await open('/customers');
    await button('New customer').click();
    await dialog().getByLabel('Customer (externalId)').fill('carol');
    await dialog().getByLabel('Plan', { exact: true }).fill('team');
    await act('Create');
    const { key, keyId } = await h.createKey({ externalId: 'carol', ratelimits: [] });
    await ok('keys.verifyKey', { key });
    await page().getByRole('link', { name: 'carol' }).click();
    const limit = (name: string) => rows('Limits').filter({ hasText: name });
    await expect.poll(() => limit('requests').textContent()).toContain('of the plan team');
    await expect.poll(() => limit('requests').textContent()).toContain('1 of 1,000 this month');
    await edit('Customer');
    await dialog().getByLabel('Plan', { exact: true }).fill('');
    await save();
    expect(await ok('identities.getIdentity', { identity: 'carol' })).not.toHaveProperty('planId');
    await page().getByText('It has no limit').waitFor();
    await edit('Customer');
    await dialog().getByLabel('Plan', { exact: true }).fill('team');
    await save();
    await expect.poll(() => limit('requests').textContent()).toContain('1 of 1,000 this month');
    await looksRight('customer-plan');

    await goTo(`/keys/${keyId}`);
    await edit('Key');
    await dialog().getByLabel('Plan', { exact: true }).fill('special');
    await save();
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ planId: 'special' });
    await expect.poll(() => rows('Limits').count()).toBe(3);
    expect(await limit('requests').textContent()).toContain(
      'of the plan team; of the customer, shared by all its keys',
    );
    const tokens = await limit('tokens').allTextContents();
    expect(tokens[0]).toContain('of the plan special');
    expect(tokens[1]).toContain('of the customer: not used, the key has its own');
    await page().getByRole('heading', { name: 'Of the plan team' }).waitFor();
    await looksRight('key-plan');
    await goTo(`/why/${keyId}`);
    await page().getByText('requests (of the customer, from the plan team)').waitFor();
    await page().getByText('tokens (of the key, from the plan special)').waitFor();
  });

  test('a new key has a plan', async () => {
    await ok('plans.createPlan', { planId: 'trial', ratelimits: [{ name: 'requests', limit: 5, ...month }] });
    const { apiId } = await ok('apis.createApi', { name: 'plans' });
    await open(`/new-key?api=${apiId}`);
    await page().getByLabel('Plan', { exact: true }).fill('trial');
    await button('Create key').click();
    await page().getByRole('heading', { name: 'The key is made' }).waitFor();
    const [made] = await ok('keys.listKeys', { planId: 'trial' });
    expect(made).toMatchObject({ apiId, planId: 'trial' });
  });

  test('the bill has the usage of each plan, and a refusal the plan of its key', async () => {
    await ok('plans.createPlan', { planId: 'basic', ratelimits: [{ name: 'requests', limit: 1, ...month }] });
    await ok('identities.createIdentity', { externalId: 'dora', planId: 'basic' });
    const { key } = await h.createKey({ externalId: 'dora' });
    for (let times = 0; times < 4; times++) await ok('keys.verifyKey', { key });
    await open('/bill');
    const ofPlan = rows('Plans of customers').filter({ hasText: 'basic' });
    await expect.poll(() => ofPlan.textContent()).toMatch(/basic.*4.*3/);
    await expect.poll(() => rows('Largest customers').filter({ hasText: 'dora' }).textContent()).toContain('basic');
    await looksRight('bill-plans');
    await ofPlan.getByRole('link', { name: 'basic' }).click();
    await page().getByRole('heading', { name: 'basic' }).waitFor();
    await goTo('/attention');
    const refusal = rows('Recent refusals').filter({ hasText: 'dora' }).first();
    await refusal.getByRole('link', { name: 'basic' }).waitFor();
  });

  test('a root key without the grant sees the plan of a key, and no limits of it', async () => {
    await ok('plans.createPlan', { planId: 'hidden', ratelimits: [{ name: 'requests', limit: 5, ...month }] });
    const { keyId } = await h.createKey({ planId: 'hidden', ratelimits: [] });
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_key', 'api.*.read_api'] });
    await open(`/keys/${keyId}`, key);
    await page().getByText('Your root key may not read its limits.').waitFor();
    await looksRight('key-plan-hidden');
    await goTo('/plans');
    await page().getByText('plan.*.read_plan').waitFor();
  });
});
