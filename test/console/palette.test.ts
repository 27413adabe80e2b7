// Ctrl-K in a real browser: keys, customers, APIs, plans, screens and actions from any screen. A whole key string is
// sent in bodies only, and nothing keeps it.

import type { Request } from 'playwright-core';
import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, looksRight } = consoleInChromium(h);
  let api: string;
  let ada: { keyId: string; key: string };

  beforeAll(async () => {
    api = (await ok('apis.createApi', { name: 'payments' })).apiId;
    ada = await ok('keys.createKey', { apiId: api, name: "Ada's laptop", externalId: 'ada.lovelace', prefix: 'pay' });
    for (let number = 0; number < 8; number++)
      await ok('keys.createKey', { apiId: api, name: `server ${number}`, externalId: `globex-000${number}` });
    await ok('plans.createPlan', { planId: 'gold' });
  });

  const field = () => page().getByRole('combobox', { name: 'Find' });
  const options = () => page().getByRole('listbox').getByRole('option');
  const heading = (name: string) => page().getByRole('heading', { level: 1, name, exact: true }).waitFor();
  const path = () => decodeURIComponent(new URL(page().url()).pathname.replace('/console', ''));
  async function find(text: string) {
    await page().keyboard.press('Control+k');
    await field().fill(text);
  }
  const closed = () => page().getByRole('dialog').waitFor({ state: 'detached' });
  async function leave() {
    await page().keyboard.press('Escape');
    await closed();
  }
  /** Without waiting for what is displayed. */
  async function findAndEnter(text: string) {
    await find(text);
    await page().keyboard.press('Enter');
  }

  test.each<[string, () => string, string]>([
    ['the id of a key', () => ada.keyId, "Ada's laptop"],
    ['the start of a key', () => ada.key.slice(0, 'pay_1234'.length), "Ada's laptop"],
    ['a whole key string', () => ada.key, "Ada's laptop"],
    ['a customer', () => 'ada.lovelace', 'ada.lovelace'],
    ['the id of an API', () => api, 'payments'],
    ['a plan', () => 'gold', 'gold'],
    ['a screen', () => 'rate', 'Rate limits'],
  ])('%s and Enter lead to its screen, from another', async (_, text, title) => {
    await open('/system');
    await findAndEnter(text());
    await heading(title);
    await closed();
    await expect.poll(() => page().locator(':focus').getAttribute('id')).toBe('main');
  });

  test('a whole key string is in bodies only, and in nothing after the palette is closed', async () => {
    const requests: Request[] = [];
    page().on('request', (request) => requests.push(request));
    await open('/system');
    await find(ada.key);
    await options().filter({ hasText: "Ada's laptop" }).waitFor();
    // It is found, so no list is searched for it.
    const withIt = requests.filter((request) => request.postData()?.includes(ada.key));
    expect(withIt.map((request) => new URL(request.url()).pathname)).toEqual(['/v2/system.find']);
    await leave();
    const secret = ada.key.slice('pay_1234'.length);
    const kept = await page().evaluate<string>(`(async () => JSON.stringify([
      { ...localStorage }, { ...sessionStorage }, document.cookie, location.href, history.state, document.title,
      document.documentElement.outerHTML, await indexedDB.databases(), await caches.keys(),
    ]))()`);
    expect(kept).not.toContain(secret);
    expect(requests.filter((request) => request.url().includes(secret))).toEqual([]);
    await page().keyboard.press('Control+k');
    expect(await field().inputValue()).toBe('');
    // Nor has the memory of the page: it is asked for again.
    const again = page().waitForRequest('**/v2/system.find');
    await field().fill(ada.key);
    await again;
  });

  test('a text as long as a key string may be is sent as it is, and no list is searched for more than 255', async () => {
    const asked: string[] = [];
    page().on('request', (request) => asked.push(new URL(request.url()).pathname));
    await open('/system');
    const text = 'a'.repeat(512);
    const found = page().waitForRequest('**/v2/system.find');
    await find(text);
    expect((await found).postDataJSON()).toEqual({ text });
    await page().getByText('0 found', { exact: true }).waitFor();
    await page().waitForTimeout(300);
    expect(asked.filter((path) => path.startsWith('/v2/keys.list'))).toEqual([]);
  });

  test('a part of a name: the lists are searched; the arrow keys choose; all of a list', async () => {
    await open('/system');
    await find('globex');
    for (const list of ['All Keys', 'All Customers']) await options().filter({ hasText: list }).waitFor();
    for (const kind of ['Key · ', 'Customer · '])
      expect(await options().filter({ hasText: kind }).count()).toBeGreaterThanOrEqual(5);
    const chosen = page().locator('[role=option][aria-selected=true]');
    const first = await chosen.textContent();
    await page().keyboard.press('ArrowDown');
    await expect.poll(() => chosen.textContent()).not.toBe(first);
    expect(await field().getAttribute('aria-activedescendant')).toBe(await chosen.getAttribute('id'));
    await page().keyboard.press('ArrowUp');
    await expect.poll(() => chosen.textContent()).toBe(first);
    await options().filter({ hasText: 'All Customers' }).click();
    await heading('Customers');
    expect(new URL(page().url()).search).toBe('?search=globex');
  });

  test('a long search reads on, with its progress, until Stop, another text or the end of the palette', async () => {
    const asked: string[] = [];
    let go = () => {};
    await page().route('**/v2/keys.listKeys', async (route) => {
      const { search, cursor = '0' } = route.request().postDataJSON();
      asked.push(`${search} ${cursor}`);
      await new Promise<void>((resolve) => (go = resolve));
      const pagination = { hasMore: true, cursor: `${Number(cursor) + 1}`, looked: 20_000, total: 1_000_000 };
      await route.fulfill({ json: { meta: { requestId: 'req_1' }, data: [], pagination } });
    });
    await open('/system');
    await find('nothing');
    await expect.poll(() => asked).toEqual(['nothing 0']);
    go();
    await page().getByText('20,000 of 1,000,000 were examined.').waitFor();
    await expect.poll(() => asked.length).toBe(2);
    await page().getByRole('button', { name: 'Stop' }).click();
    await page().getByText('0 found', { exact: true }).waitFor();
    await field().fill('other');
    await expect.poll(() => asked.at(-1)).toBe('other 0');
    await page().keyboard.press('Escape');
    go();
    await page().waitForTimeout(300);
    expect(asked).toEqual(['nothing 0', 'nothing 1', 'other 0']);
  });

  test('actions of the screen and of all screens', async () => {
    await open(`/keys/${ada.keyId}`);
    await heading("Ada's laptop");
    await findAndEnter('rotate');
    await page().getByRole('dialog', { name: "Rotate Ada's laptop" }).waitFor();
    await leave();
    await findAndEnter('edit limits');
    await page().getByRole('dialog', { name: "Limits of Ada's laptop" }).waitFor();
    // Not over another dialog.
    await page().keyboard.press('Control+k');
    expect(await page().getByRole('dialog').count()).toBe(1);
    await leave();
    await findAndEnter('new customer');
    await page().getByRole('dialog', { name: 'New customer' }).waitFor();
    expect([path(), new URL(page().url()).search]).toEqual(['/customers', '']);
    await leave();
    await findAndEnter('sign out');
    await page().getByLabel('Root key').waitFor();
  });

  test('what the grants exclude is not offered', async () => {
    await open('/keys', await h.createRootKey([`api.${api}.read_key`, `api.${api}.read_api`]));
    await page().getByRole('region', { name: 'Keys' }).waitFor();
    await page().keyboard.press('Control+k');
    expect((await options().allTextContents()).map((text) => text.trim())).toEqual([
      'CSV',
      'Overview Screen · g o',
      'Attention Screen · g t',
      'APIs Screen · g a',
      'Keys Screen · g k',
      'Explain Screen · g e',
      'API reference',
      'Sign out',
    ]);
    await field().fill('ada');
    await options().filter({ hasText: "Ada's laptop" }).waitFor();
    expect(await options().filter({ hasText: 'Customer · ' }).count()).toBe(0);
    await leave();
    // No screen has this letter for this root key.
    await page().keyboard.press('g');
    await page().keyboard.press('s');
    expect(path()).toBe('/keys');
  });

  test('shortcuts: g and a letter, / and ?; none where a text is typed', async () => {
    await open('/system');
    const press = async (...keys: string[]) => {
      for (const key of keys) await page().keyboard.press(key);
    };
    await press('g', 'c');
    await heading('Customers');
    await press('/');
    await press('g', 'k', '?');
    expect(await page().getByRole('searchbox').inputValue()).toBe('gk?');
    await page().locator('main').focus();
    await press('?');
    await options().filter({ hasText: 'g k' }).waitFor();
    await leave();
    await press('g', 's');
    await heading('System');
    await press('/');
    await field().waitFor();
    await leave();
    await page().getByRole('button', { name: 'Find' }).click();
    await field().waitFor();
    // Back closes it.
    await page().goBack();
    await heading('Customers');
    expect(await page().getByRole('dialog').count()).toBe(0);
  });

  test('on a wide and a narrow screen, in both themes, axe finds nothing', async () => {
    await open('/system');
    await page().keyboard.press('Control+k');
    await looksRight('palette');
    await field().fill('globex');
    await options().filter({ hasText: 'All Keys' }).waitFor();
    await looksRight('palette-found');
  });
});
