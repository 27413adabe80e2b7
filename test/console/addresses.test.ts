// What a screen displays is in its address, in a real browser: reload, Back and a link to a colleague display the same.
// No secret gets into an address.

import type { Route } from 'playwright-core';
import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, goTo, shot, looksRight } = consoleInChromium(h);
  let [pay, mail] = ['', ''];
  let key: { keyId: string; key: string };

  beforeAll(async () => {
    pay = (await ok('apis.createApi', { name: 'payments' })).apiId;
    mail = (await ok('apis.createApi', { name: 'mails' })).apiId;
    for (let number = 0; number < 120; number++)
      await ok('keys.createKey', { apiId: pay, name: `laptop ${number}`, externalId: `user_${100 + number}` });
    const expires = Date.now() + 5 * dayMs;
    await ok('keys.createKey', { apiId: mail, name: 'later', expires: expires + 60 * dayMs });
    await ok('keys.createKey', { apiId: mail, name: 'soon', expires });
    key = await ok('keys.createKey', {
      apiId: mail,
      name: 'off',
      enabled: false,
      prefix: 'pay',
      meta: { plan: 'gold' },
    });
    for (const namespace of ['mails', 'uploads'])
      await ok('ratelimits.limit', { namespace, identifier: 'a', limit: 1, duration: 60_000 });
  });

  const search = () => page().getByRole('searchbox', { name: 'Search' });
  const rows = () => page().locator('section.table tbody tr');
  const names = async () => (await rows().locator('a[href*="/keys/key_"]').allTextContents()).slice(0, 3);
  const address = () =>
    decodeURIComponent(
      page()
        .url()
        .replace(/^.*\/console/, ''),
    );
  const addressIs = (expected: string) => expect.poll(address).toBe(expected);
  const chooseApi = async (name: string) => {
    await page().getByRole('combobox', { name: 'API' }).click();
    await page().getByRole('option', { name }).click();
  };
  const choose = (label: string, option: string) => page().getByLabel(label, { exact: true }).selectOption(option);

  test('Keys: search, API, state and order; reload, Back and another browser display the same', async () => {
    await open('/keys');
    await chooseApi('mails');
    await addressIs(`/keys?api=${mail}`);
    await choose('State', 'Disabled');
    await search().fill('gold');
    await addressIs(`/keys?api=${mail}&state=disabled&search=gold`);
    await choose('Order', 'Oldest first');
    await addressIs(`/keys?api=${mail}&state=disabled&search=gold&order=oldest`);
    await expect.poll(names).toEqual(['off']);
    const link = address();

    await page().reload();
    await expect.poll(names).toEqual(['off']);
    expect(await search().inputValue()).toBe('gold');
    await page().getByRole('link', { name: 'off', exact: true }).click();
    await page().getByRole('heading', { level: 1, name: 'off' }).waitFor();
    await page().goBack();
    await expect.poll(names).toEqual(['off']);
    expect([address(), await search().inputValue()]).toEqual([link, 'gold']);
    // One step for each choice, and none for typing.
    await page().goBack();
    await addressIs(`/keys?api=${mail}&state=disabled&search=gold`);
    await page().goBack();
    await addressIs(`/keys?api=${mail}`);
    await expect.poll(() => search().inputValue()).toBe('');
    await expect.poll(() => rows().count()).toBe(3);

    const colleague = await page().context().browser()!.newPage();
    await colleague.goto(new URL(`/console${link}`, page().url()).href);
    await colleague.getByLabel('Root key').fill(h.rootKey);
    await colleague.keyboard.press('Enter');
    await colleague.getByRole('link', { name: 'off', exact: true }).waitFor();
    expect(await colleague.locator('tbody tr').count()).toBe(1);
    await colleague.close();
  });

  test('a value in an address that no control has is ignored', async () => {
    await open('/keys?state=toString&order=x&pages=-3');
    await expect.poll(() => rows().count()).toBe(50);
    expect(await page().getByLabel('State').inputValue()).toBe('');
    await goTo('/?period=x');
    await expect.poll(() => page().getByRole('radio', { name: '24 hours' }).isChecked()).toBe(true);
  });

  test('Keys: headings sort by creation and expiry; in order of expiry, only keys that expire are listed', async () => {
    await open('/keys');
    await expect.poll(names).toEqual(['off', 'soon', 'later']);
    const heading = (name: string) => page().getByRole('columnheader', { name });
    expect(await heading('Created').getAttribute('aria-sort')).toBe('descending');
    await heading('Created').getByRole('button').press('Enter');
    await expect.poll(names).toEqual(['laptop 0', 'laptop 1', 'laptop 2']);
    expect(await heading('Created').getAttribute('aria-sort')).toBe('ascending');
    await addressIs('/keys?order=oldest');
    await heading('Expires').getByRole('button').click();
    await expect.poll(names).toEqual(['later', 'soon']);
    await heading('Expires').getByRole('button').click();
    await expect.poll(names).toEqual(['soon', 'later']);
    await page().getByText('In order of expiry, only keys that expire are listed.').waitFor();
    await addressIs('/keys?order=expiry');
    await choose('State', 'Expires within 30 days');
    await expect.poll(names).toEqual(['soon']);
    expect(await heading('Expires').getAttribute('aria-sort')).toBe('ascending');
    expect(await page().getByLabel('Order').locator('option').allTextContents()).toEqual([
      'First to expire',
      'Last to expire',
    ]);
    h.clock.now -= 3 * hourMs;
    const { keyId } = await ok('keys.createKey', { apiId: mail, name: 'past', expires: h.clock.now + hourMs });
    h.clock.now += 3 * hourMs;
    await choose('State', 'Expired');
    await expect.poll(names).toEqual(['past']);
    await choose('State', 'Expires within 30 days');
    await expect.poll(names).toEqual(['soon']);
    await ok('keys.deleteKey', { keyId, permanent: true });
  });

  test('Keys: the pages that are displayed are displayed again, and a refreshed list has each key once', async () => {
    await open('/keys');
    await page().getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => rows().count()).toBe(100);
    await addressIs('/keys?pages=2');
    await page().reload();
    await expect.poll(() => rows().count()).toBe(100);
    await rows().last().getByRole('link').first().click();
    await page()
      .getByRole('heading', { level: 1, name: /^laptop/ })
      .waitFor();
    await page().goBack();
    await expect.poll(() => rows().count()).toBe(100);
    // A key less on the first page: the second begins with another.
    const { data } = await h.call('keys.listKeys', { order: 'desc', limit: 10 });
    await ok('keys.deleteKey', { keyId: data[9]!.keyId });
    await page().reload();
    await expect.poll(() => page().locator(`a[href$="${data[9]!.keyId}"]`).count()).toBe(0);
    await expect.poll(() => rows().count()).toBe(100);
    const links = await rows()
      .locator('a[href*="/keys/key_"]')
      .evaluateAll((all) => all.map((a) => a.getAttribute('href')));
    expect(new Set(links).size).toBe(100);
    await choose('Order', 'Oldest first');
    await addressIs('/keys?order=oldest');
    await expect.poll(() => rows().count()).toBe(50);
    await ok('keys.restoreKey', { keyId: data[9]!.keyId });
  });

  test('Keys: later pages are loaded again after a change', async () => {
    await open('/keys?pages=2');
    await expect.poll(() => rows().count()).toBe(100);
    await rows().last().getByRole('link').first().click();
    await page().getByRole('button', { name: 'Disable …' }).click();
    await page().getByRole('dialog').getByRole('button', { name: 'Disable', exact: true }).click();
    await page().getByRole('button', { name: 'Enable …' }).waitFor();
    await page().goBack();
    await expect.poll(() => rows().count()).toBe(100);
    await expect.poll(() => rows().last().textContent()).toContain('Disabled');
    // Also while the list is displayed, with all its rows.
    await rows().nth(70).getByRole('checkbox').check();
    await page().getByRole('region', { name: 'Chosen keys' }).getByRole('button', { name: 'Disable …' }).click();
    await page().getByRole('dialog').getByRole('button', { name: 'Disable', exact: true }).click();
    await expect.poll(() => rows().nth(70).textContent()).toContain('Disabled');
    expect(await rows().count()).toBe(100);
    const { data } = await h.call('keys.listKeys', { enabled: false, limit: 100 });
    for (const { keyId } of data.filter(({ keyId }) => keyId !== key.keyId))
      await ok('keys.updateKey', { keyId, enabled: true });
  });

  test('a key string that is pasted or typed into a search is in no address', async () => {
    const addresses: string[] = [];
    page().on('framenavigated', (frame) => addresses.push(frame.url()));
    await open('/keys');
    await expect.poll(() => rows().count()).toBe(50);
    await search().fill(key.key);
    await expect.poll(names).toEqual(['off']);
    await search().fill('');
    await expect.poll(() => rows().count()).toBe(50);
    // The start of a key string, which lists display, may be in an address.
    await search().pressSequentially(key.key.slice(0, 'pay_1234'.length));
    await addressIs(`/keys?search=${key.key.slice(0, 8)}`);
    await search().pressSequentially(key.key.slice(8), { delay: 60 });
    await addressIs('/keys');
    await expect.poll(names).toEqual(['off']);
    await addressIs('/keys');
    await search().fill('user_100');
    await addressIs('/keys?search=user_100');

    await goTo('/customers');
    await search().fill(key.key);
    await page().getByText('No customer matches').waitFor();
    await goTo('/rate-limits');
    await search().fill(h.rootKey);
    await page().getByText('No namespace matches').waitFor();

    await goTo('/live?outcome=DISABLED');
    await page().locator('.badge.good', { hasText: 'Live' }).waitFor();
    await ok('keys.verifyKey', { key: key.key });
    await expect.poll(() => rows().count()).toBe(1);
    await page().getByLabel('Key id').fill(key.key);
    await page().getByText('Nothing has happened').waitFor();
    // The key string is asked for too, after a pause: that response does not count.
    const listens = page().waitForResponse((response) => !!response.request().postData()?.includes(key.keyId));
    await page().getByLabel('Key id').fill(key.keyId);
    await listens;
    await page().locator('.badge.good', { hasText: 'Live' }).waitFor();
    await ok('keys.verifyKey', { key: key.key });
    await addressIs(`/live?outcome=DISABLED&key=${key.keyId}`);
    await page().getByLabel('Customer').fill(key.key);
    await page().getByText('Nothing has happened').waitFor();
    // A typed text is in the address after 200 ms.
    await page().waitForTimeout(500);
    const secrets = [key.key.slice(0, 13), h.rootKey.slice(0, -8)];
    expect(addresses.filter((url) => secrets.some((secret) => url.includes(secret)))).toEqual([]);
  });

  test('the period, the order of namespaces, and another workspace without them', async () => {
    await open('/');
    await page().getByText('30 days').click();
    await addressIs('/?period=30d');
    await page().reload();
    await expect.poll(() => page().getByRole('radio', { name: '30 days' }).isChecked()).toBe(true);
    await goTo('/rate-limits?period=7d');
    const namespaces = () =>
      page().getByRole('region', { name: 'Namespaces' }).locator('tbody td:first-child').allTextContents();
    await expect.poll(namespaces).toEqual(['uploads', 'mails']);
    await page().getByRole('columnheader', { name: 'Created' }).getByRole('button').click();
    await expect.poll(namespaces).toEqual(['mails', 'uploads']);
    await addressIs('/rate-limits?period=7d&order=asc');
    await page().getByRole('link', { name: 'mails' }).first().click();
    await page().getByRole('heading', { level: 1, name: 'mails' }).waitFor();
    await page().getByText('90 days').click();
    await addressIs('/rate-limits/mails?period=90d');

    const { rootKey } = await h.createWorkspace();
    await goTo(`/keys?api=${pay}`);
    await page().getByLabel('Workspace').selectOption('Add a workspace …');
    await page().getByLabel('Root key').fill(rootKey);
    await page().keyboard.press('Enter');
    await page().getByText('There is no key yet').waitFor();
    await addressIs('/keys');
    await chooseApi('All APIs');
    await page().getByLabel('Workspace').selectOption({ index: 0 });
    await expect.poll(() => rows().count()).toBe(50);
  });

  test('changes and rankings are sorted by their headings', async () => {
    await ok('keys.verifyKey', { key: key.key });
    await open('/');
    await goTo('/access');
    const changes = page().getByRole('region', { name: 'Changes' });
    await changes.getByText('keys.createKey').first().waitFor();
    await changes.getByRole('columnheader', { name: 'Time' }).getByRole('button').click();
    await changes.getByRole('cell', { name: 'apis.createApi' }).first().waitFor();

    await goTo('/');
    const ranking = page().getByRole('region', { name: 'Largest keys' });
    const sent = page().waitForRequest((request) => request.postData()?.includes('"by":"refused"') ?? false);
    await ranking.getByRole('columnheader', { name: 'Refused' }).getByRole('button').click();
    expect((await sent).postDataJSON()).toMatchObject({ of: 'keys', by: 'refused' });
    const heading = ranking.getByRole('columnheader', { name: 'Refused' });
    await expect.poll(() => heading.getAttribute('aria-sort')).toBe('descending');
  });

  /** A list of 50,000 keys, of which each request examines 20,000 and finds one. */
  async function mockSearch(found = 1, wait = () => Promise.resolve()) {
    const requests: object[] = [];
    await page().route('**/v2/keys.listKeys', async (route: Route) => {
      const input = route.request().postDataJSON();
      if (!input.search) return route.continue();
      requests.push(input);
      const number = Number(input.cursor ?? 0);
      await wait();
      const { data } = await h.call('keys.listKeys', { limit: found });
      const pagination =
        number === 2
          ? { hasMore: false, looked: 10_000, total: 50_000 }
          : { hasMore: true, cursor: `${number + 1}`, looked: 20_000, total: 50_000 };
      const meta = { requestId: 'req_1' };
      const some = data.map((each) => ({ ...each, keyId: `${each.keyId}${number}`, name: `found ${number}` }));
      await route.fulfill({ json: { meta, data: some, pagination } });
    });
    return requests;
  }

  test('a large search goes on by itself, with progress and Stop', async () => {
    let go = () => {};
    const requests = await mockSearch(1, () => new Promise((resolve) => (go = resolve)));
    await open('/keys');
    await search().fill('found');
    await expect.poll(() => requests.length).toBe(1);
    go();
    await page().getByText('20,000 of 50,000 were examined.').waitFor();
    await expect.poll(names).toEqual(['found 0']);
    const bar = page().getByRole('progressbar', { name: 'Examined' });
    expect(await bar.getAttribute('value')).toBe('20000');
    await expect.poll(() => requests.length).toBe(2);
    await shot('search');
    const stop = page().getByRole('button', { name: 'Stop' });
    await stop.focus();
    await page().keyboard.press('Enter');
    await page().getByText('20,000 of 50,000 were examined. “Show more” continues.').waitFor();
    go();
    // The focus is where it was, on the button that goes on.
    await page().keyboard.press('Enter');
    await expect.poll(() => requests.length).toBe(3);
    go();
    await page().getByText('40,000 of 50,000 were examined.').waitFor();
    await expect.poll(() => requests.length).toBe(4);
    go();
    await expect.poll(names).toEqual(['found 0', 'found 1', 'found 2']);
    await page().getByText('were examined').waitFor({ state: 'detached' });
    expect(
      await page()
        .getByRole('button', { name: /Stop|Show more/ })
        .count(),
    ).toBe(0);
  });

  test('a search that finds enough ends, and one that fails says so and goes on from there', async () => {
    const requests = await mockSearch(50);
    await open('/keys');
    await search().fill('many');
    await page().getByText('found 0').first().waitFor();
    expect(await rows().count()).toBe(50);
    await page().getByRole('button', { name: 'Show more' }).waitFor();
    expect(requests).toHaveLength(1);
    await page().unroute('**/v2/keys.listKeys');
    const some = await mockSearch(1);
    let isAway = true;
    await page().route('**/v2/keys.listKeys', (route) =>
      isAway && route.request().postDataJSON().cursor ? route.abort() : route.fallback(),
    );
    await search().fill('some');
    await page().getByText('The server cannot be reached.').first().waitFor();
    await expect.poll(names).toEqual(['found 0']);
    isAway = false;
    await page().getByRole('button', { name: 'Show more' }).click();
    await expect.poll(names).toEqual(['found 0', 'found 1', 'found 2']);
    expect(some.at(-1)).toMatchObject({ cursor: '2' });
  });

  test('axe finds nothing in a sorted list, also on a phone', async () => {
    await open('/keys?order=expiry');
    await expect.poll(() => rows().count()).toBe(2);
    await looksRight('keys');
  });
});
