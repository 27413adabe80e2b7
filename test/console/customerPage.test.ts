// The page of a customer in a real browser, as it could be read out; what of it a print has, and metadata as a column.

import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

const h = harness(undefined, { leaseMs: 0 });
const { ok } = h;

inChromium(() => {
  const { page, open, goTo, card, looksRight } = consoleInChromium(h);
  let busy: { keyId: string; key: string };

  beforeAll(async () => {
    // In the middle of a minute, and of an hour.
    h.clock.now = Math.floor(Date.now() / hourMs) * hourMs - hourMs / 2 + 30_000;
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    const rules = [{ unit: 'verification' as const, steps: [{ from: 0, price: '0.5' }] }];
    await ok('workspace.updateSettings', { prices: { currency: 'EUR', decimals: 2, rules } });
    await ok('plans.createPlan', {
      planId: 'pro',
      ratelimits: [{ name: 'requests', limit: 100, period: 'month', autoApply: true }],
    });
    await ok('identities.createIdentity', {
      externalId: 'acme',
      planId: 'pro',
      credits: { remaining: 50 },
      meta: { contact: 'Ada', seats: 5, tags: ['a', 'b'] },
    });
    await ok('identities.createIdentity', { externalId: 'other', meta: { seats: 7 } });
    busy = await h.createKey({ apiId, name: 'CI', externalId: 'acme' });
    for (let time = 0; time < 3; time++) await ok('keys.verifyKey', { key: busy.key });
    // Seven rows each minute, more than a page in all: those of a minute are one.
    for (let minute = 0; minute < 4; minute++) {
      for (let time = 0; time < 32; time++) await ok('keys.verifyKey', { key: busy.key, permissions: 'docs.write' });
      h.clock.advance(60_000);
    }
    await ok('keys.verifyKey', { key: busy.key, permissions: 'docs.read' });
    h.clock.now = Date.now();
  });

  const rows = (label: string) => page().getByRole('region', { name: label, exact: true }).locator('tbody tr');
  const figure = (label: string) =>
    page()
      .locator('.figure', { hasText: new RegExp(`^${label}`) })
      .locator('.figure-value');

  test('plan, limits, balance and keys come before usage and refusals', async () => {
    await open('/customers/acme');
    const value = (term: string) => card('Customer').locator(`dt:text-is("${term}") + dd`).textContent();
    await expect.poll(() => value('Owes this month')).toBe('1.50 EUR');
    expect([await value('Plan'), await value('Keys')]).toEqual(['pro', '1']);
    await card('Credits that all keys share').getByText('47').waitFor();
    await expect.poll(() => rows('Limits').textContent()).toContain('3 of 100 this month');
    const headings = await page().locator('section.card h2').allTextContents();
    const places = ['Customer', 'Keys', 'Verifications of all keys by day, UTC', 'Recent refusals'].map((name) =>
      headings.indexOf(name),
    );
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(places[0]).toBe(0);
    const meta = card('Customer').locator('dd dl');
    expect(await meta.locator('dt').allTextContents()).toEqual(['contact', 'seats', 'tags']);
    expect(await meta.locator('dd').allTextContents()).toEqual(['Ada', '5', '["a","b"]']);
    await page().context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page().getByRole('button', { name: 'Copy link' }).click();
    expect(await page().evaluate('navigator.clipboard.readText()')).toBe(page().url());
    await looksRight('customer-page');
  });

  test('refusals have a row for each key, outcome and minute, with its count', async () => {
    await open('/customers/acme');
    await expect.poll(() => rows('Recent refusals').count()).toBe(5);
    const counts = rows('Recent refusals').locator('[data-name="Refusals"]');
    expect(await counts.allTextContents()).toEqual(['1', '32', '32', '32', '32']);
    await page().getByText('Repeated refusals of a minute share a row').waitFor();
  });

  test('the tile of refusals has the most frequent reason', async () => {
    await open('/');
    await expect.poll(() => figure('Refused').textContent()).toBe('129');
    await page().getByText('Lacks permission: 100 %').waitFor();
  });

  test('a field of metadata is a column, which the address has', async () => {
    await open('/customers');
    await page().getByLabel('Column of metadata').selectOption('seats');
    const cells = rows('Customers').locator('[data-name="seats"]');
    await expect.poll(() => cells.allTextContents()).toEqual(['5', '7']);
    expect(new URL(page().url()).searchParams.get('meta')).toBe('seats');
    await page().reload();
    await expect.poll(() => cells.allTextContents()).toEqual(['5', '7']);
    await looksRight('customers-meta');
  });

  test('a rotated pair can be told apart', async () => {
    await ok('keys.rerollKey', { keyId: busy.keyId, expiration: hourMs });
    await open('/keys');
    await expect.poll(() => rows('Keys').filter({ hasText: 'CI' }).count()).toBe(2);
    const names = rows('Keys').filter({ hasText: 'CI' }).getByRole('link', { name: /^CI/ });
    expect(await names.allTextContents()).toEqual(['CI', 'CI replaced']);
  });

  test('a print has the bill without what can be clicked; a wide screen is used', async () => {
    await open('/bill');
    await expect.poll(() => rows('All customers').count()).toBe(1);
    await page().emulateMedia({ media: 'print' });
    for (const hidden of ['.side', '.head .actions', '.card .button'])
      expect([hidden, await page().locator(hidden).first().isVisible()]).toEqual([hidden, false]);
    await page()
      .getByText(`${new Date(h.clock.now).toISOString().slice(0, 7)}, UTC`, { exact: true })
      .waitFor();
    expect(await rows('All customers').first().textContent()).toContain('1.50 EUR');
    await page().emulateMedia({ media: 'screen' });
    await page().setViewportSize({ width: 2560, height: 1300 });
    await goTo('/');
    await page().getByRole('region', { name: 'Largest customers' }).waitFor();
    expect((await page().locator('main').boundingBox())!.width).toBeGreaterThan(2000);
  });

  test('screens that the grants exclude are not offered', async () => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_key', 'api.*.read_api'] });
    await open('/keys', key);
    const links = page().getByRole('navigation', { name: 'Screens' }).getByRole('link');
    expect((await links.allTextContents()).map((text) => text.trim())).toEqual([
      'Overview',
      'Attention',
      'APIs',
      'Keys',
      'Explain',
    ]);
  });

  test('the filter and the order of changes are in the address', async () => {
    // The form to sign in has a label that this screen has, too.
    await open('/system');
    await goTo('/access');
    const changes = () => card('Changes').locator('tbody tr');
    await card('Changes').getByLabel('Operation').fill('plans.createPlan');
    await expect.poll(() => changes().count()).toBe(1);
    await expect.poll(() => new URL(page().url()).searchParams.get('operation')).toBe('plans.createPlan');
    await card('Changes').getByLabel('Since').selectOption('30 days');
    await card('Changes').getByRole('button', { name: 'Time, UTC' }).click();
    await page().reload();
    await expect.poll(() => changes().count()).toBe(1);
    expect(await card('Changes').getByLabel('Operation').inputValue()).toBe('plans.createPlan');
    expect([...new URL(page().url()).searchParams]).toEqual(
      expect.arrayContaining([
        ['operation', 'plans.createPlan'],
        ['since', '30'],
        ['order', 'asc'],
      ]),
    );
    // A text that finds nothing may be a part of a secret.
    await card('Changes').getByLabel('Resource').fill(busy.key);
    await card('Changes').getByText('Nothing was changed').waitFor();
    expect(page().url()).not.toContain(busy.key);
  });
});
