// Tabs of one browser: a new one gets the sign-in of the tab that was used last, and a sign-out reaches all of them.

import { isDeepStrictEqual } from 'node:util';
import type { Page } from 'playwright-core';
import { beforeEach, expect, test } from 'vitest';
import { contexts, inChromium, serverAndBrowser, signIn } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();

inChromium(() => {
  const { url, browser } = serverAndBrowser(h);
  const { context, newPage } = contexts(browser);
  let first: Page;
  let rootKey: string;

  const open = async (path: string) => {
    const page = await newPage();
    await page.goto(`${url()}/console${path}`);
    return page;
  };
  beforeEach(async () => {
    rootKey = (await h.createWorkspace()).rootKey;
    await h.call('apis.createApi', { name: 'payments' }, rootKey);
    first = await open('/keys');
    await signIn(first, rootKey);
  });

  const isAt = (page: Page, screen: string) => page.getByRole('heading', { level: 1, name: screen }).waitFor();
  const isSignedOut = (page: Page) => page.locator('.sign-in').waitFor();
  const signOut = (page: Page) => page.getByRole('button', { name: 'Sign out' }).click();
  const keyOf = (page: Page) =>
    page.evaluate<string[]>(`JSON.parse(sessionStorage['tollgate.signIns']).map(({ rootKey }) => rootKey)`);

  test('a new tab is signed in, at its own address, and nothing else has the root key', async () => {
    const second = await open('/customers');
    await isAt(second, 'Customers');
    const kept = await second.evaluate<string>(
      `(async () => JSON.stringify([{ ...localStorage }, document.cookie, location.href, await indexedDB.databases(), await caches.keys()]))()`,
    );
    expect(kept).not.toContain(rootKey);
    await first.close();
    // The second one has it, too.
    await isAt(await open('/live'), 'Live');
  });

  test('a browser without an open tab asks for the root key', async () => {
    await first.goto('about:blank');
    await isSignedOut(await open('/keys'));
  });

  test('a sign-out reaches all tabs, also one that is loaded again later', async () => {
    const [second, third] = [await open('/customers'), await open('/live')];
    await isAt(third, 'Live');
    await third.goto('about:blank');
    await signOut(second);
    await isSignedOut(second);
    await isSignedOut(first);
    await third.goBack();
    await isSignedOut(third);
    await isSignedOut(await open('/keys'));
    // A sign-in after it counts, and tabs that have signed out stay so.
    await signIn(second, rootKey);
    await isAt(second, 'Customers');
    await first.reload();
    await isSignedOut(first);
    await isAt(await open('/keys'), 'Keys');
  });

  test('a new tab is a copy of the tab that was used last; others keep their root keys', async () => {
    // A tab that answers much later than the first one is not heard, so on a busy machine another new one asks again.
    const openWith = async (keys: string[]) => {
      for (let left = 5; ; left--) {
        const tab = await open('/keys');
        await isAt(tab, 'Keys');
        const found = await keyOf(tab);
        if (left === 0 || isDeepStrictEqual(found, keys)) {
          expect(found).toEqual(keys);
          return tab;
        }
        await tab.close();
      }
    };
    const other = await h.createWorkspace();
    const [second, third] = [await open('/keys'), await open('/keys')];
    await isAt(third, 'Keys');
    await second.getByLabel('Workspace').selectOption('Add a workspace …');
    await signIn(second, other.rootKey);
    await isAt(second, 'Keys');
    const fourth = await openWith([other.rootKey, rootKey]);
    expect(await keyOf(first)).toEqual([rootKey]);
    await third.getByRole('heading', { level: 1 }).click();
    await openWith([rootKey]);
    // A sign-out is of one workspace: the tabs stay signed in to the other.
    await signOut(fourth);
    await expect.poll(() => keyOf(fourth)).toEqual([rootKey]);
    await expect.poll(() => keyOf(second)).toEqual([rootKey]);
    await isAt(first, 'Keys');
  });

  test('a root key that is deleted signs out only the tabs that have it', async () => {
    const second = await open('/keys');
    const { key, rootKeyId } = (await h.call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
    await second.getByLabel('Workspace').selectOption('Add a workspace …');
    await signIn(second, key);
    await h.call('rootKeys.deleteRootKey', { rootKeyId }, rootKey);
    await second.reload();
    await isSignedOut(second);
    await first.reload();
    await isAt(first, 'Keys');
  });

  test.each([
    [
      'disabled',
      async (rootKeyId: string) =>
        void (await h.call('rootKeys.updateRootKey', { rootKeyId, enabled: false }, rootKey)),
    ],
    ['expired', async () => h.clock.advance(60_000)],
  ])('a root key that is %s ends the sign-in with the reason, until a person ends another one', async (state, end) => {
    const given = { permissions: ['*'], expires: h.clock.now + 60_000 };
    const { key, rootKeyId } = (await h.call('rootKeys.createRootKey', given, rootKey)).data;
    const reason = first.getByText('You were signed out: The root key ');
    await signOut(first);
    await signIn(first, key);
    await isAt(first, 'Keys');
    await end(rootKeyId);
    await first.getByRole('link', { name: 'Customers' }).click();
    await reason.waitFor();
    expect(await reason.textContent()).toContain(state);
    await signIn(first, rootKey);
    await isAt(first, 'Customers');
    const second = await open('/keys');
    await isAt(second, 'Keys');
    await signOut(second);
    await isSignedOut(first);
    expect(await reason.count()).toBe(0);
  });

  test('a secret that is not saved stays until it is, when another tab signs out', async () => {
    const second = await open('/new-key');
    await second.getByRole('button', { name: 'Create key' }).click();
    await isAt(second, 'The key is made');
    await signOut(first);
    await isSignedOut(first);
    await second.getByText('You signed out in another tab.').waitFor();
    const save = second.getByRole('button', { name: 'I have saved it' });
    await second.getByLabel('I have saved it in another way').check();
    await save.click();
    await isSignedOut(second);
  });

  test('messages that are not sign-ins are ignored', async () => {
    await first.goto('about:blank');
    const helper = await context().newPage();
    await helper.goto(`${url()}/v2/liveness`);
    await helper.evaluate(`
      const channel = new BroadcastChannel('tollgate.console');
      channel.onmessage = ({ data }) => {
        const bad = { rootKey: 'a', workspaceId: 'b', name: 'c', grants: [1], at: 9e15 };
        for (const signIns of [undefined, 'x', [null], [{ rootKey: 1 }], [bad]]) channel.postMessage({ to: data.asks, usedAt: 9e15, signIns });
        channel.postMessage({ to: 'another', usedAt: 9e15, signIns: [] });
        for (const other of [{}, 'text', null, { signIns: [] }]) channel.postMessage(other);
      };`);
    await isSignedOut(await open('/keys'));
  });
});
