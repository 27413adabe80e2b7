// What a new user of the console looks for, in a real browser: a leaked key by its string, why a customer was
// refused, and access to one API for a colleague, who then uses it.

import { beforeAll, beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium, shots } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, goTo, violations, isWithinWidth } = consoleInChromium(h);
  let pay: string;
  let ada: { key: string; keyId: string };

  beforeAll(async () => {
    pay = (await ok('apis.createApi', { name: 'payments' })).apiId;
    const other = await ok('apis.createApi', { name: 'maps' });
    ada = await h.createKey({ apiId: pay, name: "Ada's key", externalId: 'ada', credits: { remaining: 3 } });
    const bob = await h.createKey({ ...other, name: "Bob's key", externalId: 'bob' });
    await ok('keys.verifyKey', { key: ada.key, permissions: 'documents.write' });
    await ok('keys.verifyKey', { key: ada.key, credits: { cost: 5 } });
    await ok('keys.verifyKey', { key: bob.key, permissions: 'documents.write' });
  });
  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const rows = (label: string) => page().getByRole('region', { name: label, exact: true }).locator('tbody tr');
  const dialog = () => page().getByRole('dialog');
  const button = (name: string) => page().getByRole('button', { name, exact: true });
  const query = () => new URL(page().url()).searchParams;

  test('a whole key string, as one that leaked, finds its key, and gets into no address', async () => {
    const addresses: string[] = [];
    page().on('framenavigated', (frame) => addresses.push(frame.url()));
    await open('/keys');
    const search = page().getByLabel('Search');
    await search.fill('no such key string');
    await page().getByText('No key matches').waitFor();
    await search.fill(ada.keyId);
    await expect.poll(() => rows('Keys').count()).toBe(1);
    await search.fill(`${ada.key}x`);
    await page().getByText('No key matches').waitFor();
    await search.fill(ada.key);
    await expect.poll(() => rows('Keys').count()).toBe(1);
    await page().setViewportSize({ width: 390, height: 800 });
    expect(await isWithinWidth()).toBe(true);
    expect(await violations()).toEqual([]);
    await shots(page(), 'find-its-key');
    await rows('Keys').getByRole('link', { name: "Ada's key" }).click();
    await page().getByRole('heading', { level: 1, name: "Ada's key" }).waitFor();
    expect(page().url()).toMatch(new RegExp(`/keys/${ada.keyId}$`));
    expect(addresses.join()).not.toContain(ada.key.slice(0, 12));
  });

  test('refusals of a customer: the address has the period, and asking again keeps it', async () => {
    await open('/customers/ada');
    await expect.poll(() => rows('Recent refusals').count()).toBe(2);
    const headings = page().getByRole('region', { name: 'Recent refusals' }).locator('th');
    expect(await headings.allTextContents()).not.toContain('Customer');
    const [from, to] = [page().getByLabel('From, UTC'), page().getByLabel('To, UTC')];
    const inAnHour = new Date(Date.now() + hourMs).toISOString().slice(0, 16);
    await from.fill(inAnHour);
    await page().getByText('Nothing was refused in this period').waitFor();
    await page().reload();
    await page().getByText('Nothing was refused in this period').waitFor();
    expect(await from.inputValue()).toBe(inAnHour.replace('T', ' '));
    await from.fill('');
    await to.fill(inAnHour);
    await expect.poll(() => rows('Recent refusals').count()).toBe(2);
    expect(await violations()).toEqual([]);
    await shots(page(), 'refusals-of-customer');
    await page().setViewportSize({ width: 390, height: 800 });
    expect(await isWithinWidth()).toBe(true);
    await page().setViewportSize({ width: 1280, height: 900 });
    await rows('Recent refusals').nth(1).getByRole('link', { name: 'Ask with this query' }).click();
    await page().getByText('The answer is Lacks permission').waitFor();
    expect(await to.inputValue()).toBe(inAnHour.replace('T', ' '));
    // Another period asks nothing again: what was typed stays.
    await page().getByLabel('Cost in credits').fill('7');
    await from.fill('2026-01-01T00:00');
    await expect.poll(() => query().get('from')).toBe('2026-01-01T00:00');
    expect(await page().getByLabel('Cost in credits').inputValue()).toBe('7');
    await button('Explain').click();
    await expect.poll(() => [...query().keys()].sort()).toEqual(['cost', 'from', 'permissions', 'to']);
  });

  test('access to one API: its grants only, and a console without errors', async () => {
    await open(`/apis/${pay}`);
    await button('Give access …').click();
    const grants = dialog().getByLabel('Grants');
    const given = ['read_api', 'read_key', 'read_analytics'].map((action) => `api.${pay}.${action}`);
    await expect.poll(() => grants.inputValue()).toBe(given.join('\n'));
    const choice = dialog().getByRole('combobox', { name: 'API' });
    await expect.poll(() => choice.inputValue()).toBe('payments');
    await dialog().getByLabel('For').selectOption('admin');
    expect(await grants.inputValue()).toContain(`api.${pay}.delete_key`);
    expect(await grants.inputValue()).not.toMatch(/\*|create_api/);
    expect(await violations()).toEqual([]);
    // Escape closes the choice, and not the dialog.
    await choice.click();
    await page().getByRole('option', { name: 'maps' }).waitFor();
    await page().keyboard.press('Escape');
    await expect.poll(() => page().getByRole('option', { name: 'maps' }).count()).toBe(0);
    await dialog().getByLabel('For').selectOption('reader');
    await dialog().getByRole('button', { name: 'Create' }).click();
    await dialog().getByRole('heading', { name: 'The new root key' }).waitFor();
    const colleague = (await dialog().locator('pre').textContent())!;
    await dialog().getByText('I have saved it in another way').click();
    await button('I have saved it').click();
    await page().evaluate('sessionStorage.clear()');

    await open('/keys', colleague);
    await expect.poll(() => rows('Keys').count()).toBe(1);
    await rows('Keys').getByText("Ada's key").waitFor();
    for (const path of ['/', '/attention', '/apis', '/bill', `/apis/${pay}`, `/keys/${ada.keyId}`]) {
      await goTo(path);
      await page().locator('main section.card').first().waitFor();
      await expect.poll(() => page().locator('main .waiting').count()).toBe(0);
      expect(await page().getByRole('alert').count(), path).toBe(0);
      expect(await page().locator('main').textContent(), path).not.toMatch(/may not do this|Bob's key/);
      expect(await violations(), path).toEqual([]);
    }
  });

  test('an API of which no list may be read is chosen by its id', async () => {
    await open('/live', await h.createRootKey(['api.*.read_analytics']));
    const addresses: string[] = [];
    page().on('framenavigated', (frame) => addresses.push(frame.url()));
    const field = page().getByRole('textbox', { name: 'API' });
    await field.fill(h.rootKey);
    await field.fill('api_1');
    await field.fill(pay);
    await expect.poll(() => addresses.map((address) => new URL(address).search)).toEqual([`?api=${pay}`]);
  });
});
