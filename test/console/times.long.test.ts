// Fields for a time in a real browser: a text that is no time is named, and sends nothing.

import { afterEach, beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const tooLate = '12026-01-01T00:00';
const refused = 'A time such as 14:03,';

inChromium(() => {
  const { page, goTo, open } = consoleInChromium(h);
  const complaints: string[] = [];
  /** Names and bodies of the requests. */
  const asked: string[] = [];

  beforeEach(() => {
    complaints.length = 0;
    asked.length = 0;
    page().on('pageerror', (error) => complaints.push(error.message));
    page().on('request', (request) => asked.push(`${request.url().split('/').at(-1)} ${request.postData()}`));
  });
  afterEach(() => expect(complaints).toEqual([]));

  const button = (name: string) => page().getByRole('button', { name, exact: true });
  const time = (ms: number) => new Date(ms).toISOString().slice(0, 16);
  const later = time(Date.now() + 30 * dayMs);
  /** Nothing can be sent with a year of five digits; with one of four it can. */
  const waitsForTime = async (label: string, act: string) => {
    await page().getByLabel(label).fill(tooLate);
    await page().getByText(refused).waitFor();
    expect(await button(act).isDisabled()).toBe(true);
    await page().getByLabel(label).fill(later);
    expect(await button(act).isEnabled()).toBe(true);
  };

  test('of an override', async () => {
    await ok('ratelimits.setOverride', { namespace: 'mail', identifier: 'ada', limit: 10, duration: 60_000 });
    await open('/rate-limits/mail');
    await button('Edit').click();
    await page().getByLabel('Applies').selectOption({ label: 'until …' });
    const field = page().getByLabel('Until, UTC');
    await field.fill(later);
    await field.fill(tooLate);
    expect(await button('Save').isDisabled()).toBe(true);
    await field.fill(later);
    await button('Save').click();
    await page()
      .getByText(`until ${later.replace('T', ' ')} UTC, then 10 in any 1 min`)
      .waitFor();
  });

  test('of a new key', async () => {
    await ok('apis.createApi', { name: 'payments' });
    await open('/new-key');
    await button('Create key').and(page().locator(':enabled')).waitFor();
    await waitsForTime('Expires, UTC', 'Create key');
  });

  test('of a key: its expiry is not removed', async () => {
    const expires = Date.now() + dayMs;
    const { keyId } = await h.createKey({ expires });
    await open(`/keys/${keyId}`);
    await button('Edit').first().click();
    await waitsForTime('Expires, UTC', 'Save');
    await button('Save').click();
    await expect.poll(async () => (await ok('keys.getKey', { keyId })).expires).toBe(Date.parse(`${later}Z`));
  });

  test('of a root key: none is made that does not expire', async () => {
    // On the screen itself, the label of the sign-in is not the only one with its text.
    await open('/');
    await goTo('/access');
    await button('New root key').click();
    await waitsForTime('Expires, UTC', 'Create');
  });

  test('of the period of refusals', async () => {
    const { key } = await h.createKey({ enabled: false });
    await ok('keys.verifyKey', { key });
    await open('/attention');
    const card = page().locator('section.card', { has: page().getByRole('heading', { name: 'Recent refusals' }) });
    await card.locator('tbody tr').first().waitFor();
    for (const label of ['From, UTC', 'To, UTC']) {
      await card.getByLabel(label).fill(tooLate);
      await card.getByText(refused).waitFor();
      await card.getByLabel(label).fill('');
    }
    await card.locator('tbody tr').first().waitFor();
    expect(asked.filter((text) => /^analytics\.listRefusals .*null/.test(text))).toEqual([]);
    expect(await card.getByRole('alert').count()).toBe(0);
  });
});
