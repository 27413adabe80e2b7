// The console on a phone, in a real browser: a menu in the place of the side bar, and a card for each key.

import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { consoleInChromium, inChromium, shots } from '../support/chromium.ts';
import { dayMs, harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const phone = { width: 390, height: 800 };

inChromium(() => {
  const { page, open, violations, isWithinWidth } = consoleInChromium(h);
  let key: { keyId: string; key: string };

  beforeAll(async () => {
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    const expires = Date.now() + 30 * dayMs + 60_000;
    key = await h.createKey({ apiId, name: 'ada', externalId: 'customer_1', credits: { remaining: 12_345 }, expires });
    await h.createKey({ apiId, name: 'a'.repeat(60), externalId: 'b'.repeat(60), enabled: false });
    await ok('keys.verifyKey', { key: key.key });
  });
  beforeEach(() => page().setViewportSize(phone));

  const menu = () => page().getByRole('button', { name: 'Menu' });
  const nav = () => page().getByRole('navigation', { name: 'Screens' });
  const heading = (name: string) => page().getByRole('heading', { level: 1, name });
  const card = () => page().locator('tbody tr').filter({ hasText: 'ada' });

  test('the menu has the screens, the workspace, the theme and the sign-out', async () => {
    await open('/keys');
    await nav().waitFor({ state: 'hidden' });
    expect((await heading('Keys').boundingBox())!.y).toBeLessThan(90);
    await menu().press('Enter');
    await nav().waitFor();
    expect(await menu().getAttribute('aria-expanded')).toBe('true');
    for (const label of ['Workspace', 'Theme']) expect(await page().getByLabel(label).isVisible()).toBe(true);
    await page().getByRole('button', { name: 'Sign out' }).waitFor();
    expect(await isWithinWidth()).toBe(true);
    await shots(page(), 'menu', [phone]);
    // The first stop of the keyboard is in the menu, and Escape returns to its button.
    await page().keyboard.press('Tab');
    expect(await page().locator(':focus').getAttribute('aria-label')).toBe('Workspace');
    await page().keyboard.press('Escape');
    await nav().waitFor({ state: 'hidden' });
    expect(await page().locator(':focus').textContent()).toBe('Menu');
    await menu().click();
    await nav().getByRole('link', { name: 'Live', exact: true }).click();
    await heading('Live').waitFor();
    await nav().waitFor({ state: 'hidden' });
    await menu().click();
    await nav().getByRole('link', { name: 'Live', exact: true }).click();
    await nav().waitFor({ state: 'hidden' });
  });

  test('a wide screen has no menu', async () => {
    await open('/keys');
    await page().setViewportSize({ width: 1280, height: 800 });
    await nav().waitFor();
    expect(await menu().count()).toBe(0);
  });

  test('a key is a card with all its columns', async () => {
    await open('/keys');
    await card().waitFor();
    for (const text of ['customer_1', 'Enabled', '12,344']) await card().getByText(text, { exact: true }).waitFor();
    await card().getByText('in 1 month').or(card().getByText('in 30 days')).waitFor();
    await card().getByRole('img', { name: '1 verifications in 7 days' }).waitFor();
    for (const cell of await page().locator('tbody td').all()) {
      const { x, width } = (await cell.boundingBox())!;
      expect([await cell.textContent(), x >= 0 && x + width <= 390]).toEqual([await cell.textContent(), true]);
    }
    // Of the headings, those that choose and sort.
    expect(await page().locator('thead th:visible').allTextContents()).toEqual(['Choose', 'Created↓', 'Expires↕']);
    await shots(page(), 'cards', [phone]);
    await card().getByRole('checkbox').check();
    const bar = page().getByRole('region', { name: 'Chosen keys' });
    await bar.getByText('1 key chosen').waitFor();
    expect(await isWithinWidth()).toBe(true);
    await page().getByLabel('Choose all that are displayed').check();
    await bar.getByText('All 2 keys chosen').waitFor();
    await shots(page(), 'chosen', [phone]);
    await bar.getByRole('button', { name: 'Clear' }).click();
    await bar.waitFor({ state: 'detached' });
    await card().getByRole('link', { name: 'ada' }).click();
    await heading('ada').waitFor();
    await page().goBack();
    await page().getByRole('link', { name: 'customer_1' }).click();
    await heading('customer_1').waitFor();
    await card().getByText('12,344', { exact: true }).waitFor();
    expect(await isWithinWidth()).toBe(true);
  });

  describe.each(['light', 'dark'] as const)('%s', (colorScheme) => {
    test('axe finds nothing in the menu and the cards', async () => {
      await page().emulateMedia({ colorScheme });
      await open('/keys');
      await card().waitFor();
      expect(await violations()).toEqual([]);
      await menu().click();
      await nav().waitFor();
      expect(await violations()).toEqual([]);
    });
  });
});
