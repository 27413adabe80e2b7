// APIs in a real browser: a page of each, creation, a new name, deletion, and choices that search.

import { beforeAll, beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium, shots, viewport } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const markup = '<b>x</b>';

inChromium(() => {
  const { page, open, goTo, button, dialog, shot, violations, isWithinWidth, looksRight } = consoleInChromium(h);
  let [pay, mail] = ['', ''];

  beforeAll(async () => {
    mail = (await ok('apis.createApi', { name: 'mails' })).apiId;
    for (let number = 0; number < 130; number++) await ok('apis.createApi', { name: `service ${number}` });
    pay = (await ok('apis.createApi', { name: 'payments' })).apiId;
    for (const externalId of ['ada', 'grace']) {
      const { key } = await ok('keys.createKey', { apiId: pay, name: `${externalId}'s`, externalId });
      for (let times = 0; times < 3; times++) await ok('keys.verifyKey', { key });
      await ok('keys.verifyKey', { key, permissions: 'documents.read' });
    }
    const { key } = await ok('keys.createKey', { apiId: mail, externalId: 'mailer' });
    await ok('keys.verifyKey', { key });
  });
  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const heading = (name: string) => page().getByRole('heading', { level: 1, name, exact: true });
  const rows = (label: string) => page().getByRole('region', { name: label, exact: true }).locator('tbody tr');
  const combobox = () => page().getByRole('combobox', { name: 'API' });
  const path = () =>
    page()
      .url()
      .replace(/^.*\/console/, '');

  test('all APIs, with keys and verifications; search and order are in the address', async () => {
    const asked: string[] = [];
    let [pending, mostPending] = [0, 0];
    await page().route('**/v2/analytics.getVerifications', async (route) => {
      asked.push(route.request().postDataJSON().apiId);
      mostPending = Math.max(mostPending, ++pending);
      await route.continue();
    });
    page().on('requestfinished', (request) => request.url().endsWith('analytics.getVerifications') && pending--);
    await open('/apis');
    const first = rows('APIs').first();
    await expect.poll(() => first.textContent()).toMatch(/^paymentsapi_\w+282/);
    // Of the APIs that are displayed only, and few at a time.
    await expect.poll(() => asked.length).toBe(50);
    expect(new Set(asked).size).toBe(50);
    expect(mostPending).toBeLessThanOrEqual(2);
    await page().unroute('**/v2/analytics.getVerifications');
    await page().getByRole('columnheader', { name: 'Created' }).getByRole('button').click();
    await expect.poll(() => first.textContent()).toMatch(/^mails/);
    await looksRight('apis');
    await page().getByLabel('Search').fill('service 12');
    await expect.poll(() => rows('APIs').count()).toBe(11);
    expect(path()).toBe('/apis?order=asc&search=service+12');
    await page().reload();
    await expect.poll(() => rows('APIs').count()).toBe(11);
    await page().getByLabel('Search').fill('nothing');
    await page().getByText('No API matches').waitFor();
  });

  test('a page of an API: its chart, largest customers and keys, keys and changes, and nothing of others', async () => {
    await open('/apis');
    await page().getByRole('link', { name: 'payments' }).click();
    await heading('payments').waitFor();
    expect(path()).toBe(`/apis/${pay}`);
    const figure = page().locator('.figure', { hasText: 'Verifications' }).locator('.figure-value');
    await expect.poll(() => figure.textContent()).toBe('8');
    await expect.poll(() => rows('Largest customers').allTextContents()).toHaveLength(2);
    await expect.poll(() => rows('Largest keys').allTextContents()).toHaveLength(2);
    await expect.poll(() => rows('Newest keys').count()).toBe(2);
    await rows('Changes').getByText('apis.createApi').waitFor();
    expect(await page().locator('main').textContent()).not.toContain('mailer');
    await looksRight('api');
    await page().getByRole('link', { name: 'Search its keys' }).click();
    await expect.poll(() => combobox().inputValue()).toBe('payments');
    await goTo('/apis/api_unknown');
    await page().getByText('There is no API "api_unknown".').waitFor();
    await button('Try again').waitFor();
  });

  test('creates one, renames it, deletes it by its name, saying what is lost, and restores it', async () => {
    await open('/apis');
    await button('New API').click();
    await dialog().getByLabel('Name').fill('ab');
    expect(await dialog().getByRole('button', { name: 'Create' }).isDisabled()).toBe(true);
    await dialog().getByLabel('Name').fill(markup);
    await page().keyboard.press('Enter');
    await heading(markup).waitFor();
    const apiId = path().slice('/apis/'.length);
    expect((await ok('apis.getApi', { apiId })).name).toBe(markup);

    await button('Rename …').click();
    expect(await dialog().getByRole('button', { name: 'Rename' }).isDisabled()).toBe(true);
    await dialog().getByLabel('Name').fill('uploads');
    await dialog().getByText('Request').click();
    expect(await dialog().locator('pre').textContent()).toContain(`/v2/apis.updateApi`);
    await dialog().getByRole('button', { name: 'Rename' }).click();
    await heading('uploads').waitFor();
    await page().getByText('Changes').first().waitFor();
    await rows('Changes').locator('del', { hasText: markup }).waitFor();

    const { key } = await ok('keys.createKey', { apiId });
    await ok('keys.verifyKey', { key });
    await page().reload();
    await heading('uploads').waitFor();
    await button('Delete …').click();
    await dialog().getByText('Its key returns NOT_FOUND from the next request on. It can be restored').waitFor();
    await dialog().getByText('It is in use: 1 verification in the last 24 hours.').waitFor();
    await shot('api-delete');
    expect(await violations()).toEqual([]);
    const deletes = dialog().getByRole('button', { name: 'Delete' });
    expect(await deletes.isDisabled()).toBe(true);
    await dialog().getByLabel('Type uploads to confirm').fill('uploads');
    await deletes.click();
    await heading('APIs').waitFor();
    expect(await h.call('apis.getApi', { apiId })).toMatchObject({ status: 404 });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'NOT_FOUND' });
    await expect.poll(() => page().getByRole('link', { name: 'uploads' }).count()).toBe(0);

    await page().getByText('Deleted', { exact: true }).click();
    await rows('APIs').filter({ hasText: 'uploads' }).getByRole('button', { name: 'Restore …' }).click();
    await shot('api-restore');
    expect(await violations()).toEqual([]);
    await dialog().getByRole('button', { name: 'Restore' }).click();
    await page().getByText('No deleted API can be restored').waitFor();
    expect(path()).toBe('/apis?state=deleted');
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('Overview: of one API, which the address has', async () => {
    await open('/');
    const figure = page().locator('.figure', { hasText: 'Verifications' }).locator('.figure-value');
    await expect.poll(() => figure.textContent()).toMatch(/^(10|11)$/);
    await rows('Newest APIs').getByText('payments').waitFor();
    await combobox().click();
    await combobox().fill('mails');
    await page().getByRole('option', { name: 'mails' }).waitFor();
    await page().keyboard.press('Enter');
    await expect.poll(path).toBe(`/?api=${mail}`);
    await expect.poll(() => figure.textContent()).toBe('1');
    await expect.poll(() => rows('Largest customers').allTextContents()).toEqual([expect.stringContaining('mailer')]);
    await page().reload();
    await expect.poll(() => combobox().inputValue()).toBe('mails');
    await shot('overview-api');
    await combobox().click();
    await page().getByRole('option', { name: 'All APIs' }).click();
    await expect.poll(path).toBe('/');
  });

  test('a choice has all APIs by search, and the keyboard', async () => {
    await open('/new-key');
    await combobox().focus();
    await page().keyboard.press('ArrowDown');
    const options = page().locator('[role=option]');
    await expect.poll(() => options.count()).toBe(21);
    await page().getByText('There are others: type a part of the name or id.').waitFor();
    expect(await violations()).toEqual([]);
    await shots(page(), 'api-choice', [viewport]);
    await page().keyboard.press('ArrowUp');
    const chosen = () => page().locator('[role=option][aria-selected=true]');
    await expect.poll(() => chosen().textContent()).toMatch(/^service 11\d api_/);
    expect(await combobox().getAttribute('aria-activedescendant')).toBe(await chosen().getAttribute('id'));
    await page().keyboard.press('Escape');
    await expect.poll(() => options.count()).toBe(0);
    expect(await combobox().inputValue()).toBe('Choose …');
    // The oldest of 132, which no list of the newest has.
    let release = () => {};
    const isReleased = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page().route('**/v2/apis.listApis', async (route) => {
      await isReleased;
      await route.continue();
    });
    await page().keyboard.type('mail');
    // Before there is an answer it chooses nothing, and does not send the form.
    await page().keyboard.press('Enter');
    await page().getByText('Searching …').waitFor();
    release();
    await expect.poll(() => options.allTextContents()).toEqual([`mails ${mail}`]);
    await page().keyboard.press('Enter');
    expect(await combobox().inputValue()).toBe('mails');
    await button('Create key').click();
    await page().getByRole('heading', { name: 'The key is made' }).waitFor();
    await page().getByText('I have saved it in another way').click();
    await button('I have saved it').click();
    const { data } = await h.call('keys.listKeys', { apiId: mail });
    expect(data).toHaveLength(2);

    await goTo('/keys');
    await combobox().click();
    await combobox().fill('nothing like it');
    await page().getByText('No API matches.').waitFor();
    await page().route('**/v2/apis.listApis', (route) => route.abort());
    await combobox().fill('other');
    await page().getByText('The server cannot be reached.').first().waitFor();
    await page().unroute('**/v2/apis.listApis');
    await combobox().fill('payments');
    await page().getByRole('option', { name: 'payments' }).click();
    await expect.poll(path).toBe(`/keys?api=${pay}`);
    await combobox().click();
    await expect.poll(() => chosen().textContent()).toBe(`payments ${pay}`);
    await page().keyboard.press('Escape');
    await page().setViewportSize({ width: 390, height: 844 });
    await combobox().click();
    await expect.poll(() => options.count()).toBe(21);
    expect(await isWithinWidth()).toBe(true);
    await shot('api-choice-narrow');
  });

  test('a root key sees what its grants allow', async () => {
    const only = await h.createRootKey([`api.${pay}.read_api`, `api.${pay}.read_key`]);
    await open('/apis', only);
    await expect.poll(() => rows('APIs').allTextContents()).toEqual([`payments${pay}`]);
    await goTo(`/apis/${pay}`);
    await heading('payments').waitFor();
    await expect.poll(() => rows('Newest keys').count()).toBe(2);
    for (const name of ['Rename …', 'Delete …']) expect(await button(name).count()).toBe(0);
    expect(await page().locator('.chart').count()).toBe(0);
    await goTo(`/apis/${mail}`);
    await page().getByText(`api.${mail}.read_api`).waitFor();
    // The choice has the APIs that the grants name.
    await goTo('/keys');
    await expect.poll(() => rows('Keys').count()).toBe(2);
    expect(await page().getByLabel('API', { exact: true }).locator('option').allTextContents()).toEqual(['payments']);
  });
});
