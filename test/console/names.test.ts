// Names that callers choose, in a real browser: characters that hide or reorder others, and names that mean something
// in an address.

import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { inChromium, serverAndBrowser, signIn, viewport } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

const h = harness();

/** Looks like `ada`, and is not. */
const bidi = 'a\u202eda\u200b\u3164';
const marked = 'a⟨U+202E⟩da⟨U+200B⟩⟨U+3164⟩';
const invisible = /[\u202e\u200b\u3164]/;

inChromium(() => {
  const { url, browser } = serverAndBrowser(h);
  let page: Page;
  let rootKey: string;
  let ok: Awaited<ReturnType<typeof h.openWorkspace>>['of'];
  let keyId: string;
  let apiId: string;
  const complaints: string[] = [];

  const goTo = async (path: string) => {
    await page.goto(`${url()}/console${path}`);
    await page.locator('h1').waitFor();
    // Live always waits for a response, so its page is never idle.
    await page.waitForLoadState('networkidle', { timeout: 5000 }).catch(() => {});
    await page.locator('.waiting').first().waitFor({ state: 'detached' });
  };
  const link = (name: string) => page.getByRole('link', { name, exact: true });

  beforeAll(async () => {
    ({ rootKey, of: ok } = await h.openWorkspace());
    apiId = (await ok('apis.createApi', { name: bidi })).apiId;
    const created = await ok('keys.createKey', {
      apiId,
      name: bidi,
      externalId: '..',
      meta: { [bidi]: bidi },
      permissions: ['documents.read'],
      ratelimits: [{ name: bidi, limit: 1, duration: hourMs, autoApply: true }],
    });
    keyId = created.keyId;
    for (let times = 0; times < 3; times++) await ok('keys.verifyKey', { key: created.key, tags: [bidi] });
    await ok('keys.verifyKey', { key: created.key, permissions: 'documents.write OR team.a' });
    await ok('keys.updateKey', { keyId, meta: { changed: bidi } });
    await ok('permissions.createRole', { name: bidi, description: bidi, permissions: ['documents.read'] });
    await ok('identities.updateIdentity', { identity: '..', meta: { [bidi]: bidi } });
    for (const namespace of [bidi, '..', '.', '100%', '%2e', 'a/b?c#d', '\u3164'])
      await ok('ratelimits.limit', { namespace, identifier: bidi, limit: 1, duration: 60_000 });
    await ok('ratelimits.setOverride', { namespace: bidi, identifier: bidi, limit: 1, duration: 60_000 });
    await ok('rootKeys.createRootKey', { name: bidi, permissions: ['api.*.read_key'] });
    page = await browser().newPage({ viewport });
    page.setDefaultTimeout(40_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    await page.goto(`${url()}/console`);
    await signIn(page, rootKey);
  });
  afterAll(() => expect(complaints).toEqual([]));

  test.each<[string, () => string]>([
    ['Overview', () => '/'],
    ['APIs', () => '/apis'],
    ['an API', () => `/apis/${apiId}`],
    ['Keys', () => '/keys'],
    ['a key', () => `/keys/${keyId}`],
    ['New key', () => '/new-key'],
    ['Explain', () => `/why/${keyId}`],
    ['Customers', () => '/customers'],
    ['a customer', () => '/customers/%252E%252E'],
    ['Rate limits', () => '/rate-limits'],
    ['a namespace', () => `/rate-limits/${encodeURIComponent(encodeURIComponent(bidi))}`],
    ['Live', () => '/live'],
    ['Attention', () => '/attention'],
    ['Access', () => '/access'],
    ['System', () => '/system'],
  ])('%s displays no character that hides or reorders others', async (screen, path) => {
    await goTo(path());
    for (const details of await page.locator('details').all())
      await details.evaluate('(element) => (element.open = true)');
    const drawn = await page.evaluate<string>(`(() => {
      const labels = ['title', 'aria-label', 'placeholder', 'label', 'alt'];
      const all = [...document.querySelectorAll('*')];
      const attributes = all.flatMap((element) => labels.map((label) => element.getAttribute(label) ?? ''));
      return [document.title, document.body.textContent, ...attributes].join('\\n');
    })()`);
    expect(drawn).not.toMatch(invisible);
    if (!['Customers', 'System', 'Live'].includes(screen)) expect(drawn).toContain(marked);
  });

  test('a deletion is confirmed by the name as it is displayed, or as it is', async () => {
    await goTo(`/keys/${keyId}`);
    await page.getByRole('button', { name: 'Delete …' }).click();
    const deletes = page.getByRole('dialog').getByRole('button', { name: 'Delete' });
    const field = page.getByLabel(`Type ${marked} to confirm`);
    for (const [typed, isEnough] of [
      ['ada', false],
      [marked, true],
      [bidi, true],
      [`${bidi}\u200b`, false],
    ] as const) {
      await field.fill(typed);
      expect([typed, await deletes.isEnabled()]).toEqual([typed, isEnough]);
    }
    await page.getByText(`With what is not visible: ${marked}⟨U+200B⟩`).waitFor();
    await page.keyboard.press('Escape');
  });

  test('a command to copy has JSON escapes, and does what the form says', async () => {
    await goTo(`/keys/${keyId}`);
    await page.getByRole('region').or(page.locator('section')).getByText('Edit').first().click();
    await page.getByLabel('Name', { exact: true }).fill(`${bidi}!`);
    await page.getByRole('dialog').getByText('Request').click();
    expect(await page.getByRole('dialog').locator('pre').textContent()).toContain('"name":"a\\u202eda\\u200b\\u3164!"');
    await page.keyboard.press('Escape');
  });

  test('the customer .. opens from a list and from its address, and its links work', async () => {
    await goTo('/customers');
    await link('..').first().click();
    await page.getByRole('heading', { level: 1, name: '..', exact: true }).waitFor();
    expect(new URL(page.url()).pathname).toBe('/console/customers/%252E%252E');
    await page.reload();
    await page.getByRole('heading', { level: 1, name: '..', exact: true }).waitFor();
    await page.locator(`a[href$="${keyId}"]`).first().waitFor();
    await link('New key').last().click();
    expect(await page.getByLabel('Customer (externalId)').inputValue()).toBe('..');
  });

  test.each(['..', '.', '100%', '%2e', 'a/b?c#d', '\u3164', bidi])('the namespace %j opens', async (namespace) => {
    const displayed = namespace === bidi ? marked : namespace.replace('\u3164', '⟨U+3164⟩');
    await goTo('/rate-limits');
    await page.locator('tbody').getByRole('link', { name: displayed, exact: true }).first().click();
    await page.getByRole('heading', { level: 1, name: displayed, exact: true }).waitFor();
    const sent = page.waitForRequest('**/v2/ratelimit.listOverrides');
    await page.reload();
    expect((await sent).postDataJSON()).toMatchObject({ namespace });
    await page.getByRole('heading', { level: 1, name: displayed, exact: true }).waitFor();
  });

  test('an address with a malformed % is a name like any other', async () => {
    await goTo('/customers/100%25');
    await page.getByRole('heading', { level: 1 }).waitFor();
    await goTo('/rate-limits/100%25');
    await page.getByRole('heading', { level: 1, name: '100%' }).waitFor();
  });

  test('a CSV file has the names themselves, and no formula', async () => {
    await ok('keys.createKey', { apiId, name: 'x', externalId: '-2+3', permissions: ['a.b'] }).catch(() => {});
    await ok('ratelimits.limit', { namespace: 'x;=1+1', identifier: 'a', limit: 1, duration: 60_000 });
    await goTo('/rate-limits');
    const saved = page.waitForEvent('download');
    await page.getByRole('button', { name: 'CSV' }).first().click();
    const text = await readFile(await (await saved).path(), 'utf8');
    expect(text).toContain(`"x;'=1+1"`);
    expect(text).toContain(bidi);
  });
});
