// Keys that expire and keys that have expired, in Attention in a real browser.

import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const folder = process.env.SCREENSHOTS;

inChromium(() => {
  const { page, goTo, open, violations, isWithinWidth } = consoleInChromium(h);

  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const rows = (label: string) => page().getByRole('region', { name: label, exact: true }).locator('tbody tr');
  const names = (label: string) => rows(label).getByRole('link').allTextContents();
  const namesAre = (label: string, expected: string[]) => expect.poll(() => names(label)).toEqual(expected);

  test('no key expires', async () => {
    await open('/attention');
    for (const text of ['No key expires soon', 'No key has expired']) await page().getByText(text).waitFor();
  });

  describe('with keys', () => {
    beforeAll(async () => {
      const now = Date.now();
      const { apiId } = await ok('apis.createApi', { name: 'payments' });
      for (const [name, expires] of [
        ['in 60 days', now + 60 * dayMs],
        ['in 20 days', now + 20 * dayMs],
        ['in 3 days', now + 3 * dayMs],
        ['gone today', now - 2 * hourMs],
        ['gone long ago', now - 200 * dayMs],
        ['never', undefined],
      ] as const) {
        const { keyId } = await ok('keys.createKey', { apiId, name });
        // By a change, because none is created that has expired.
        if (expires) await ok('keys.updateKey', { keyId, expires });
      }
    });

    test('those that expire soon, the first one first, apart from those that have, the last one first', async () => {
      await open('/attention');
      await namesAre('Expiring within 30 days', ['in 3 days', 'in 20 days']);
      await namesAre('Expired', ['gone today', 'gone long ago']);
      await page().getByLabel('Within days').selectOption('90');
      await namesAre('Expiring within 90 days', ['in 3 days', 'in 20 days', 'in 60 days']);
      expect(new URL(page().url()).search).toBe('?within=90');
      await page().reload();
      await namesAre('Expiring within 90 days', ['in 3 days', 'in 20 days', 'in 60 days']);
      await page().getByLabel('Within days').selectOption('7');
      await namesAre('Expiring within 7 days', ['in 3 days']);
      await page().goBack();
      await namesAre('Expiring within 90 days', ['in 3 days', 'in 20 days', 'in 60 days']);
      await goTo('/attention?within=5');
      await namesAre('Expiring within 30 days', ['in 3 days', 'in 20 days']);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page().emulateMedia({ colorScheme });
        expect(await violations()).toEqual([]);
        if (folder) await page().screenshot({ path: `${folder}/attention-${colorScheme}.png`, fullPage: true });
      }
      await page().setViewportSize({ width: 390, height: 844 });
      expect(await isWithinWidth()).toBe(true);
      await rows('Expired').getByText('2 hours ago').waitFor();
      if (folder) await page().screenshot({ path: `${folder}/attention-narrow.png`, fullPage: true });
    });

    test('an error of one list leaves the others', async () => {
      await page().route('**/v2/keys.listKeys', (route) =>
        'expiresAfter' in route.request().postDataJSON() ? route.abort() : route.continue(),
      );
      await open('/attention');
      await namesAre('Expired', ['gone today', 'gone long ago']);
      await page().getByText('The server cannot be reached.').first().waitFor();
      await page().unroute('**/v2/keys.listKeys');
      await page().getByRole('button', { name: 'Try again' }).first().click();
      await namesAre('Expiring within 30 days', ['in 3 days', 'in 20 days']);
    });
  });
});
