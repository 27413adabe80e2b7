// Tables as CSV files, in a real browser: a file has all rows of the list, not those that are displayed.

import { readFile } from 'node:fs/promises';
import type { Route } from 'playwright-core';
import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const folder = process.env.SCREENSHOTS;

inChromium(() => {
  const { page, open, goTo, violations, isWithinWidth } = consoleInChromium(h);
  let apiId: string;

  beforeAll(async () => {
    apiId = (await ok('apis.createApi', { name: '=payments' })).apiId;
    for (let number = 0; number < 120; number++)
      await ok('keys.createKey', { apiId, name: `laptop ${number}`, externalId: `user_${number}` });
    const { keyId } = await ok('keys.createKey', {
      apiId,
      name: 'x;＝1+1',
      meta: { formula: '\t=1', plan: 'gold, large' },
      permissions: ['documents.read'],
      prefix: 'pay',
      credits: { remaining: 0 },
    });
    await ok('keys.verifyKey', { key: (await ok('keys.rerollKey', { keyId, expiration: 0 })).key });
  });

  const csv = () => page().getByRole('button', { name: 'CSV' });
  const dialog = () => page().getByRole('dialog', { name: 'Save as CSV' });
  /** The lines of the file that `save` begins. */
  async function linesOf(save: () => Promise<unknown> = () => csv().first().click()) {
    const saved = page().waitForEvent('download');
    await save();
    const text = await readFile(await (await saved).path(), 'utf8');
    return text.split('\r\n').slice(0, -1);
  }

  test('Keys: all of them, with name, API, metadata and state, and no formula', async () => {
    await open('/keys');
    await page().getByText('laptop 119', { exact: true }).waitFor();
    const [head, successor, old, ...others] = await linesOf();
    expect(head).toBe(
      'Key,Name,Id,Customer,Plan,API,API id,State,Created,Last used,Expires,Credits,Roles,Permissions,Metadata',
    );
    expect(successor).toMatch(
      new RegExp(`^pay_\\w+,"x;'＝1\\+1",key_\\w+,,,'=payments,${apiId},used_up,20\\d\\d-[^,]+,,,0,,documents.read,`),
    );
    expect(successor!.endsWith(`"{""formula"":""\\t=1"",""plan"":""gold, large""}"`)).toBe(true);
    expect(old).toContain(',expired,');
    expect(others).toHaveLength(120);
    expect(new Set(others).size).toBe(120);
    expect(await dialog().count()).toBe(0);
  });

  test('a file has what the search and the filter find; of deleted keys until when they can be restored', async () => {
    const { data } = await h.call('keys.listKeys', { search: 'laptop 7', limit: 100 });
    await open('/keys?search=laptop+7');
    await expect.poll(() => page().locator('tbody tr').count()).toBe(data.length);
    expect(await linesOf()).toHaveLength(data.length + 1);
    await ok('keys.deleteKey', { keyId: data[0]!.keyId });
    await goTo('/keys?state=deleted');
    await page().getByText('Restore …').waitFor();
    const [head, only, ...none] = await linesOf();
    expect(head!.endsWith(',Can be restored until')).toBe(true);
    expect([only!.split(',')[7], none]).toEqual(['deleted', []]);
    await ok('keys.restoreKey', { keyId: data[0]!.keyId });
  });

  test('Customers, changes and a ranking: all rows', async () => {
    for (let number = 0; number < 12; number++) {
      const { key } = await ok('keys.createKey', { apiId, externalId: `user_${number}` });
      await ok('keys.verifyKey', { key });
    }
    await open('/customers');
    await page().getByText('user_11', { exact: true }).first().waitFor();
    const card = (name: string) =>
      page().locator('section.card', { hasText: name }).getByRole('button', { name: 'CSV' });
    expect(await linesOf()).toHaveLength(1 + 120);
    const ranking = card('Largest customers');
    await ranking.waitFor();
    await expect.poll(() => page().getByRole('region', { name: 'Largest customers' }).locator('tr').count()).toBe(11);
    expect(await linesOf(() => ranking.click())).toHaveLength(1 + 12);
    await goTo('/access');
    const changes = card('Changes');
    await expect.poll(() => changes.isEnabled()).toBe(true);
    expect((await linesOf(() => changes.click())).length).toBeGreaterThan(120);
  });

  test('Recent refusals: all rows, not only the first page', async () => {
    for (let number = 0; number < 55; number++) {
      const { key } = await ok('keys.createKey', { apiId });
      await ok('keys.verifyKey', { key, permissions: 'documents.write' });
    }
    await open('/attention');
    const card = page().locator('section.card', { has: page().getByRole('heading', { name: 'Recent refusals' }) });
    await expect.poll(() => card.locator('tbody tr').count()).toBe(50);
    const { data } = await h.call('analytics.listRefusals', { limit: 1000 });
    expect(data.length).toBeGreaterThan(50);
    const lines = await linesOf(() => card.getByRole('button', { name: 'CSV' }).click());
    expect(lines).toHaveLength(1 + data.length);
  });

  test('Access: root keys as other lists; every permission and role is displayed', async () => {
    const permissions = Array.from({ length: 60 }, (_, number) => `mails.p${number}`);
    for (let number = 0; number < 21; number++)
      await ok('permissions.createRole', { name: `role ${number}`, permissions: number === 20 ? permissions : [] });
    const expires = Date.now() + 60_000;
    const made = await ok('rootKeys.createRootKey', { name: 'ci', permissions: ['*'], expires });
    await open('/');
    await page().clock.install({ time: expires + 1000 });
    await goTo('/access');
    const card = (name: string) =>
      page().locator('section.card', { has: page().getByRole('heading', { name, exact: true }) });
    const rootKeys = card('Root keys');
    await rootKeys.getByText('ci', { exact: true }).waitFor();
    const [head, ...lines] = await linesOf(() => rootKeys.getByRole('button', { name: 'CSV' }).click());
    expect(head).toBe('Root key,Id,Grants,State,Last used,Expires');
    expect(lines.find((line) => line.includes(made.rootKeyId))).toMatch(
      new RegExp(`,\\*,expired,,${new Date(expires).toISOString()}$`),
    );

    const roles = card('Roles and their permissions');
    await roles.getByText('The first 20 roles have a column.').waitFor();
    await roles.getByRole('button', { name: 'More roles' }).click();
    await roles.getByRole('columnheader', { name: 'role 20' }).waitFor();
    await roles.getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => roles.locator('tbody tr').count()).toBe(61);
    const [roleNames, ...slugs] = await linesOf(() => roles.getByRole('button', { name: 'CSV' }).click());
    expect([roleNames!.split(',').at(-1), slugs.length]).toEqual(['role 20', 61]);
    expect(slugs.find((line) => line.startsWith('mails.p59'))!.endsWith(',yes')).toBe(true);
  });

  /** `count` keys a page, of `pages`. */
  async function mockKeys(pages: number, count: number, wait: (number: number) => Promise<unknown>) {
    const { data } = await h.call('keys.listKeys', { limit: 1 });
    const rows = Array(count).fill(data[0]);
    await page().route('**/v2/keys.listKeys', async (route: Route) => {
      const { cursor, limit } = route.request().postDataJSON();
      if (limit !== 100) return route.continue();
      const number = Number(cursor ?? 0);
      if ((await wait(number)) === 'fails') return route.abort();
      const isLast = number === pages - 1;
      const pagination = {
        hasMore: !isLast,
        ...(!isLast && { cursor: `${number + 1}` }),
        looked: count,
        total: count * pages,
      };
      await route.fulfill({ json: { meta: { requestId: 'req_1' }, data: rows, pagination } });
    });
  }

  test('a long list: progress; an error, after which it goes on where it was', async () => {
    let go = (_: unknown) => {};
    const asked: number[] = [];
    await open('/keys');
    await expect.poll(() => page().locator('tbody tr').count()).toBe(50);
    await mockKeys(3, 100, (number) => {
      asked.push(number);
      return new Promise((resolve) => (go = resolve));
    });
    await csv().click();
    await expect.poll(() => asked).toEqual([0]);
    go('');
    await expect.poll(() => asked).toEqual([0, 1]);
    await dialog().getByText('100 rows; 100 of 300 were read.').waitFor();
    expect(await dialog().getByRole('progressbar').getAttribute('value')).toBe('100');
    await page().keyboard.press('Escape');
    await page().keyboard.press('Escape');
    expect(await dialog().count()).toBe(1);
    for (const theme of ['light', 'dark'] as const) {
      await page().emulateMedia({ colorScheme: theme });
      expect(await violations()).toEqual([]);
      if (folder) await page().screenshot({ path: `${folder}/csv-${theme}.png` });
    }
    await page().setViewportSize({ width: 390, height: 844 });
    expect(await isWithinWidth()).toBe(true);
    go('fails');
    await dialog().getByText('The server cannot be reached.').waitFor();
    if (folder) await page().screenshot({ path: `${folder}/csv-narrow.png` });
    await dialog().getByRole('button', { name: 'Try again' }).click();
    await expect.poll(() => asked).toEqual([0, 1, 1]);
    go('');
    await expect.poll(() => asked).toEqual([0, 1, 1, 2]);
    expect(await linesOf(async () => go(''))).toHaveLength(301);
    await dialog().waitFor({ state: 'detached' });
  });

  test('Stop ends it, and nothing is saved', async () => {
    let go = () => {};
    let [asked, saved] = [0, 0];
    page().on('download', () => saved++);
    await open('/keys');
    await expect.poll(() => page().locator('tbody tr').count()).toBe(50);
    await mockKeys(2, 100, () => {
      asked++;
      return new Promise<void>((resolve) => (go = resolve));
    });
    await csv().click();
    await dialog().getByRole('button', { name: 'Stop' }).click();
    await dialog().waitFor({ state: 'detached' });
    await expect.poll(() => page().locator(':focus').textContent()).toBe('CSV');
    go();
    // Neither another request nor a download follows.
    await page().waitForTimeout(300);
    expect([asked, saved]).toEqual([1, 0]);
  });

  test('a file ends at a million rows, and says so', async () => {
    await open('/keys');
    await expect.poll(() => page().locator('tbody tr').count()).toBe(50);
    // Responses that the page makes itself: a server would take minutes for a million rows.
    await page().evaluate(`{
      const { fetch } = globalThis;
      const data = Array(80_000).fill({ keyId: 'key_1', start: 'a', enabled: true, createdAt: 0 });
      const pagination = { hasMore: true, cursor: 'next' };
      globalThis.fetch = async (url, init) =>
        init.body.includes('"limit":100') && url.endsWith('/keys.listKeys')
          ? { ok: true, json: async () => ({ data, pagination }) }
          : fetch(url, init);
    }`);
    page().setDefaultTimeout(110_000);
    const lines = await linesOf(() => csv().click());
    expect(lines).toHaveLength(1_000_001);
    await dialog().getByText('The file has the first 1,000,000 rows').waitFor();
    await dialog().getByRole('button', { name: 'Close' }).click();
    await dialog().waitFor({ state: 'detached' });
  });

  test('with a root key that may not list APIs a file has no names of APIs', async () => {
    const grants = ['read_key', 'read_api'].map((action) => `api.${apiId}.${action}`);
    await open(`/keys?api=${apiId}`, await h.createRootKey(grants));
    await expect.poll(() => page().locator('tbody tr').count()).toBe(50);
    const [, first] = await linesOf();
    expect(first).toContain(`,,${apiId},enabled,`);
  });
});
