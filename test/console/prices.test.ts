// Prices in a real browser: they are set in a form that names its faults, and the bill has what customers owe.

import { readFile } from 'node:fs/promises';
import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, card, dialog, button, save, looksRight } = consoleInChromium(h);
  let search: string;

  beforeAll(async () => {
    h.clock.now = Date.now();
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    search = (await ok('apis.createApi', { name: 'search' })).apiId;
    await ok('plans.createPlan', { planId: 'pro' });
    await ok('identities.createIdentity', { externalId: 'bob', planId: 'pro' });
    for (const [of, externalId, times] of [
      [apiId, 'ada', 3],
      [search, 'ada', 2],
      [apiId, 'bob', 4],
      [apiId, undefined, 1],
    ] as const) {
      const { key } = await h.createKey({ apiId: of, ...(externalId && { externalId }) });
      for (let time = 0; time < times; time++) await ok('keys.verifyKey', { key });
      await ok('keys.verifyKey', { key, permissions: 'none' });
    }
  });

  const owed = (region: string, name: string) =>
    card(region)
      .locator('tbody tr', { hasText: name })
      .locator('[data-name="Owed"]')
      .textContent({ timeout: 1000 })
      .catch(() => undefined);
  const settings = async () => (await ok('workspace.getSettings', {})).prices;

  test('without prices there is no amount', async () => {
    await open('/bill');
    await card('All customers').getByRole('link', { name: 'ada', exact: true }).waitFor();
    expect(await page().getByRole('columnheader', { name: 'Owed' }).count()).toBe(0);
    await page().getByText('Without prices, what a customer owes is not computed.').waitFor();
  });

  test('the form names what is wrong at its field, and jumps to it', async () => {
    await open('/bill');
    await button('Prices …').click();
    const [from, prices] = [dialog().getByLabel('Step 1: beyond the first'), dialog().getByLabel('Price of each')];
    const price = prices.first();
    await price.fill('0,5');
    await dialog().getByText('It must be a number such as "0.0015", with at most 9 digits and 6 decimals.').waitFor();
    expect(await price.getAttribute('aria-invalid')).toBe('true');
    await from.fill('7');
    await dialog().getByText('It must be 0 in the first step.').waitFor();
    expect(await dialog().getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    await looksRight('prices-wrong');
    await dialog().getByRole('button', { name: '2 fields are wrong: go to the first' }).click();
    expect(await page().evaluate('document.activeElement.value')).toBe('7');
    await from.fill('0');
    await price.fill('0.5');
    await dialog().getByText('wrong: go to').waitFor({ state: 'detached' });
    await expect.poll(() => price.getAttribute('aria-invalid')).toBeNull();
    await dialog().getByRole('button', { name: 'Add a price' }).click();
    // Each price has fields for one more step.
    await prices.nth(2).fill('1');
    await dialog().getByText('It has the unit, API and plan of rules[0].').waitFor();
    await dialog().getByLabel('Plan').nth(1).fill('pro');
    await dialog().getByLabel('Step 2: beyond the first').nth(1).fill('3');
    await prices.nth(3).fill('0.125');
    await prices.nth(4).fill('9');
    await prices.nth(4).fill('');
    await save();
    expect(await settings()).toEqual({
      currency: 'EUR',
      decimals: 2,
      rules: [
        { unit: 'verification', steps: [{ from: 0, price: '0.5' }] },
        {
          unit: 'verification',
          planId: 'pro',
          steps: [
            { from: 0, price: '1' },
            { from: 3, price: '0.125' },
          ],
        },
      ],
    });
  });

  test('the form has the prices of now, and is there when these were read', async () => {
    const read = '**/v2/workspace.getSettings';
    await open('/bill');
    await expect.poll(() => owed('All customers', 'ada')).toBe('2.50 EUR');
    const before = await settings();
    const rules = [{ unit: 'verification' as const, steps: [{ from: 0, price: '0.75' }] }, ...before!.rules.slice(1)];
    await ok('workspace.updateSettings', { prices: { ...before!, rules } });
    let go = () => {};
    const isReady = new Promise<void>((resolve) => (go = resolve));
    await page().route(read, async (route) => {
      await isReady;
      await route.fulfill({ status: 503, json: { error: { detail: 'Redis cannot be reached.' } } });
    });
    await button('Prices …').click();
    await dialog().getByRole('status').waitFor();
    expect(await dialog().getByRole('button', { name: 'Save' }).count()).toBe(0);
    await looksRight('prices-loading');
    go();
    await dialog().getByText('Redis cannot be reached.').waitFor();
    expect(await dialog().getByRole('button', { name: 'Save' }).count()).toBe(0);
    await page().unroute(read);
    await dialog().getByRole('button', { name: 'Try again' }).click();
    const price = dialog().getByLabel('Price of each').first();
    await expect.poll(() => price.inputValue()).toBe('0.75');
    await price.fill('0.5');
    await save();
    expect(await page().locator(':focus').textContent()).toBe('Prices …');
    expect(await settings()).toEqual(before);
  });

  test('customers who owe in different currencies have a sum of each', async () => {
    await page().route('**/v2/analytics.listCustomers', async (route) => {
      const response = await route.fetch();
      const { data, ...rest } = await response.json();
      const changed = data.map((row: { externalId?: string; owed?: object }) =>
        row.externalId === 'bob' ? { ...row, owed: { ...row.owed, currency: 'USD' } } : row,
      );
      await route.fulfill({ json: { ...rest, data: changed } });
    });
    await open('/bill');
    await page().getByText('All customers together owe 2.50 EUR and 3.13 USD.').waitFor();
    await page().unrouteAll();
  });

  test('the bill has what each owes, also of one API, in its ranking, its sum and its file', async () => {
    await open('/bill');
    // 5 × 0.5, and 3 × 1 + 1 × 0.125.
    await expect.poll(() => owed('All customers', 'ada')).toBe('2.50 EUR');
    expect(await owed('All customers', 'bob')).toBe('3.13 EUR');
    expect(await owed('All customers', '(no customer)')).toBe('');
    await page().getByText('All customers together owe 5.63 EUR.').waitFor();
    await expect.poll(() => owed('Largest customers', 'ada')).toBe('2.50 EUR');
    await expect.poll(() => owed('Largest customers', 'bob')).toBe('3.13 EUR');
    await looksRight('bill-prices');
    const saved = page().waitForEvent('download');
    await card('All customers').getByRole('button', { name: 'CSV' }).click();
    const lines = (await readFile(await (await saved).path(), 'utf8')).split('\r\n');
    expect(lines[0]!.endsWith(',Plan,Owed,Currency')).toBe(true);
    expect(lines.slice(1, 4).map((line) => line.split(',').slice(-3))).toEqual([
      ['', '', ''],
      ['', '2.50', 'EUR'],
      ['pro', '3.13', 'EUR'],
    ]);
    await page().goto(`${page().url()}?api=${search}`);
    await expect.poll(() => owed('All customers', 'ada')).toBe('1.00 EUR');
    await expect.poll(() => owed('Largest customers', 'ada')).toBe('1.00 EUR');
  });

  test('a root key that may not change the settings sees amounts, one that may not read them none', async () => {
    const make = async (permissions: string[]) => (await ok('rootKeys.createRootKey', { permissions })).key;
    const reads = ['api.*.read_analytics', 'workspace.*.read_settings'];
    await open('/bill', await make(reads));
    await expect.poll(() => owed('All customers', 'ada')).toBe('2.50 EUR');
    expect(await button('Prices …').count()).toBe(0);
  });

  test('prices are removed with their last rule', async () => {
    await open('/bill');
    await button('Prices …').click();
    for (const _rule of [1, 2]) await dialog().getByRole('button', { name: 'Remove this price' }).first().click();
    await dialog().getByText('Without a price the bill has no amounts.').waitFor();
    await save();
    expect(await settings()).toBeUndefined();
    await expect.poll(() => page().getByRole('columnheader', { name: 'Owed' }).count()).toBe(0);
  });
});
