// The dialogs of a key in a real browser: they send what was changed in them, and nothing that others changed
// meanwhile.

import type { Route } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, card, dialog, save } = consoleInChromium(h);
  const edit = (heading: RegExp) => card(heading).first().getByRole('button', { name: 'Edit' }).click();

  test('another customer: a name and metadata that were set meanwhile stay', async () => {
    const { keyId } = await h.createKey({ name: 'first' });
    await open(`/keys/${keyId}`);
    await edit(/^Key/);
    await dialog().waitFor();
    await ok('keys.updateKey', { keyId, name: 'second', meta: { plan: 'pro' } });
    // The screen has read the key again.
    await page().getByRole('heading', { name: 'second' }).waitFor();
    await dialog()
      .getByLabel(/Customer/)
      .fill('cust_1');
    await save();
    expect(await ok('keys.getKey', { keyId })).toMatchObject({
      name: 'second',
      meta: { plan: 'pro' },
      identity: { externalId: 'cust_1' },
    });
  });

  test('another permission: roles with spaces stay', async () => {
    await ok('permissions.createRole', { name: 'Billing admin' });
    const { keyId } = await h.createKey({ roles: ['Billing admin'] });
    await open(`/keys/${keyId}`);
    await edit(/^Permissions/);
    expect(await dialog().getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    await dialog().getByLabel('Direct permissions').fill('documents.read');
    await save();
    expect(await ok('keys.getKey', { keyId })).toMatchObject({
      roles: ['Billing admin'],
      permissions: ['documents.read'],
    });
  });

  test('another balance: a refill that was set meanwhile stays', async () => {
    const refill = { interval: 'monthly' as const, amount: 100, refillDay: 15 };
    const { keyId } = await h.createKey({ credits: { remaining: 10, refill } });
    await open(`/keys/${keyId}`);
    await edit(/^Credits/);
    await ok('keys.updateKey', { keyId, credits: { refill: { ...refill, amount: 500 } } });
    await dialog().getByLabel('Balance').fill('20');
    await save();
    expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 20, refill: { ...refill, amount: 500 } });
  });

  test('limits and roles that others changed meanwhile are not taken back', async () => {
    const limit = { name: 'requests', limit: 100, duration: 60_000, autoApply: true };
    await ok('permissions.createRole', { name: 'auditor' });
    const { keyId } = await h.createKey({ ratelimits: [limit], roles: ['auditor'] });
    await open(`/keys/${keyId}`);
    const expectOld = async () => {
      await dialog().getByText('It was changed meanwhile.').waitFor();
      expect(await dialog().getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
      await dialog().getByRole('button', { name: 'Cancel' }).click();
      await dialog().waitFor({ state: 'detached' });
    };
    await edit(/^Limits/);
    await dialog().getByRole('button', { name: 'Add a limit' }).click();
    await ok('keys.updateKey', { keyId, ratelimit: { name: 'abuse', limit: 5, duration: 1000, autoApply: true } });
    await expectOld();
    await edit(/^Permissions/);
    await dialog().getByLabel('Direct permissions').fill('documents.read');
    await ok('keys.setRoles', { keyId, roles: [] });
    await expectOld();
    const key = await ok('keys.getKey', { keyId });
    expect([key.ratelimits?.map(({ name }) => name).sort(), key.roles]).toEqual([['abuse', 'requests'], undefined]);
  });

  test('a key that is to be disabled stays disabled, whatever was disabled or lost meanwhile', async () => {
    const { keyId } = await h.createKey({ name: 'leaked' });
    await open(`/keys/${keyId}`);
    await page().getByRole('button', { name: 'Disable …' }).click();
    // It is done, and its response is lost.
    const lost = async (route: Route) => {
      await route.fetch();
      await route.abort();
    };
    await page().route('**/v2/keys.updateKey', lost, { times: 1 });
    await dialog().getByRole('button', { name: 'Disable', exact: true }).click();
    await dialog().getByText('The server cannot be reached.').waitFor();
    await page().locator('main').getByText('Enable …').waitFor({ state: 'attached' });
    await dialog().getByRole('button', { name: 'Disable', exact: true }).click();
    await dialog().waitFor({ state: 'detached' });
    expect((await ok('keys.getKey', { keyId })).enabled).toBe(false);
  });

  test('a migrated key without a name is deleted after its id was typed', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'migrated' });
    const hash = Buffer.alloc(32, 9).toString('base64');
    const { migrated } = await ok('keys.migrateKeys', { migrationId: 'from', apiId, keys: [{ hash }] });
    const { keyId } = migrated[0]!;
    await open(`/keys/${keyId}`);
    await page().getByRole('button', { name: 'Delete' }).click();
    const button = dialog().getByRole('button', { name: 'Delete' });
    expect(await button.isDisabled()).toBe(true);
    await dialog().getByLabel(`Type ${keyId} to confirm`).fill(keyId);
    await button.click();
    await dialog().waitFor({ state: 'detached' });
    expect((await h.call('keys.getKey', { keyId })).status).toBe(404);
  });

  test('no balance before, and no change: nothing can be saved', async () => {
    const { keyId } = await h.createKey();
    await open(`/keys/${keyId}`);
    await edit(/^Credits/);
    expect(await dialog().getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
  });

  describe('what is as it was cannot be saved', () => {
    const isSaveDisabled = () => dialog().getByRole('button', { name: 'Save' }).isDisabled();
    const ratelimits = [{ name: 'requests', limit: 10, duration: 60_000, autoApply: true }];
    /** The dialog of a card, before a change, after it, and after it was taken back. */
    async function changeAndBack(card: RegExp, field: string, [value, other]: [string, string]) {
      await edit(card);
      const states = [await isSaveDisabled()];
      for (const text of [other, value]) {
        await dialog().getByLabel(field).fill(text);
        states.push(await isSaveDisabled());
      }
      expect(states).toEqual([true, false, true]);
      await dialog().getByRole('button', { name: 'Cancel' }).click();
    }

    test('limits of a key', async () => {
      const { keyId } = await h.createKey({ ratelimits });
      await open(`/keys/${keyId}`);
      await changeAndBack(/^Limits/, 'Units', ['10', '11']);
    });

    test('limits and metadata of a customer', async () => {
      await ok('identities.createIdentity', { externalId: 'cust_2', ratelimits, meta: { plan: 'pro' } });
      await open('/customers/cust_2');
      await changeAndBack(/^Limits/, 'Units', ['10', '11']);
      await changeAndBack(/^Customer/, 'Metadata', ['{"plan":"pro"}', '{}']);
    });

    test('an override', async () => {
      const amount = { limit: 5, duration: 60_000 };
      await ok('ratelimits.setOverride', { namespace: 'mails', identifier: 'user_1', ...amount });
      await open('/rate-limits/mails');
      await changeAndBack(/^Overrides/, 'Limit', ['5', '6']);
    });
  });

  test.each(['15th', '', '0', '40'])('a refill on day %j cannot be saved', async (day) => {
    const refill = { interval: 'monthly' as const, amount: 100, refillDay: 15 };
    const { keyId } = await h.createKey({ credits: { remaining: 10, refill } });
    await open(`/keys/${keyId}`);
    await edit(/^Credits/);
    await dialog().getByLabel('On day').fill(day);
    await dialog().getByText('A day of the month, 1 to 31.').waitFor();
    expect(await dialog().getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    await dialog().getByLabel('On day').fill('16');
    await save();
    expect((await ok('keys.getKey', { keyId })).credits!.refill).toEqual({ ...refill, refillDay: 16 });
  });
});
