// The open holds of a key in a real browser, and its debt: with rows, without, while they load, and when they cannot.

import { beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open: openPath, card: cardOf, dialog, looksRight } = consoleInChromium(h);
  let key: { keyId: string; key: string };

  beforeEach(async () => {
    const ratelimits = [{ name: 'tokens', limit: 100_000, duration: hourMs }];
    key = await h.createKey({ credits: { remaining: 10_000 }, ratelimits });
  });

  const open = (rootKey?: string) => openPath(`/keys/${key.keyId}`, rootKey);
  const card = () => cardOf('Open holds');
  const limits = () => cardOf('Limits');
  const rows = () => card().locator('tbody tr');
  const hold = async (cost: number, options: object) => {
    const ratelimits = [{ name: 'tokens', cost: 2000 }];
    const input = { key: key.key, credits: { cost }, ratelimits, hold: { ttl: hourMs, ...options } };
    return (await ok('keys.verifyKey', input)).hold!.id;
  };

  test('a hold appears, with id, times, credits and units, and leaves when it is settled', async () => {
    await open();
    await card().getByText('No open holds').waitFor();
    const own = await hold(1500, { id: 'job-1', onExpiry: 'charge' });
    const other = await hold(20, { ttl: 60_000 });
    // The card looks again every five seconds.
    await expect.poll(() => rows().count(), { timeout: 15_000 }).toBe(2);
    expect(await rows().nth(0).textContent()).toMatch(/^…\.\d+Copy.*given back20tokens: 2,000$/);
    expect(await rows().nth(1).textContent()).toMatch(/^…_job-1Copy.*in .*spent1,500tokens: 2,000$/);
    expect(await rows().nth(1).locator('code').getAttribute('title')).toBe(own);
    await page().getByText('8,480 left').waitFor();
    await ok('keys.settleHold', { holdId: other, credits: { cost: 8600 } });
    await expect.poll(() => rows().count(), { timeout: 15_000 }).toBe(1);
    await page().getByText('0 left').waitFor();
    await page().getByText('debt 100').waitFor();
    await page().getByText('Added credits pay the debt first.').waitFor();
  });

  test('a concurrency limit is edited, and shows its slots and the hold that takes them', async () => {
    await open();
    await limits().getByRole('button', { name: 'Edit' }).click();
    await dialog().getByRole('button', { name: 'Add a limit' }).click();
    const added = dialog().locator('fieldset.group .fields').last();
    await added.getByLabel('Name').fill('jobs');
    await added.getByLabel('Limits').selectOption('concurrency');
    await added.getByLabel('Slots').fill('20000');
    await added.getByText('At most 10,000 slots.').waitFor();
    await added.getByLabel('Slots').fill('10');
    await added.getByLabel('Taken at most').fill('1 min');
    const request = page().waitForRequest('**/v2/keys.updateKey');
    await dialog().getByRole('button', { name: 'Save' }).click();
    // Without a type, a limit of that name would keep the one it has.
    expect((await request).postDataJSON().ratelimits).toMatchObject([
      { name: 'tokens', type: 'window' },
      { name: 'jobs', type: 'concurrency' },
    ]);
    await limits().getByText('10 slots, each for 1 min at most').waitFor();
    const { ratelimits } = await ok('keys.getKey', { keyId: key.keyId });
    expect(ratelimits).toMatchObject([{ name: 'tokens' }, { name: 'jobs', limit: 10, type: 'concurrency' }]);
    for (let count = 0; count < 3; count++) await ok('keys.verifyKey', { key: key.key });
    await limits().getByText('3 of 10 slots').waitFor({ timeout: 15_000 });
    await expect.poll(() => rows().count(), { timeout: 15_000 }).toBe(3);
    expect(await rows().nth(0).textContent()).toContain('jobs: 1 slot');
  });

  test('a slot limit is made a window again', async () => {
    const ratelimits = [{ name: 'jobs', limit: 10, duration: 60_000, type: 'concurrency' as const }];
    await ok('keys.updateKey', { keyId: key.keyId, ratelimits });
    await open();
    await limits().getByText('10 slots, each for 1 min at most').waitFor();
    await limits().getByRole('button', { name: 'Edit' }).click();
    await dialog().getByLabel('Limits').selectOption('window');
    await dialog().getByLabel('Units').fill('20000');
    const request = page().waitForRequest('**/v2/keys.updateKey');
    await dialog().getByRole('button', { name: 'Save' }).click();
    expect((await request).postDataJSON().ratelimits).toMatchObject([{ name: 'jobs', type: 'window' }]);
    await limits().getByText('20,000 in any 1 min').waitFor();
    expect((await ok('keys.getKey', { keyId: key.keyId })).ratelimits![0]).not.toHaveProperty('type');
  });

  test('a slot whose hold would be too large: why, without a balance that would be left', async () => {
    const limitsOf = (prefix: string) =>
      Array.from({ length: 50 }, (_, index) => ({
        name: `${prefix}${index} `.padEnd(128, '€'),
        limit: 10,
        duration: hourMs,
        autoApply: true,
      }));
    const [first, ...others] = limitsOf('key');
    const ratelimits = [{ ...first!, type: 'concurrency' as const }, ...others];
    const externalId = 'long.names';
    await ok('identities.createIdentity', { externalId, ratelimits: limitsOf('identity'), credits: { remaining: 20 } });
    key = await h.createKey({ externalId, credits: { remaining: 10 }, ratelimits });
    await openPath(`/why/${key.keyId}`);
    await page().getByText('The hold that a slot needs would be too large.').waitFor();
    const credits = page().getByRole('row', { name: 'Its credits suffice' });
    expect(await credits.textContent()).toMatch(
      /not reachedBalance 10, cost 1\. Balance of the customer 20, cost 1\.$/,
    );
  });

  test('more than a page are listed page after page', async () => {
    for (let count = 0; count < 30; count++) await hold(1, {});
    await open();
    await expect.poll(() => rows().count()).toBe(25);
    await card().getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => rows().count()).toBe(30);
  });

  test('while they load there is a placeholder; an error can be tried again', async () => {
    await hold(1, {});
    let isBroken = true;
    let answer = () => {};
    const asked = new Promise<void>((resolve) => {
      answer = resolve;
    });
    await page().route('**/v2/keys.listHolds', async (route) => {
      await asked;
      if (!isBroken) return route.continue();
      const error = { title: 'Broken', detail: 'It is broken.', status: 500, type: '/errors/internal', errors: [] };
      return route.fulfill({ status: 500, json: { meta: { requestId: 'req_1' }, error } });
    });
    await open();
    await card().getByRole('status', { name: 'Loading' }).waitFor();
    answer();
    await card().getByRole('alert').getByText('It is broken.').waitFor();
    isBroken = false;
    await card().getByRole('button', { name: 'Try again' }).click();
    await expect.poll(() => rows().count()).toBe(1);
  });

  test('without the grant that reads keys there is neither', async () => {
    const { key: few } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_analytics'] });
    await open(few);
    await page().getByText('api.*.read_key').waitFor();
    expect(await card().count()).toBe(0);
  });

  test('by keyboard, on a narrow screen and in both themes', async () => {
    const id = await hold(1500, { id: 'a-job-with-a-long-id-of-its-own-0123456789-0123456789-0123456789' });
    await ok('keys.settleHold', { holdId: await hold(1, {}), credits: { cost: 9000 } });
    await open();
    await rows().first().waitFor();
    await card().getByRole('button', { name: 'CSV' }).focus();
    await page().keyboard.press('Tab');
    expect(await page().evaluate('document.activeElement.getAttribute("aria-label")')).toBe('Open holds');
    await page().keyboard.press('Tab');
    expect(await page().evaluate<string>('document.activeElement.closest("tr").textContent')).toContain(id.slice(29));
    await looksRight('holds');
  });
});
