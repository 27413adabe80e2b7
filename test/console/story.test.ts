// The console in a real browser, as an administrator uses it: from an empty workspace to a rotated key. Each screen is
// examined by axe in both themes, with hostile data in every field. SCREENSHOTS=<folder> keeps a picture of each.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { BrowserContext, Page, Request } from 'playwright-core';
import { beforeAll, describe, expect, test } from 'vitest';
import { inChromium, isWithinWidth, serverAndBrowser, viewport, violationsOf } from '../support/chromium.ts';
import { type Client, openClient } from '../support/client.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const markup = '<img src=x onerror="document.title=\'owned\'">';

let context: BrowserContext;
let page: Page;
/** Errors of the browser, and the addresses that it requests. */
const complaints: string[] = [];
const asked: string[] = [];
let rootKey: string;

inChromium(() => {
  const { url, browser } = serverAndBrowser(h);
  beforeAll(async () => {
    rootKey = (await h.createWorkspace()).rootKey;
    context = await browser().newContext({ viewport });
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    page = await context.newPage();
    page.setDefaultTimeout(40_000);
    page.on('console', (message) => complaints.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => asked.push(request.url()));
  });

  const call: Client['ok'] = (name, input, as = rootKey) => openClient(url, as).ok(name, input);

  const heading = (name: string | RegExp) => page.getByRole('heading', { level: 1, name });
  const goTo = async (screen: string) => {
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: screen, exact: true }).click();
    await heading(screen).waitFor();
  };
  const inDialog = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  const button = (name: string | RegExp) => page.getByRole('button', { name });

  test('signs in, and says why it does not', async () => {
    await page.goto(`${url()}/`);
    await page.getByLabel('Root key').fill('root_none');
    await button('Sign in').click();
    await page.getByRole('alert').waitFor();
    await page.getByLabel('Root key').fill(rootKey);
    await page.keyboard.press('Enter');
    await heading('Welcome to Tollgate').waitFor();
    complaints.length = 0;
  });

  test('an empty workspace: an API, a key, and its first verification arrives', async () => {
    expect(await page.getByLabel('Prefix of its key').inputValue()).toBe('pay');
    await page.getByLabel('Prefix of its key').fill('first');
    await button('Make both').click();
    const key = await page.locator('.snippet pre').first().textContent();
    await page.getByText('Waiting for the first verification').waitFor();
    const commands = [];
    for (const name of ['Copy in full', 'Copy as curl']) {
      await button(name).click();
      commands.push(await page.evaluate<string>('navigator.clipboard.readText()'));
    }
    const { stdout } = await promisify(execFile)('sh', ['-c', commands.join('\n')]);
    expect(JSON.parse(stdout).data).toMatchObject({ valid: true });
    expect(commands[1]).toContain(key);
    await page.getByText('The first verification has arrived: 999 credits are left.').waitFor();
    await button('Copy key').click();
    await button('I have saved it').click();
    await page.getByRole('link', { name: 'See the key' }).click();
    await heading('My first key').waitFor();
    await page.getByText('1 of 10').waitFor();
  });

  let key: { keyId: string; key: string };
  test('a new key is displayed once, appears in Live, and is found', async () => {
    await goTo('New key');
    await page.getByLabel('Name', { exact: true }).first().fill(markup);
    await page.getByLabel('Customer (externalId)').fill('customer_42');
    await page.getByLabel('Prefix').fill('pay');
    await page.getByLabel('Units').fill('2');
    await page.getByLabel('In any').fill('1 minute');
    await page.getByText('At least 1 s: 10 s, 1 min, 1 h.').waitFor();
    expect(await button('Create key').isDisabled()).toBe(true);
    await page.getByLabel('In any').fill('1 min');
    await page.getByLabel('Customer (externalId)').fill('ada@example.com');
    await button('Create key').click();
    expect(await page.locator('input:invalid').inputValue()).toBe('ada@example.com');
    await page.getByLabel('Customer (externalId)').fill('customer_42');
    await button('Create key').click();
    await heading('The key is made').waitFor();
    const string = (await page.locator('.snippet pre').first().textContent())!;
    key = { key: string, keyId: (await call('keys.whoami', { key: string })).keyId! };
    expect(string).toMatch(/^pay_/);
    await button('Copy key').click();
    await button('I have saved it').click();
    await page.getByRole('link', { name: 'To the key' }).waitFor();

    await page.getByRole('link', { name: 'See its verifications as they happen' }).click();
    await heading('Live').waitFor();
    expect(await page.getByLabel('Key id').inputValue()).toBe(key.keyId);
    await page.locator('.badge.good', { hasText: 'Live' }).waitFor();
    for (let count = 0; count < 3; count++) await call('keys.verifyKey', { key: string, tags: [markup] });
    await page.locator('.badge', { hasText: 'Rate limited' }).waitFor();
    expect(await page.getByRole('link', { name: markup, exact: true }).count()).toBe(3);
    expect(await page.getByTitle(key.keyId).count()).toBe(3);

    await goTo('Keys');
    await page.keyboard.press('/');
    await page.keyboard.type('PAY_');
    await expect.poll(() => page.locator('tbody tr').count()).toBe(1);
    await page.getByText(markup).waitFor();
  });

  test('Explain names the rule that refuses, and charges nothing', async () => {
    await page.getByRole('link', { name: markup, exact: true }).click();
    await heading(markup).waitFor();
    await page.getByRole('link', { name: 'Explain' }).last().click();
    await page.getByText('The answer is').waitFor();
    await page.getByText('refuses').waitFor();
    await page.getByText('requests: 2 of 2 in any 1 min are used, the cost is 1.').waitFor();
    await page.getByText('2 of 2', { exact: true }).waitFor();
    const refusals = page.getByLabel('Recent refusals').locator('tbody tr');
    await expect.poll(() => refusals.first().textContent()).toMatch(/Rate limited.*: 2 in any 1 min/);
  });

  test('raises a limit, and the next verification is VALID', async () => {
    await page.getByRole('link', { name: 'To the key' }).click();
    await page.getByRole('heading', { level: 2, name: 'Limits' }).waitFor();
    await page
      .locator('section', { has: page.getByRole('heading', { name: 'Limits' }) })
      .getByText('Edit')
      .click();
    await page.getByLabel('Units').fill('5');
    await button('Save').click();
    await page.getByText('5 in any 1 min').waitFor();
    expect((await call('keys.verifyKey', { key: key.key })).code).toBe('VALID');
  });

  test('disables, enables, and rotates with a grace period', async () => {
    await button('Disable …').click();
    await inDialog('Disable');
    await page.getByText('Disabled', { exact: true }).waitFor();
    expect((await call('keys.verifyKey', { key: key.key })).code).toBe('DISABLED');
    await button('Enable …').click();
    await inDialog('Enable');
    await page.getByText('Enabled', { exact: true }).waitFor();
    await button('Rotate …').click();
    await inDialog('Make the new key');
    const rotated = await page.getByRole('dialog', { name: 'The new key' }).locator('pre').textContent();
    expect((await call('keys.verifyKey', { key: rotated! })).code).toBe('VALID');
    await page.getByText('The old key was not used since.').waitFor();
    h.clock.advance(1);
    await call('keys.verifyKey', { key: key.key });
    await page.getByText('The old key was used once since').waitFor();
    await inDialog('Copy key');
    await inDialog('I have saved it');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const changes = page.getByRole('region', { name: 'Changes' });
    await changes.getByText(/^expires: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/).waitFor();
    await changes.locator('del', { hasText: 'requests 2 per 1 min, autoApply' }).first().waitFor();
    await changes.getByRole('link', { name: /^key_/ }).click();
    await expect.poll(() => page.url()).not.toContain(key.keyId);
    await page.goBack();
    await expect.poll(() => page.url()).toContain(key.keyId);
    expect(await page.locator('dt:text("Replaced by") + dd').textContent()).toBe(markup);
    await goTo('Attention');
    const stillUsed = page.getByRole('region', { name: 'Rotated, and still used' });
    await stillUsed.getByRole('link').first().click();
    await expect.poll(() => page.url()).toContain(key.keyId);
  });

  test('deletes only what is named, and restores it', async () => {
    await button('Delete …').click();
    const deletes = page.getByRole('dialog').getByRole('button', { name: 'Delete' });
    expect(await deletes.isDisabled()).toBe(true);
    await page.getByLabel(/^Type/).fill(markup);
    await deletes.click();
    await heading('Keys').waitFor();
    expect((await call('keys.verifyKey', { key: key.key })).code).toBe('NOT_FOUND');
    await page.getByLabel('State').selectOption('Deleted');
    await button('Restore …').click();
    await inDialog('Restore');
    await page.getByText('No key matches').waitFor();
    expect((await call('keys.verifyKey', { key: key.key })).code).toBe('VALID');
  });

  test('System: figures of Redis, of the sweeper and of the workspace', async () => {
    const status = await call('system.getStatus', {});
    await goTo('System');
    await page.getByText(status.versions.redis!, { exact: true }).first().waitFor();
    await page.getByRole('cell', { name: 'eviction', exact: true }).waitFor();
    expect(await page.getByRole('row').count()).toBe(status.redis.checks.length + 3 + 2);
    const ofKeys = page.locator('dt', { hasText: 'Keys, with deleted ones' }).locator('+ dd');
    // What it displayed before is replaced when the response arrives.
    await expect.poll(() => ofKeys.textContent()).toBe(`${status.stored.keys}`);
    await page.getByText(/^\d+ in \d+ (min|s)/).waitFor();
    const roundTrip = page.locator('.figure', { hasText: 'From the server to Redis' }).locator('.figure-value');
    expect(await roundTrip.textContent()).toMatch(/^\d+\.\d\d ms$/);
    const { key: few } = await call('rootKeys.createRootKey', { permissions: ['api.*.read_api'] });
    const other = await browser().newPage();
    await other.goto(`${url()}/console/system`);
    await other.getByLabel('Root key').fill(few!);
    await other.keyboard.press('Enter');
    await other.getByText('system.*.read_status').waitFor();
    await other.close();
  });

  test('Keys: one request for the verifications of all rows of the page', async () => {
    const sent: string[] = [];
    const listener = (request: Request) => {
      if (request.url().endsWith('/analytics.getVerifications')) sent.push(request.postData()!);
    };
    page.on('request', listener);
    await goTo('Keys');
    // The list of an earlier visit, with one key less, is displayed until the new one arrives.
    await expect.poll(() => page.locator('tbody tr').count()).toBe(3);
    await page
      .getByRole('img', { name: /^[1-9]\d* verifications in 7 days$/ })
      .first()
      .waitFor();
    const links = await page.locator('tbody a[href*="/keys/key_"]').all();
    const ids = await Promise.all(links.map(async (link) => (await link.getAttribute('href'))!.split('/').at(-1)));
    await expect.poll(() => JSON.parse(sent.at(-1)!).keyIds).toEqual(ids);
    page.off('request', listener);
    expect(sent.length).toBeLessThanOrEqual(2);
  });

  test('Overview: the latency of recent decisions', async () => {
    await goTo('Overview');
    const latency = page.locator('.figure', { hasText: 'Median latency' });
    // A median of a few requests is not displayed.
    await expect.poll(() => latency.textContent()).toMatch(/[\d.]+ msp99 [\d.]+ ms$|–fewer than 20 decisions lately$/);
  });

  test('charts follow a change of the theme', async () => {
    await goTo('Overview');
    const drawn = () => page.locator('.chart canvas').evaluate((canvas: Canvas) => canvas.toDataURL());
    await page.emulateMedia({ colorScheme: 'light' });
    await page.getByLabel('Theme').selectOption('Light');
    await page.locator('.chart canvas').waitFor();
    const light = await drawn();
    await page.getByLabel('Theme').selectOption('Dark');
    await expect.poll(drawn).not.toBe(light);
    await page.getByLabel('Theme').selectOption('System theme');
    await expect.poll(drawn).toBe(light);
    await page.emulateMedia({ colorScheme: 'dark' });
    await expect.poll(drawn).not.toBe(light);
    await page.emulateMedia({ colorScheme: 'light' });
  });

  test('a limit of the customer: shared, unless the key has its own of that name', async () => {
    await goTo('Keys');
    await page.getByRole('link', { name: 'customer_42' }).first().click();
    await heading('customer_42').waitFor();
    const limits = page.locator('section', { has: page.getByRole('heading', { name: 'Limits that all keys share' }) });
    await limits.getByRole('button', { name: 'Edit' }).click();
    await button('Add a limit').click();
    await button('Save').click();
    await limits.getByText('100 in any 1 min').waitFor();
    // The only key does not use it, so there is nothing to display.
    expect(await limits.getByRole('meter').count()).toBe(0);
    const { apiId } = await call('keys.getKey', { keyId: key.keyId });
    const other = await call('keys.createKey', { apiId, externalId: 'customer_42' });
    await call('keys.verifyKey', { key: other.key });
    await limits.getByText('1 of 100').waitFor({ timeout: 20_000 });
    await page.getByRole('link', { name: markup, exact: true }).first().click();
    await page.getByText('of the customer: not used, the key has its own').waitFor();
  });

  test('copies in a page that another machine serves without TLS, where browsers have no clipboard', async () => {
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })");
    await button('Rotate …').click();
    await page.getByRole('dialog').getByText('Request').click();
    await inDialog('Copy as curl');
    await page.getByRole('dialog').getByText('Copied').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.evaluate('delete navigator.clipboard');
    expect(await page.evaluate('navigator.clipboard.readText()')).toContain('/v2/keys.rerollKey');
  });

  test('keyboard: a dialog begins in its first field, and / goes to the search of the screen, or finds', async () => {
    const focused = page.locator(':focus');
    await button('Rotate …').press('Enter');
    await expect.poll(() => focused.evaluate(({ tagName }) => tagName)).toBe('SELECT');
    await page.keyboard.press('Escape');
    await expect.poll(() => focused.textContent()).toBe('Rotate …');
    await goTo('Overview');
    await expect.poll(() => focused.getAttribute('id')).toBe('main');
    await page.keyboard.press('/');
    await expect.poll(() => focused.getAttribute('aria-label')).toBe('Find');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('g');
    await page.keyboard.press('k');
    await heading('Keys').waitFor();
    await page.keyboard.press('/');
    await expect.poll(() => focused.getAttribute('id')).toBe('key-search');
  });

  test('data that cannot be loaded again is marked, until it can; figures keep their height', async () => {
    await goTo('Overview');
    const figure = page.locator('.figure').first();
    await figure.getByText('no full period before').waitFor();
    const height = await figure.evaluate(({ clientHeight }) => clientHeight);
    await page.route('**/v2/**', (route) => route.abort());
    await page.getByText(/^The server cannot be reached. The data of this screen is of [\d:]{8} UTC.$/).waitFor();
    await page.getByRole('radio', { name: '90 days' }).check({ force: true });
    await page.getByRole('button', { name: 'Try again' }).first().waitFor();
    expect(await figure.evaluate(({ clientHeight }) => clientHeight)).toBe(height);
    await page.unroute('**/v2/**');
    await page.locator('.stale').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Try again' }).first().waitFor({ state: 'detached' });
    complaints.length = 0;
  });

  test('Live: a filter is sent when typing ends, not with every letter', async () => {
    await goTo('Live');
    const sent: string[] = [];
    const listener = (request: Request) => {
      // The page may still ask without a filter, as it does when it opens.
      const body = request.url().endsWith('/analytics.tail') ? request.postData()! : '{}';
      if (body !== '{}') sent.push(body);
    };
    page.on('request', listener);
    const text = `${key.keyId}`;
    // At once, as the console refuses an id that is too short.
    await page.getByLabel('Key id').fill(text.slice(0, -8));
    await expect.poll(() => sent).toEqual([JSON.stringify({ keyId: text.slice(0, -8) })]);
    await page.getByLabel('Key id').press('End');
    await page.getByLabel('Key id').pressSequentially(text.slice(-8), { delay: 5 });
    await expect.poll(() => sent.at(-1)).toBe(JSON.stringify({ keyId: text }));
    page.off('request', listener);
    // 2, but a busy machine may stop in the middle of the typing.
    expect(sent.length).toBeLessThan(5);
  });

  test('Attention: searches go on by themselves, and none claims that no key matches before all were examined', async () => {
    const some = { keys: [], hasMore: true, cursor: 'more', looked: 20_000, total: 1_000_000 };
    const data = { creditsBelow: some, unusedSince: some, rerolledInUse: some };
    const envelope = { meta: { requestId: 'req_1' } };
    const requests: string[] = [];
    await page.route('**/v2/keys.getAttention', async (route) => {
      requests.push(Object.keys(route.request().postDataJSON()).join());
      await route.fulfill({ json: { ...envelope, data } });
    });
    const held: (() => void)[] = [];
    await page.route('**/v2/keys.listKeys', async (route) => {
      const input = route.request().postDataJSON();
      requests.push(Object.keys(input).join());
      if (input.cursor) await new Promise<void>((resolve) => held.push(resolve));
      const pagination = { hasMore: false, looked: 1_000_000, total: 1_000_000 };
      await route.fulfill({ json: { ...envelope, data: [], pagination } });
    });
    await goTo('Attention');
    await page.getByRole('heading', { name: 'Most refused keys of 24 hours' }).waitFor();
    await expect.poll(() => page.getByText('20,000 of 1,000,000 were examined.').count()).toBe(3);
    for (const text of ['No key expires soon', 'No key has expired']) await page.getByText(text).waitFor();
    for (const text of ['No old key is used any more', 'No key is short of credits', 'Every key was used lately'])
      expect(await page.getByText(text).count()).toBe(0);
    await page.getByRole('button', { name: 'Stop' }).last().click();
    await page.getByText('20,000 of 1,000,000 were examined, and none matches. “Show more” continues.').waitFor();
    // One list after the other, and not the one that was stopped.
    expect(held).toHaveLength(1);
    held[0]!();
    await page.getByText('No old key is used any more').waitFor();
    await expect.poll(() => held.length).toBe(2);
    held[1]!();
    await page.getByText('No key is short of credits').waitFor();
    expect(await page.getByText('Every key was used lately').count()).toBe(0);
    await page.getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => held.length).toBe(3);
    held[2]!();
    await page.getByText('Every key was used lately').waitFor();
    expect(requests.sort()).toEqual([
      'creditsBelow,limit,cursor',
      'creditsBelow,unusedSince,rerolledInUse,limit',
      'expiresAfter,expiresBefore,limit',
      'expiresBefore,order,limit',
      'rerolledInUse,limit,cursor',
      'unusedSince,limit,cursor',
    ]);
    for (const name of ['getAttention', 'listKeys']) await page.unroute(`**/v2/keys.${name}`);
  });

  test('all of it is in the audit', async () => {
    await goTo('Access');
    for (const operation of ['keys.restoreKey', 'keys.deleteKey', 'keys.rerollKey', 'keys.updateKey']) {
      await page.getByRole('cell', { name: operation }).first().waitFor();
    }
    const { rootKeyId } = await call('rootKeys.whoami', {});
    // Playwright compares a string without regard to case, and ids may differ in it only.
    for (const [name, isMine] of [
      [new RegExp(rootKeyId!), true],
      [/api\.\*\.read_api/, false],
    ] as const) {
      const row = page.getByRole('region', { name: 'Root keys' }).getByRole('row').filter({ hasText: name });
      await row.getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('dialog', { name: /^Delete root_/ }).waitFor();
      expect(await page.getByText('the console will sign out').count()).toBe(isMine ? 1 : 0);
      await inDialog('Cancel');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    }
  });

  test('a root key with few grants sees what they allow', async () => {
    const { key: few } = await call('rootKeys.createRootKey', { permissions: ['api.*.read_key', 'api.*.read_api'] });
    const other = await browser().newPage();
    await other.goto(`${url()}/console`);
    await other.getByLabel('Root key').fill(few!);
    await other.keyboard.press('Enter');
    await other.getByText('it lacks the grant').waitFor();
    await other.getByRole('link', { name: 'Keys', exact: true }).click();
    await other.getByRole('table').waitFor();
    expect(await other.getByRole('link', { name: 'New key', exact: true }).count()).toBe(0);
    expect(await other.getByRole('checkbox').count()).toBe(0);
    const offered = await other.getByRole('navigation', { name: 'Screens' }).getByRole('link').allTextContents();
    expect(offered).toEqual(['Overview', 'Attention', 'APIs', 'Keys', 'Explain']);
    await other.goto(`${url()}/console/live`);
    await other.getByText('api.*.read_analytics').waitFor();
    expect(await other.getByRole('heading', { level: 1 }).textContent()).toBe('Live');
    await other.close();
  });

  test('several workspaces: switches between them', async () => {
    const second = await h.createWorkspace();
    await page.getByLabel('Workspace').selectOption('Add a workspace …');
    await page.getByLabel('Root key').fill(second.rootKey);
    await page.keyboard.press('Enter');
    await heading('Access').waitFor();
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    await heading('Welcome to Tollgate').waitFor();
    await page.getByLabel('Workspace').selectOption({ index: 0 });
    await page.getByText('customer_42').first().waitFor();
  });

  describe.each(['light', 'dark'] as const)('%s', (theme) => {
    const screens = [
      ...[
        'Overview',
        'APIs',
        'Keys',
        'New key',
        'Explain',
        'Live',
        'Customers',
        'Bill',
        'Rate limits',
        'Attention',
        'Access',
        'System',
      ],
    ];
    test.each(screens)('%s: axe finds nothing, hostile data stays text', { timeout: 30_000 }, async (screen) => {
      await hostile();
      await page.emulateMedia({ colorScheme: theme });
      await goTo(screen);
      // The data of the screen has arrived.
      await page.waitForLoadState('networkidle').catch(() => {});
      await page.locator('.waiting').first().waitFor({ state: 'detached' });
      const folder = process.env.SCREENSHOTS;
      if (folder) await page.screenshot({ path: `${folder}/${screen.replace(/\W/g, '')}-${theme}.png` });
      expect(await violationsOf(page)).toEqual([]);
      expect(await page.locator('img').count()).toBe(0);
      expect(await page.title()).not.toContain('owned');
    });
  });

  test('on a narrow screen nothing but tables scrolls sideways, and the screen begins below one row', async () => {
    await page.setViewportSize({ width: 390, height: 800 });
    const folder = process.env.SCREENSHOTS;
    const names = await page.locator('nav[aria-label=Screens] a').allTextContents();
    expect(names).toHaveLength(13);
    for (const name of names) {
      await button('Menu').click();
      await goTo(name);
      await page.getByRole('navigation', { name: 'Screens' }).waitFor({ state: 'hidden' });
      await page.locator('.waiting').first().waitFor({ state: 'detached' });
      if (folder) await page.screenshot({ path: `${folder}/${name.replace(/\W/g, '')}-narrow.png`, fullPage: true });
      expect([name, await isWithinWidth(page)]).toEqual([name, true]);
      const head = (await page.locator('h1').boundingBox())!;
      expect([name, head.y < 90]).toEqual([name, true]);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test('a chart follows the width of the window', async () => {
    await goTo('Overview');
    const chart = page.locator('.chart canvas');
    await chart.waitFor();
    for (const width of [390, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      const card = page.locator('.card', { has: chart });
      const right = async (of: typeof chart) => of.boundingBox().then((box) => box!.x + box!.width);
      await expect.poll(async () => (await right(card)) - (await right(chart))).toBeCloseTo(17, 0);
      expect(await right(card)).toBeLessThanOrEqual(width);
    }
  });

  test('no request left this server, no address has a secret, and the browser has no complaint', async () => {
    expect(asked.filter((address) => !address.startsWith(url()))).toEqual([]);
    expect(asked.filter((url) => url.includes(rootKey) || url.includes(key.key))).toEqual([]);
    const stored = await page.evaluate(() =>
      JSON.stringify({ ...(globalThis as unknown as { localStorage: object }).localStorage }),
    );
    expect(stored).not.toContain('root_');
    expect(complaints).toEqual([]);
  });
});

interface Canvas {
  toDataURL(): string;
}

let isHostile = false;
/** Markup in every field that takes it. */
async function hostile() {
  if (isHostile) return;
  isHostile = true;
  const as = rootKey;
  const { data: apis } = await h.call('apis.listApis', {}, as);
  const apiId = apis[0]!.id;
  await h.call('apis.createApi', { name: markup }, as);
  await h.call('keys.createKey', { apiId, name: markup, meta: { [markup]: markup }, roles: [] }, as);
  await h.call('permissions.createRole', { name: markup, description: markup, permissions: ['documents.read'] }, as);
  await h.call('ratelimits.limit', { namespace: markup, identifier: markup, limit: 1, duration: 60_000 }, as);
  await h.call('ratelimits.setOverride', { namespace: markup, identifier: markup, limit: 1, duration: 60_000 }, as);
  await h.call('identities.createIdentity', { externalId: 'hostile', meta: { name: markup } }, as);
  await h.call('rootKeys.createRootKey', { name: markup, permissions: ['api.*.read_key'] }, as);
}
