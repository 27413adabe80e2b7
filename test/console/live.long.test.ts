// Live in a real browser: its rate, its filters, and rows that do not move while they are read. The groups of screens.

import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const folder = process.env.SCREENSHOTS;

inChromium(() => {
  const { page, open, violations, isWithinWidth } = consoleInChromium(h);
  let ada: { apiId: string; key: string };
  let bob: { apiId: string; key: string };

  beforeAll(async () => {
    const [payments, search] = await Promise.all(
      ['payments', 'search'].map(async (name) => (await ok('apis.createApi', { name })).apiId),
    );
    ada = { ...(await h.createKey({ apiId: payments!, name: 'ada' })), apiId: payments! };
    bob = { ...(await h.createKey({ apiId: search!, name: 'bob', enabled: false })), apiId: search! };
  });

  const rows = () => page().getByRole('region', { name: 'Decisions' }).locator('tbody tr');
  const badge = (text: string | RegExp) => page().locator('.head .badge', { hasText: text });
  const verify = async (of: { key: string }, times: number, tags?: string[]) => {
    for (let time = 0; time < times; time++) await ok('keys.verifyKey', { key: of.key, ...(tags && { tags }) });
  };
  const combobox = () => page().getByRole('combobox', { name: 'API' });
  /** Until decisions of the choice arrive: those of the one before may still be displayed as live. */
  const untilListens = async (choose: () => Promise<void>) => {
    const listens = page().waitForResponse((response) => response.url().endsWith('/v2/analytics.tail'));
    await choose();
    await listens;
  };
  const chooseApi = async (name: string) => {
    await combobox().click();
    await untilListens(() => page().getByRole('option', { name }).click());
  };
  const openLive = async () => {
    await open('/live');
    await badge('Live').waitFor();
  };

  test('the rate of the last seconds, and the share that is refused', async () => {
    await openLive();
    await page().getByText('0.0 a second, – refused').waitFor();
    await verify(ada, 3);
    await verify(bob, 1);
    await page()
      .getByText(/^\d\.\d a second, 25\.0 % refused$/)
      .waitFor();
    // The last ten seconds have none.
    await page().getByText('0.0 a second, – refused').waitFor();
  });

  test('an API, a tag or a text narrow it; the API is in the address', async () => {
    await openLive();
    await chooseApi('search');
    await expect.poll(() => new URL(page().url()).searchParams.get('api')).toBe(bob.apiId);
    await badge('Live').waitFor();
    await verify(ada, 1);
    await verify(bob, 2, ['eu-west']);
    await expect.poll(() => rows().count()).toBe(2);
    expect(await rows().first().textContent()).toContain('bob');
    await chooseApi('All APIs');
    await badge('Live').waitFor();
    await page().getByLabel('Tag or text').fill('EU-');
    await verify(ada, 1);
    await verify(ada, 1, ['eu-north']);
    await verify(bob, 1);
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().first().textContent()).toContain('eu-north');
    await page().getByLabel('Tag or text').fill('disabled');
    await verify(bob, 1);
    await verify(ada, 1);
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().first().textContent()).toContain('bob');
    expect(page().url()).not.toContain('disabled');
  });

  test('rows stay under a pointer and under the focus', async () => {
    await openLive();
    await verify(ada, 1);
    await expect.poll(() => rows().count()).toBe(1);
    for (const [reads, leaves] of [
      [() => rows().first().hover(), () => page().mouse.move(5, 5)],
      [() => rows().first().getByRole('link').focus(), () => page().getByLabel('Tag or text').focus()],
    ] as const) {
      const before = await rows().count();
      await reads();
      await badge('Paused, 0 since').waitFor();
      await verify(ada, 2);
      await badge('Paused, 2 since').waitFor();
      expect(await rows().count()).toBe(before);
      await leaves();
      await badge('Live').waitFor();
      await expect.poll(() => rows().count()).toBe(before + 2);
    }
    if (folder)
      for (const width of [1440, 390])
        for (const colorScheme of ['light', 'dark'] as const) {
          await page().setViewportSize({ width, height: 900 });
          await page().emulateMedia({ colorScheme });
          await page().screenshot({ path: `${folder}/live-${width}-${colorScheme}.png` });
        }
    expect(await violations()).toEqual([]);
    await page().setViewportSize({ width: 390, height: 800 });
    expect(await isWithinWidth()).toBe(true);
  });

  test('without the grant for APIs, one is named by its id', async () => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_analytics'] });
    await open('/live', key);
    await badge('Live').waitFor();
    expect(await combobox().count()).toBe(0);
    await untilListens(() => page().getByLabel('API', { exact: true }).fill(bob.apiId));
    await expect.poll(() => new URL(page().url()).searchParams.get('api')).toBe(bob.apiId);
    await badge('Live').waitFor();
    await verify(ada, 1);
    await verify(bob, 1);
    await expect.poll(() => rows().count()).toBe(1);
  });

  test('screens are in named groups: those that the root key may use', async () => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_analytics', 'api.*.read_key'] });
    await open('/live', key);
    const group = (name: string) => page().getByRole('list', { name }).getByRole('link');
    expect(await group('Traffic').allTextContents()).toEqual(['Overview', 'Live', 'Attention']);
    expect(await group('Keys and limits').allTextContents()).toEqual(['Keys', 'Explain', 'Bill']);
    expect(await group('Administration').count()).toBe(0);
  });
});
