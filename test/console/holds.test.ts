// The open holds of a key in a real browser, and its debt: with rows, without, while they load, and when they cannot.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { chromiumPath, signIn, startChromium } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
const { ok } = h;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const withoutBrowser = chromiumPath === undefined;
const folder = process.env.SCREENSHOTS;

describe.skipIf(withoutBrowser)(`in Chromium${withoutBrowser ? ' (SKIPPED: none is installed here)' : ''}`, () => {
  let server: Awaited<ReturnType<typeof serveStore>>;
  let browser: Browser;
  let page: Page;
  let key: { keyId: string; key: string };

  beforeAll(async () => {
    h.clock.now = Date.now();
    server = await serveStore(h.store);
    browser = await startChromium();
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await server?.close();
  });
  beforeEach(async () => {
    const ratelimits = [{ name: 'tokens', limit: 100_000, duration: hourMs }];
    key = await h.createKey({ credits: { remaining: 10_000 }, ratelimits });
    await page?.close();
    page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    page.setDefaultTimeout(40_000);
  });

  const open = async (rootKey = h.rootKey) => {
    await page.goto(`${server.url}/console/keys/${key.keyId}`);
    await signIn(page, rootKey);
  };
  const card = () => page.locator('section.card', { has: page.getByRole('heading', { name: 'Open holds' }) });
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
    await page.getByText('8,480 left').waitFor();
    await ok('keys.settleHold', { holdId: other, credits: { cost: 8600 } });
    await expect.poll(() => rows().count(), { timeout: 15_000 }).toBe(1);
    await page.getByText('0 left').waitFor();
    await page.getByText('debt 100').waitFor();
    await page.getByText('Added credits pay the debt first.').waitFor();
  });

  test('a concurrency limit is edited, and shows its slots and the hold that takes them', async () => {
    await open();
    const limits = page.locator('section.card', { has: page.getByRole('heading', { name: 'Limits', exact: true }) });
    await limits.getByRole('button', { name: 'Edit' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Add a limit' }).click();
    const added = dialog.locator('fieldset.group .fields').last();
    await added.getByLabel('Name').fill('jobs');
    await added.getByLabel('Limits').selectOption('concurrency');
    await added.getByLabel('Slots').fill('20000');
    await added.getByText('At most 10,000 slots.').waitFor();
    await added.getByLabel('Slots').fill('10');
    await added.getByLabel('Taken at most').fill('1 min');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await limits.getByText('10 slots, each for 1 min at most').waitFor();
    const { ratelimits } = await ok('keys.getKey', { keyId: key.keyId });
    expect(ratelimits).toMatchObject([{ name: 'tokens' }, { name: 'jobs', limit: 10, type: 'concurrency' }]);
    for (let count = 0; count < 3; count++) await ok('keys.verifyKey', { key: key.key });
    await limits.getByText('3 of 10 slots').waitFor({ timeout: 15_000 });
    await expect.poll(() => rows().count(), { timeout: 15_000 }).toBe(3);
    expect(await rows().nth(0).textContent()).toContain('jobs: 1 slot');
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
    await page.route('**/v2/keys.listHolds', async (route) => {
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
    await page.getByText('api.*.read_key').waitFor();
    expect(await card().count()).toBe(0);
  });

  test('by keyboard, on a narrow screen and in both themes', async () => {
    const id = await hold(1500, { id: 'a-job-with-a-long-id-of-its-own-0123456789-0123456789-0123456789' });
    await ok('keys.settleHold', { holdId: await hold(1, {}), credits: { cost: 9000 } });
    await open();
    await rows().first().waitFor();
    await card().getByRole('button', { name: 'CSV' }).focus();
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.getAttribute("aria-label")')).toBe('Open holds');
    await page.keyboard.press('Tab');
    expect(await page.evaluate<string>('document.activeElement.closest("tr").textContent')).toContain(id.slice(29));
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 });
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        if (folder) await page.screenshot({ path: `${folder}/holds-${width}-${colorScheme}.png`, fullPage: true });
        const [scrolled, client] = await page.evaluate<[number, number]>(
          '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
        );
        expect([width, scrolled! <= client!]).toEqual([width, true]);
        await page.evaluate(axe);
        const found = await page.evaluate<{ violations: { id: string; nodes: { html: string }[] }[] }>('axe.run()');
        expect(found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html)}`)).toEqual([]);
      }
    }
  });
});
