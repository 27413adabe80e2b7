// A secret that is displayed once is not lost by accident, in a real browser: every screen that displays one, and every
// way to leave it.

import type { Page } from 'playwright-core';
import { beforeEach, describe, expect, test } from 'vitest';
import { contexts, inChromium, serverAndBrowser, shots, viewport } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';
import { thoroughTest } from '../support/testIf.ts';

const h = harness();

interface Display {
  name: string;
  isDialog: boolean;
  /** It sends requests. */
  polls: boolean;
  /** Displays a secret. */
  display(): Promise<unknown>;
}

inChromium(() => {
  const { url, browser } = serverAndBrowser(h);
  const { context, newPage } = contexts(browser);
  let page: Page;
  let rootKey: string;
  let keyId: string;

  beforeEach(async () => {
    rootKey = (await h.createWorkspace()).rootKey;
    await context().grantPermissions(['clipboard-read', 'clipboard-write']);
    page = await newPage();
  });

  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const heading = (name: string) => page.getByRole('heading', { name, exact: true });
  const link = (name: string) => page.getByRole('link', { name, exact: true });
  const question = () => page.getByRole('dialog', { name: 'Leave without saving it?' });
  const secret = () => page.locator('.snippet pre').first();

  async function signIn() {
    await page.goto(`${url()}/console/system`);
    await page.getByLabel('Root key').fill(rootKey);
    await page.keyboard.press('Enter');
    await heading('System').waitFor();
  }
  async function withKey() {
    const { apiId } = (await h.call('apis.createApi', { name: 'payments' }, rootKey)).data;
    keyId = (await h.call('keys.createKey', { apiId, name: 'old key' }, rootKey)).data.keyId;
    await signIn();
  }

  const displays: Display[] = [
    {
      name: 'the first key',
      polls: true,
      isDialog: false,
      async display() {
        await signIn();
        await link('Overview').click();
        await button('Make both').click();
      },
    },
    {
      name: 'a new key',
      polls: false,
      isDialog: false,
      async display() {
        await withKey();
        await link('New key').click();
        await button('Create key').click();
        await heading('The key is made').waitFor();
      },
    },
    {
      name: 'a rotated key',
      polls: true,
      isDialog: true,
      async display() {
        await withKey();
        await link('Keys').click();
        await page.locator(`a[href$="${keyId}"]`).click();
        await button('Rotate …').click();
        await button('Make the new key').click();
        await page.getByRole('dialog', { name: 'The new key' }).waitFor();
      },
    },
    {
      name: 'a new root key',
      polls: true,
      isDialog: true,
      async display() {
        await withKey();
        await link('Access').click();
        await button('New root key').click();
        await button('Create').click();
        await page.getByRole('dialog', { name: 'The new root key' }).waitFor();
      },
    },
  ];

  describe.each(displays)('$name', ({ name, display, isDialog, polls }) => {
    // All displays use the same code: CI has time for one of them, and Escape at each.
    const mostly = name === displays[0]!.name ? test : thoroughTest;
    let text: string;
    const isStillDisplayed = async () => expect(await secret().textContent()).toBe(text);
    beforeEach(async () => {
      await display();
      text = (await secret().textContent())!;
      expect(text).toMatch(/^\w{20,}$/);
    });

    const copies = () => page.getByRole('button', { name: /^Copy( root)? key$/ }).click();

    mostly('is saved by Copy and one button; then nothing asks', async () => {
      const save = button('I have saved it');
      await shots(page, name, [viewport, { width: 390, height: 800 }]);
      expect(await save.isDisabled()).toBe(true);
      await copies();
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(text);
      await save.click();
      await save.waitFor({ state: 'detached' });
      await link('System').click();
      await heading('System').waitFor();
      expect(await question().count()).toBe(0);
    });

    mostly(
      'may be saved otherwise: by a confirmation, or by copying the selection; not by a copy that fails',
      async () => {
        const save = button('I have saved it');
        const check = page.getByLabel('I have saved it in another way');
        await page.evaluate(`
        navigator.clipboard.writeText = () => Promise.reject(new Error('denied'));
        document.execCommand = () => false;`);
        await copies();
        await page.getByText('Not copied: select the text').waitFor();
        expect(await save.isDisabled()).toBe(true);
        await check.check();
        expect(await save.isEnabled()).toBe(true);
        await check.uncheck();
        expect(await save.isDisabled()).toBe(true);
        await secret().selectText();
        await page.keyboard.press('Control+C');
        await expect.poll(() => save.isEnabled()).toBe(true);
      },
    );

    test('Escape and a click beside it do nothing, closing the tab asks, and the browser keeps nothing', async () => {
      for (let times = 0; times < 4; times++) await page.keyboard.press('Escape');
      await page.mouse.click(5, 450);
      await page.keyboard.press('Escape');
      await isStillDisplayed();
      expect(await page.getByRole('dialog').count()).toBe(isDialog ? 1 : 0);
      if (isDialog) expect(await button('Close').count()).toBe(0);
      for (const leaves of [() => page.evaluate('location.reload()'), () => page.close({ runBeforeUnload: true })]) {
        const asked = page.waitForEvent('dialog');
        leaves().catch(() => {});
        const dialog = await asked;
        expect(dialog.type()).toBe('beforeunload');
        await dialog.dismiss();
        await isStillDisplayed();
      }
      const kept = await page.evaluate<string>(`(async () => JSON.stringify([
        { ...localStorage }, { ...sessionStorage }, document.cookie, location.href, history.state, document.title,
        await indexedDB.databases(), await caches.keys(),
      ]))()`);
      expect(kept).not.toContain(text);
      expect(kept).toContain(url());
    });

    test(`${isDialog ? 'Back asks' : 'Back, a link, Ctrl-K and the end of the sign-in ask'}, and leave it in the end`, async () => {
      const { pathname } = new URL(page.url());
      const back = () => page.evaluate('history.back()');
      const others = [
        () => link('Keys').click(),
        async () => {
          await page.locator('main').press('Control+k');
          await page.getByRole('combobox', { name: 'Find' }).fill('live');
          await page.keyboard.press('Enter');
        },
        () => button('Sign out').click(),
        () => page.getByLabel('Workspace').selectOption('Add a workspace …'),
      ];
      for (const leaves of [back, ...(isDialog ? [] : others)]) {
        await leaves();
        await question().waitFor();
        await button('Stay').click();
        await question().waitFor({ state: 'detached' });
        await isStillDisplayed();
        expect(new URL(page.url()).pathname).toBe(pathname);
      }
      const last = isDialog ? back : others[2]!;
      await last();
      await button('Leave without it').click();
      if (isDialog) await expect.poll(() => new URL(page.url()).pathname).not.toBe(pathname);
      else await page.getByLabel('Root key').waitFor();
      expect(await page.getByText(text).count()).toBe(0);
    });

    mostly('the end of the session waits until it is saved', async () => {
      const { rootKeyId } = (await h.call('rootKeys.whoami', {}, rootKey)).data;
      const other = await h.call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey);
      await h.call('rootKeys.deleteRootKey', { rootKeyId }, other.data.key);
      // The next request of the page gets 401. A page with a new key sends none.
      if (polls) await page.getByText('Your root key is no longer accepted.').waitFor({ timeout: 20_000 });
      await isStillDisplayed();
      await copies();
      await button('I have saved it').click();
      if (!polls) await link('To the key').click();
      await page.locator('.sign-in').getByText('You were signed out: Your root key is no longer accepted.').waitFor();
    });
  });

  test('while a key is being made, its dialog cannot be closed and the tab asks', async () => {
    await withKey();
    await page.goto(`${url()}/console/keys/${keyId}`);
    let answer = () => {};
    await page.route('**/v2/keys.rerollKey', async (route) => {
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      await route.continue();
    });
    await button('Rotate …').click();
    await button('Make the new key').click();
    for (let times = 0; times < 3; times++) await page.keyboard.press('Escape');
    await page.mouse.click(5, 450);
    expect(await button('Cancel').isDisabled()).toBe(true);
    const asked = page.waitForEvent('dialog');
    page.evaluate('location.reload()').catch(() => {});
    await (await asked).dismiss();
    answer();
    await page.getByRole('dialog', { name: 'The new key' }).waitFor();
  });

  test.each([
    ['New key', 'Create key', 'keys.createKey', 'The key is made'],
    ['Overview', 'Make both', 'apis.createApi', 'Verify it'],
  ])('%s: a second click makes no second key, and a link asks meanwhile', async (screen, name, operation, made) => {
    if (screen === 'Overview') await signIn();
    else await withKey();
    await link(screen).click();
    let answer = () => {};
    let sent = 0;
    await page.route(`**/v2/${operation}`, async (route) => {
      sent++;
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      await route.continue();
    });
    await button(name).click();
    await button(name).click({ force: true });
    await link('Live').click();
    await button('Stay').click();
    answer();
    await heading(made).waitFor();
    await secret().waitFor();
    expect(sent).toBe(1);
  });
});
