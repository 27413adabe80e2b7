// The credits of a customer in a real browser: what the page displays, and its dialog.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chromiumPath, signIn, startChromium } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
const { ok } = h;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const withoutBrowser = chromiumPath === undefined;
const identity = 'ada';

describe.skipIf(withoutBrowser)(`in Chromium${withoutBrowser ? ' (SKIPPED: none is installed here)' : ''}`, () => {
  let server: Awaited<ReturnType<typeof serveStore>>;
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    h.clock.now = Date.now();
    server = await serveStore(h.store);
    browser = await startChromium();
    page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    page.setDefaultTimeout(40_000);
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await server?.close();
  });

  const card = () =>
    page.locator('section.card', { has: page.getByRole('heading', { name: 'Credits that all keys share' }) });
  const creditsOf = async () => (await ok('identities.getIdentity', { identity })).credits;

  test('they are given, displayed with debt and refill, and removed', async () => {
    await ok('identities.createIdentity', { externalId: identity });
    await page.goto(`${server.url}/console/customers/${identity}`);
    await signIn(page, h.rootKey);
    await card().getByText('It has none').waitFor();

    await card().getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Balance').fill('500');
    await page.getByLabel('Refill').selectOption('daily');
    await page.getByLabel('To', { exact: true }).fill('200');
    await page.getByRole('button', { name: 'Save' }).click();
    await card().getByText('500 left').waitFor();
    await card().getByText('Refilled to 200 daily').waitFor();
    expect(await creditsOf()).toEqual({ remaining: 500, refill: { interval: 'daily', amount: 200 } });
    await page.evaluate(axe);
    const found = await page.evaluate<{ violations: { id: string }[] }>('axe.run()');
    expect(found.violations.map(({ id }) => id)).toEqual([]);

    const { key, keyId } = await h.createKey({ externalId: identity });
    const { hold } = await ok('keys.verifyKey', { key, credits: { cost: 500 }, hold: { ttl: hourMs } });
    await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 520 } });
    await page.goto(`${server.url}/console/keys/${keyId}`);
    await page.getByText('Verifications charge the credits of its customer').waitFor();
    await page.getByText('0 left.').waitFor();
    await page.goto(`${server.url}/console/why/${keyId}`);
    await page.getByText('Balance of the customer 0, debt 20, cost 1').waitFor();
    await page.getByText('The balance of the customer is too small.').waitFor();

    await page.goto(`${server.url}/console/customers/${identity}`);
    await card().getByText('debt 20').waitFor();
    await card().getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Balance').fill('');
    await page.getByRole('button', { name: 'Save' }).click();
    await card().getByText('It has none').waitFor();
    expect(await creditsOf()).toBeUndefined();
  });
});
