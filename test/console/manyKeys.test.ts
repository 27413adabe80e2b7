// Many keys at once, in a real browser: they are chosen in a list, changed by a hundred, and changed back.

import { readFile } from 'node:fs/promises';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness } from '../support/harness.ts';

const h = harness();

inChromium(() => {
  const { page, open, dialog, looksRight } = consoleInChromium(h);
  let ok: Awaited<ReturnType<typeof h.openWorkspace>>['of'];
  let rootKey: string;
  let apiId: string;
  const ids: string[] = [];

  beforeAll(async () => {
    ({ rootKey, of: ok } = await h.openWorkspace());
    apiId = (await ok('apis.createApi', { name: 'payments' })).apiId;
    // The first 40 are of a customer, the last of which is disabled; 80 others follow.
    for (let number = 0; number < 120; number++) {
      const externalId = number < 40 ? 'umbrella-0003' : `other-${number}`;
      ids.push((await ok('keys.createKey', { apiId, name: `n${number}`, externalId, enabled: number !== 39 })).keyId);
    }
  });
  beforeEach(async () => {
    for (const [number, keyId] of ids.entries())
      await ok('keys.updateKey', { keyId, enabled: number !== 39, expires: null, planId: null }).catch(() =>
        ok('keys.restoreKey', { keyId }),
      );
  });

  const rows = () => page().getByRole('region', { name: 'Keys', exact: true }).locator('tbody tr');
  const row = (name: string) => rows().filter({ has: page().getByRole('link', { name, exact: true }) });
  const bar = () => page().getByRole('region', { name: 'Chosen keys' });
  const inBar = (name: string) => bar().getByRole('button', { name, exact: true });
  const inDialog = (name: string) => dialog().getByRole('button', { name, exact: true }).click();
  /** Disables what is chosen. Each request is held until the function that it returns is called. */
  async function disableHeld(): Promise<() => void> {
    let go = () => {};
    await page().route('**/v2/keys.changeKeys', async (route) => {
      await new Promise<void>((resolve) => (go = resolve));
      await route.continue();
    });
    await inBar('Disable …').click();
    await inDialog('Disable');
    return () => go();
  }
  const all = () => page().getByLabel('Choose all that are displayed');
  const message = () => page().locator('.message');
  const undo = () => message().getByRole('button', { name: 'Undo' });
  const states = async () => new Set(await rows().locator('[data-name=State]').allTextContents());
  const enabledOf = async (some: readonly string[]) =>
    (await Promise.all(some.map((keyId) => ok('keys.getKey', { keyId })))).filter(({ enabled }) => enabled).length;
  /** Ids and changes of the requests. */
  function changes() {
    const sent: { keyIds: string[]; change: object }[] = [];
    page().on('request', (request) => {
      if (request.url().endsWith('/keys.changeKeys')) sent.push(request.postDataJSON());
    });
    return sent;
  }

  test('40 keys of a customer in three clicks; rows have the answer at once; Undo enables those that it disabled', async () => {
    const sent = changes();
    await open('/keys?search=umbrella-0003', rootKey);
    await expect.poll(() => rows().count()).toBe(40);
    // A search that reads on for seconds must not delay what is displayed.
    await page().route('**/v2/keys.listKeys', () => {});
    await all().click();
    await bar().getByText('All 40 keys chosen').waitFor();
    await inBar('Disable …').click();
    await inDialog('Disable');
    await dialog().waitFor({ state: 'detached' });
    expect(await states()).toEqual(new Set(['Disabled']));
    await message().getByText('Disabled 39 keys. 1 key needed no change.').waitFor();
    expect(sent.map(({ keyIds, change }) => [keyIds.length, change])).toEqual([[40, { enabled: false }]]);
    expect(await enabledOf(ids.slice(0, 40))).toBe(0);
    await undo().click();
    await message().getByText('Undone for 39 keys.').waitFor();
    expect((await rows().locator('[data-name=State]').allTextContents()).filter((text) => text === 'Disabled')).toEqual(
      ['Disabled'],
    );
    expect(await enabledOf(ids.slice(0, 39))).toBe(39);
    expect((await ok('keys.getKey', { keyId: ids[39]! })).enabled).toBe(false);
    // The keys are chosen still.
    await inBar('Enable …').click();
    await inDialog('Enable');
    await message().getByText('Enabled 1 key. 39 keys needed no change.').waitFor();
  });

  test('Shift takes all up to the last one, also to take marks away; another search has no marks', async () => {
    await open('/keys?order=oldest', rootKey);
    const box = (name: string) => row(name).getByRole('checkbox');
    await box('n2').click();
    await box('n7').click({ modifiers: ['Shift'] });
    await bar().getByText('6 keys chosen').waitFor();
    await box('n5').click();
    await box('n3').click({ modifiers: ['Shift'] });
    await bar().getByText('3 keys chosen').waitFor();
    expect(await all().evaluate((box: { indeterminate?: boolean }) => box.indeterminate)).toBe(true);
    await box('n3').focus();
    await page().keyboard.press('Space');
    await bar().getByText('4 keys chosen').waitFor();
    await page().getByRole('searchbox').fill('n1');
    await bar().waitFor({ state: 'detached' });
  });

  test('all of a list, by requests of a hundred: the first in the dialog, the others behind the message', async () => {
    const sent = changes();
    await open('/keys?order=oldest', rootKey);
    await expect.poll(() => rows().count()).toBe(50);
    await all().click();
    await bar().getByText('50 keys chosen').waitFor();
    await inBar('All 120').click();
    await bar().getByText('All 120 keys chosen').waitFor();
    const go = await disableHeld();
    await expect.poll(() => sent.length).toBe(1);
    go();
    await message().getByText('100 of 120').waitFor();
    await dialog().waitFor({ state: 'detached' });
    expect(await undo().count()).toBe(0);
    // Another change waits for the end of this one.
    await inBar('Enable …').click();
    expect(await dialog().getByRole('button', { name: 'Enable', exact: true }).isDisabled()).toBe(true);
    await page().keyboard.press('Escape');
    await expect.poll(() => sent.length).toBe(2);
    go();
    await message().getByText('Disabled 119 keys. 1 key needed no change.').waitFor();
    await page().unroute('**/v2/keys.changeKeys');
    expect(await enabledOf(ids)).toBe(0);
    await undo().click();
    await message().getByText('Undone for 119 keys.').waitFor();
    expect(await enabledOf(ids)).toBe(119);
    expect(sent.map(({ keyIds }) => keyIds.length)).toEqual([100, 20, 100, 19]);
  });

  test('Stop ends it after the request that was sent, and Undo takes back what was done', async () => {
    const days = [100, 200, 300];
    for (const [at, number] of days.entries())
      await ok('keys.updateKey', { keyId: ids[at]!, expires: Date.now() + number * dayMs });
    const sent = changes();
    await open('/keys?order=oldest', rootKey);
    for (const name of ['n0', 'n1', 'n2']) await row(name).getByRole('checkbox').click();
    await inBar('Expire in …').click();
    await dialog().getByRole('button', { name: 'Never' }).click();
    await inDialog('Expire');
    let go = () => {};
    await page().route('**/v2/keys.changeKeys', async (route) => {
      await new Promise<void>((resolve) => (go = resolve));
      await route.continue();
    });
    // Each had another value, so each is a request.
    await undo().click();
    await message().getByText('0 of 3').waitFor();
    await message().getByRole('button', { name: 'Stop' }).click();
    await expect.poll(() => sent.length).toBe(2);
    go();
    await message().getByText('Undone for 1 key. Stopped after 1 of 3.').waitFor();
    await page().unroute('**/v2/keys.changeKeys');
    const expiring = async () =>
      (await Promise.all(ids.slice(0, 3).map((keyId) => ok('keys.getKey', { keyId })))).filter(
        ({ expires }) => expires,
      );
    expect((await expiring()).length).toBe(1);
    await undo().click();
    await message().getByText('Undone for 1 key.', { exact: true }).waitFor();
    expect(await expiring()).toEqual([]);
  });

  test('all of a search, whose number is known at its end', async () => {
    await open('/keys?search=other', rootKey);
    await expect.poll(() => rows().count()).toBe(50);
    await all().click();
    await inBar('All that match').click();
    await bar().getByText('All 80 keys chosen').waitFor();
    const saved = page().waitForEvent('download');
    await inBar('CSV').click();
    const lines = (await readFile(await (await saved).path(), 'utf8')).trim().split('\r\n');
    expect([lines.length, lines[1]!.includes(',payments,')]).toEqual([81, true]);
    await page().context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await inBar('Copy ids').click();
    const copied = await page().evaluate<string>('navigator.clipboard.readText()');
    expect(copied.split('\n').sort()).toEqual(ids.slice(40).sort());
    await inBar('Clear').click();
    await bar().waitFor({ state: 'detached' });
  });

  test('an expiry and a plan: Undo brings back the values that each key had', async () => {
    const [first, second, third] = ids as [string, string, string];
    const expires = Date.now() + 300 * dayMs;
    await ok('plans.createPlan', { planId: 'pro' });
    await ok('keys.updateKey', { keyId: first, expires, planId: 'pro' });
    await open('/keys?order=oldest', rootKey);
    for (const name of ['n0', 'n1', 'n2']) await row(name).getByRole('checkbox').click();
    await inBar('Expire in …').click();
    await dialog().getByRole('button', { name: '30 days' }).click();
    await inDialog('Expire');
    await message().getByText('Changed the expiry of 3 keys.').waitFor();
    await row('n1')
      .getByText(/in 29 days|in 30 days|in 1 month/)
      .waitFor();
    const set = await Promise.all([first, second, third].map((keyId) => ok('keys.getKey', { keyId })));
    expect(set.every((key) => Math.abs(key.expires! - Date.now() - 30 * dayMs) < 600_000)).toBe(true);
    await undo().click();
    await message().getByText('Undone for 3 keys.').waitFor();
    expect((await ok('keys.getKey', { keyId: first })).expires).toBe(expires);
    expect((await ok('keys.getKey', { keyId: second })).expires).toBeUndefined();

    await inBar('Plan …').click();
    await dialog().getByLabel('Plan').fill('none_such');
    await inDialog('Set');
    await dialog().getByRole('alert').waitFor();
    await dialog().getByLabel('Plan').fill('pro');
    await inDialog('Set');
    await message().getByText('Changed the plan of 2 keys. 1 key needed no change.').waitFor();
    expect((await ok('keys.getKey', { keyId: third })).planId).toBe('pro');
    await undo().click();
    await message().getByText('Undone for 2 keys.').waitFor();
    expect((await ok('keys.getKey', { keyId: third })).planId).toBeUndefined();
    expect((await ok('keys.getKey', { keyId: first })).planId).toBe('pro');
  });

  test('a deletion is confirmed by the number; deleted keys are restored together', async () => {
    await open('/keys?order=oldest', rootKey);
    for (const name of ['n50', 'n51']) {
      await page().getByRole('searchbox').fill('n5');
      await row(name).getByRole('checkbox').click();
    }
    await inBar('Delete …').click();
    const deletes = dialog().getByRole('button', { name: 'Delete', exact: true });
    expect(await deletes.isDisabled()).toBe(true);
    await dialog().getByLabel('Type 2 to confirm').fill('2');
    await deletes.click();
    await message().getByText('Deleted 2 keys.').waitFor();
    await expect.poll(() => rows().filter({ hasText: 'Deleted' }).count()).toBe(2);
    await page().getByLabel('State').selectOption('Deleted');
    await expect.poll(() => rows().count()).toBe(2);
    await all().click();
    expect(await inBar('Disable …').count()).toBe(0);
    await inBar('Restore …').click();
    await inDialog('Restore');
    await message().getByText('Restored 2 keys.').waitFor();
    expect(await enabledOf(ids.slice(50, 52))).toBe(2);
  });

  test('keys that cannot be changed are named, and the message stays', async () => {
    await open('/keys?order=oldest', rootKey);
    for (const name of ['n0', 'n1']) await row(name).getByRole('checkbox').click();
    await ok('keys.deleteKey', { keyId: ids[0]! });
    await inBar('Disable …').click();
    await inDialog('Disable');
    await message().getByText('Disabled 1 key.').waitFor();
    await message().getByText('1 key could not be changed').click();
    await message().getByText(ids[0]!).waitFor();
    await looksRight('many-failed');
    await ok('keys.restoreKey', { keyId: ids[0]! });
  });

  test('an error: what was done is kept, and Try again does the rest', async () => {
    await open('/keys', rootKey);
    await all().click();
    await inBar('All 120').click();
    await bar().getByText('All 120 keys chosen').waitFor();
    let isAway = false;
    await page().route('**/v2/keys.changeKeys', async (route) => {
      if (isAway) return route.abort();
      isAway = true;
      await route.continue();
    });
    await inBar('Disable …').click();
    await inDialog('Disable');
    await message().getByText('The server cannot be reached.').waitFor();
    await message().getByText('Disabled 99 keys. 1 key needed no change.').waitFor();
    await page().unroute('**/v2/keys.changeKeys');
    await message().getByRole('button', { name: 'Try again' }).click();
    await message().getByText('Disabled 119 keys. 1 key needed no change.').waitFor();
    await undo().click();
    await message().getByText('Undone for 119 keys.').waitFor();
  });

  /** Requests are done by the server, and their responses lost, as long as this is on. */
  async function losing() {
    let isOn = true;
    await page().route('**/v2/keys.changeKeys', async (route) => {
      const response = await route.fetch();
      if (isOn) await route.fulfill({ status: 503, json: { error: { detail: 'It took too long.' } } });
      else await route.fulfill({ response });
    });
    return () => (isOn = false);
  }
  const doubt = 'It is not known whether 20 keys changed. Undo leaves out what is not known.';

  test('a lost response: it is not known what was done, also after Try again, and Undo says so', async () => {
    await open('/keys?order=oldest', rootKey);
    await expect.poll(() => rows().count()).toBe(50);
    await all().click();
    await inBar('All 120').click();
    await bar().getByText('All 120 keys chosen').waitFor();
    let number = 0;
    await page().route('**/v2/keys.changeKeys', async (route) => {
      const response = await route.fetch();
      if (number++ === 1) await route.abort();
      else await route.fulfill({ response });
    });
    await inBar('Disable …').click();
    await inDialog('Disable');
    await message().getByText('The server cannot be reached.').waitFor();
    await message().getByText(`Disabled 99 keys. 1 key needed no change. ${doubt}`, { exact: true }).waitFor();
    await message().getByRole('button', { name: 'Try again' }).click();
    await message().getByRole('alert').waitFor({ state: 'detached' });
    await message().getByText(`Disabled 99 keys. 1 key needed no change. ${doubt}`, { exact: true }).waitFor();
    expect(await enabledOf(ids)).toBe(0);
    await looksRight('many-lost');
    await undo().click();
    await message().getByText('Undone for 99 keys.').waitFor();
    expect(await enabledOf(ids)).toBe(99);
  });

  test('a lost response of the first request: the rows have what was done, and the message what is in doubt', async () => {
    await open('/keys?order=oldest', rootKey);
    for (const name of ['n0', 'n1']) await row(name).getByRole('checkbox').click();
    const stop = await losing();
    await inBar('Disable …').click();
    await inDialog('Disable');
    await message().getByText('It took too long.').waitFor();
    await dialog().waitFor({ state: 'detached' });
    const text = 'Disabled 0 keys. It is not known whether 2 keys changed. Undo leaves out what is not known.';
    await message().getByText(text, { exact: true }).waitFor();
    for (const name of ['n0', 'n1']) await row(name).getByText('Disabled').waitFor();
    stop();
    await message().getByRole('button', { name: 'Try again' }).click();
    await message().getByRole('alert').waitFor({ state: 'detached' });
    await message().getByText(text, { exact: true }).waitFor();
    expect(await undo().count()).toBe(0);
  });

  test.each([
    ['Escape', () => page().keyboard.press('Escape')],
    ['Cancel', () => inDialog('Cancel')],
    ['Back', () => page().goBack()],
  ])('%s while the first hundred is under way is Stop, and closes no later dialog', async (_, leave) => {
    const sent = changes();
    await open('/', rootKey);
    await page().getByRole('link', { name: 'Keys', exact: true }).first().click();
    await expect.poll(() => rows().count()).toBe(50);
    await all().click();
    await inBar('All 120').click();
    await bar().getByText('All 120 keys chosen').waitFor();
    const go = await disableHeld();
    await expect.poll(() => sent.length).toBe(1);
    await leave();
    await dialog().waitFor({ state: 'detached' });
    await message().getByText('0 of 120').waitFor();
    // Not before the end of this one.
    const isHere = await inBar('Enable …').isVisible();
    if (isHere) await inBar('Enable …').click();
    const enables = dialog().getByRole('button', { name: 'Enable', exact: true });
    if (isHere) expect(await enables.isDisabled()).toBe(true);
    go();
    await message().getByText('Stopped after 100 of 120.').waitFor();
    if (isHere) await expect.poll(() => enables.isDisabled()).toBe(false);
    if (isHere) await page().keyboard.press('Escape');
    await page().unroute('**/v2/keys.changeKeys');
    expect(sent.length).toBe(1);
    await undo().click();
    await message().getByText('Undone for').waitFor();
    expect(await enabledOf(ids)).toBe(119);
  });

  test('what the server refuses is an error of the dialog, and the message before stays with its Undo', async () => {
    await open('/keys?order=oldest', rootKey);
    await row('n0').getByRole('checkbox').click();
    await inBar('Disable …').click();
    await inDialog('Disable');
    await message().getByText('Disabled 1 key.').waitFor();
    await inBar('Plan …').click();
    await dialog().getByLabel('Plan').fill('none_such');
    await inDialog('Set');
    await dialog().getByRole('alert').waitFor();
    expect(await message().getByRole('alert').count()).toBe(0);
    await page().keyboard.press('Escape');
    await page().getByRole('button', { name: 'Leave', exact: true }).click();
    await undo().click();
    await message().getByText('Undone for 1 key.').waitFor();
    expect((await ok('keys.getKey', { keyId: ids[0]! })).enabled).toBe(true);
  });

  test('the message stays for ten seconds, and longer under the pointer', async () => {
    await page().clock.install();
    await open('/keys?order=oldest', rootKey);
    await row('n0').getByRole('checkbox').click();
    await inBar('Disable …').click();
    await inDialog('Disable');
    await undo().hover();
    await page().clock.runFor(30_000);
    expect(await undo().count()).toBe(1);
    await page().mouse.move(700, 5);
    await page().clock.runFor(8000);
    expect(await undo().count()).toBe(1);
    await page().clock.runFor(3000);
    await message().waitFor({ state: 'detached' });
  });

  test('a customer: all keys are disabled, and enabled again', async () => {
    await open('/customers/umbrella-0003', rootKey);
    await page().getByRole('button', { name: 'Disable all keys …' }).click();
    await inDialog('Disable');
    await message().getByText('Disabled 39 keys. 1 key needed no change.').waitFor();
    await expect.poll(states).toEqual(new Set(['Disabled']));
    await undo().click();
    await message().getByText('Undone for 39 keys.').waitFor();
    await bar().getByText('All 40 keys chosen').waitFor();
    await rows().first().getByRole('checkbox').click();
    await bar().getByText('39 keys chosen').waitFor();
    await looksRight('customer-many');
  });

  test('Attention: keys of several lists', async () => {
    for (const [at, days] of [
      [0, 3],
      [1, -3],
    ] as const)
      await ok('keys.updateKey', { keyId: ids[at]!, expires: Date.now() + days * dayMs });
    await open('/attention', rootKey);
    for (const list of ['Expiring within 30 days', 'Expired'])
      await page().getByRole('region', { name: list, exact: true }).getByRole('checkbox').last().click();
    await bar().getByText('2 keys chosen').waitFor();
    await inBar('Expire in …').click();
    await dialog().getByRole('button', { name: 'Never' }).click();
    await inDialog('Expire');
    await message().getByText('Changed the expiry of 2 keys.').waitFor();
    expect((await ok('keys.getKey', { keyId: ids[1]! })).expires).toBeUndefined();
  });

  test('what the grants exclude is not offered', async () => {
    const grants = ['read_key', 'read_api', 'update_key'].map((action) => `api.*.${action}`);
    const { key } = await ok('rootKeys.createRootKey', { permissions: grants });
    await open('/keys', key);
    await row('n119').getByRole('checkbox').click();
    await inBar('Enable …').waitFor();
    expect(await inBar('Delete …').count()).toBe(0);
    await page().getByLabel('State').selectOption('Deleted');
    await expect.poll(() => page().getByRole('checkbox').count()).toBe(0);
  });

  test('on a wide and a narrow screen, in both themes, axe finds nothing in the bar and the dialog', async () => {
    await open('/keys?order=oldest', rootKey);
    await all().click();
    await looksRight('many');
    await inBar('Expire in …').click();
    await looksRight('many-expire');
  });
});
