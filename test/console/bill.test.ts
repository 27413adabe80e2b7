// The bill of a month, in a real browser: all customers, the months before, an API, and the file.

import { readFile } from 'node:fs/promises';
import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;
/** More than a page of the table, and than one of the other files. */
const customers = 130;

inChromium(() => {
  const { page, open, goTo, violations, looksRight } = consoleInChromium(h);
  let other: string;
  const monthBack = (months: number) => {
    const now = new Date(h.clock.now);
    return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months, 15, 12);
  };
  const nameOf = (ms: number) => new Date(ms).toISOString().slice(0, 7);

  beforeAll(async () => {
    const now = h.clock.now;
    h.clock.now = monthBack(1);
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    other = (await ok('apis.createApi', { name: 'search' })).apiId;
    const first = await h.createKey({ apiId, externalId: 'user_000', credits: { remaining: 50 } });
    await ok('keys.verifyKey', { key: first.key, credits: { cost: 20 } });
    h.clock.now = now;
    await ok('keys.verifyKey', { key: first.key, credits: { cost: 25 } });
    await ok('keys.verifyKey', { key: first.key, credits: { cost: 25 } });
    for (let number = 1; number < customers; number++) {
      const { key } = await h.createKey({ apiId, externalId: `user_${`${number}`.padStart(3, '0')}` });
      await ok('keys.verifyKey', { key });
    }
    const formula = await h.createKey({ apiId: other, externalId: '-1.x' });
    await ok('keys.verifyKey', { key: formula.key });
    const nobody = await h.createKey({ apiId });
    await ok('keys.verifyKey', { key: nobody.key });
  });

  const list = () => page().locator('section.card', { hasText: 'All customers' }).last();
  const rows = () => list().locator('tbody tr');
  const cellsOf = (at: number) => rows().nth(at).locator('td').allTextContents();
  const figure = (label: string) =>
    page().locator('.figure', { hasText: label }).locator('.figure-value').textContent();

  test('this month: totals, a row for each customer, one for keys without one, and more pages', async () => {
    await open('/bill');
    await expect.poll(() => rows().count()).toBe(100);
    expect(await cellsOf(0)).toEqual(['(no customer)', '1', '0', '1', '0']);
    expect(await cellsOf(2)).toEqual(['user_000', '1', '1', '2', '25']);
    expect([await figure('Verifications'), await figure('Refused'), await figure('Credits')]).toEqual([
      '133',
      '1',
      '25',
    ]);
    await list().getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => rows().count()).toBe(customers + 2);
    await looksRight('bill');
  });

  test('the month before and an API are in the address', async () => {
    const last = nameOf(monthBack(1));
    await open('/bill');
    await page().getByLabel('Month, UTC').selectOption(last);
    await expect.poll(() => rows().count()).toBe(1);
    expect(await cellsOf(0)).toEqual(['user_000', '1', '0', '1', '20']);
    expect(new URL(page().url()).search).toBe(`?month=${last}`);
    await page().reload();
    await expect.poll(() => rows().count()).toBe(1);
    await goTo(`/bill?api=${other}`);
    await expect.poll(() => rows().count()).toBe(1);
    expect(await cellsOf(0)).toEqual(['-1.x', '1', '0', '1', '0']);
    await goTo(`/bill?month=${nameOf(monthBack(11))}`);
    await page().getByText('Nothing was verified in this month').waitFor();
    await goTo('/bill?month=1999-01');
    expect(await page().getByLabel('Month, UTC').inputValue()).toBe(nameOf(h.clock.now));
  });

  test('the file has all customers and each outcome', async () => {
    await open('/bill');
    await expect.poll(() => rows().count()).toBe(100);
    const saved = page().waitForEvent('download');
    await list().getByRole('button', { name: 'CSV' }).click();
    const file = await saved;
    expect(file.suggestedFilename()).toBe(`bill-${nameOf(h.clock.now)}.csv`);
    const lines = (await readFile(await file.path(), 'utf8')).split('\r\n').slice(0, -1);
    expect(lines).toHaveLength(customers + 3);
    const head = lines[0]!.split(',');
    // The command line has the same columns (test/cli/usage.test.ts).
    expect(head.slice(0, 5)).toEqual(['Customer', 'Valid', 'Refused', 'Verifications', 'Credits']);
    expect(lines[1]!.startsWith(',1,0,1,')).toBe(true);
    expect(lines[2]!.startsWith("'-1.x,1,0,1,")).toBe(true);
    const first = lines[3]!.split(',');
    expect([...first.slice(0, 5), first[head.indexOf('USAGE_EXCEEDED')]]).toEqual([
      'user_000',
      '1',
      '1',
      '2',
      '25',
      '1',
    ]);
  });

  test('the usage of ended days is displayed while that of today is added up', async () => {
    const { now } = h.clock;
    const date = new Date(now);
    // The middle of the next month, by the clocks of both: on its first day there is no day before.
    h.clock.now = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 20, 12);
    const { apiId } = await ok('apis.createApi', { name: 'ended' });
    const { key } = await h.createKey({ apiId, externalId: 'ada' });
    await ok('keys.verifyKey', { key });
    h.clock.now += dayMs;
    while (await h.store.sweep.rollUp(h.workspaceId));
    await ok('keys.verifyKey', { key });
    await page().clock.setFixedTime(h.clock.now);
    const asked: object[] = [];
    let [respond, rank] = [() => {}, () => {}];
    const isReady = new Promise<void>((resolve) => (respond = resolve));
    const isRanked = new Promise<void>((resolve) => (rank = resolve));
    let rankings = 0;
    await page().route('**/v2/analytics.getTop', async (route) => {
      rankings++;
      await isRanked;
      await route.continue();
    });
    await page().route('**/v2/analytics.listCustomers', async (route) => {
      const { start, end } = route.request().postDataJSON();
      asked.push({ days: (end - start) / dayMs });
      // The whole month takes long.
      if (end > h.clock.now) await isReady;
      await route.continue();
    });
    await open(`/bill?api=${apiId}`);
    await expect.poll(() => rows().count()).toBe(1);
    expect(await cellsOf(0)).toEqual(['ada', '1', '0', '1', '0']);
    const note = list().getByText(/Until the end of \d{4}-\d{2}-20, UTC/);
    expect(await note.isVisible()).toBe(true);
    expect(await violations()).toEqual([]);
    // The month is asked for after the ranking is there.
    expect(asked).toEqual([{ days: 20 }]);
    rank();
    await expect.poll(() => asked.length).toBe(2);
    expect(await cellsOf(0)).toEqual(['ada', '1', '0', '1', '0']);
    respond();
    await expect.poll(() => cellsOf(0)).toEqual(['ada', '2', '0', '2', '0']);
    expect(await note.count()).toBe(0);
    expect([asked.length, rankings]).toEqual([2, 1]);
    // A month that is over is asked for once.
    await goTo(`/bill?api=${apiId}&month=${nameOf(now)}`);
    await page().getByText('Nothing was verified in this month').waitFor();
    expect(asked).toHaveLength(3);
    await page().unrouteAll();
  });

  test('without a grant it says which', async () => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_key'] });
    await open('/bill', key);
    await page().getByText('api.*.read_analytics').waitFor();
  });
});
