// The credits of a customer, and of a key, in a real browser: what the page displays, and the dialog.

import type { Locator } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const identity = 'ada';

inChromium(() => {
  const { page, goTo, open, card: cardOf, violations } = consoleInChromium(h);

  const card = () => cardOf('Credits that all keys share');
  const creditsOf = async () => (await ok('identities.getIdentity', { identity })).credits;

  test('they are given, displayed with debt and refill, and removed', async () => {
    await ok('identities.createIdentity', { externalId: identity });
    await open(`/customers/${identity}`);
    await card().getByText('It has none').waitFor();

    await card().getByRole('button', { name: 'Edit' }).click();
    await page().getByLabel('Balance').fill('500');
    await page().getByLabel('Refill').selectOption('daily');
    await page().getByLabel('To', { exact: true }).fill('200');
    await page().getByRole('button', { name: 'Save' }).click();
    await card().getByText('500 left').waitFor();
    await card().getByText('Refilled to 200 daily').waitFor();
    expect(await creditsOf()).toEqual({ remaining: 500, refill: { interval: 'daily', amount: 200 } });
    expect(await violations()).toEqual([]);

    const { key, keyId } = await h.createKey({ externalId: identity });
    const { hold } = await ok('keys.verifyKey', { key, credits: { cost: 500 }, hold: { ttl: hourMs } });
    await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 520 } });
    await goTo(`/keys/${keyId}`);
    await page().getByText('Verifications charge the credits of its customer').waitFor();
    await page().getByText('0 left.').waitFor();
    await goTo(`/why/${keyId}`);
    await page().getByText('Balance of the customer 0, debt 20, cost 1').waitFor();
    await page().getByText('The balance of the customer is too small.').waitFor();

    await goTo(`/customers/${identity}`);
    await card().getByText('debt 20').waitFor();
    await card().getByRole('button', { name: 'Edit' }).click();
    await page().getByLabel('Balance').fill('');
    await page().getByRole('button', { name: 'Save' }).click();
    await card().getByText('It has none').waitFor();
    expect(await creditsOf()).toBeUndefined();
  });

  describe.each(['a customer', 'a key'] as const)('an edit of the refill only, of %s', (whose) => {
    const isKey = whose === 'a key';
    let owner: { externalId: string; keyId: string; key: string };

    /** The owner of the balance, with this many credits. */
    const make = async (remaining: number) => {
      const externalId = `owner_${remaining}_${isKey}`;
      await ok('identities.createIdentity', { externalId, ...(!isKey && { credits: { remaining } }) });
      owner = { externalId, ...(await h.createKey({ externalId, ...(isKey && { credits: { remaining } }) })) };
    };
    const read = async () => {
      const { externalId, keyId } = owner;
      const read = isKey ? ok('keys.getKey', { keyId }) : ok('identities.getIdentity', { identity: externalId });
      return (await read).credits;
    };
    const hold = async (cost: number) =>
      (await ok('keys.verifyKey', { key: owner.key, credits: { cost }, hold: { ttl: hourMs } })).hold!.id;
    const card = () => cardOf(isKey ? 'Credits' : 'Credits that all keys share');
    const edit = async (change: (dialog: Locator) => Promise<unknown>) => {
      await card().getByRole('button', { name: 'Edit' }).click();
      const dialog = page().getByRole('dialog');
      await change(dialog);
      await dialog.getByRole('button', { name: 'Save' }).click();
    };
    const editRefill = async () => {
      await open(isKey ? `/keys/${owner.keyId}` : `/customers/${owner.externalId}`);
      await edit(async (dialog) => {
        await dialog.getByLabel('Refill').selectOption('daily');
        await dialog.getByLabel('To', { exact: true }).fill('200');
      });
      await card().getByText('Refilled to 200 daily').waitFor();
    };
    const refill = { interval: 'daily', amount: 200 } as const;

    test('keeps a debt', async () => {
      await make(500);
      await ok('keys.settleHold', { holdId: await hold(500), credits: { cost: 520 } });
      expect(await read()).toEqual({ remaining: 0, debt: 20 });
      await editRefill();
      expect(await read()).toEqual({ remaining: 0, debt: 20, refill });
    });

    test('keeps what an open hold gives back', async () => {
      await make(100);
      const holdId = await hold(40);
      await editRefill();
      expect(await read()).toEqual({ remaining: 60, refill });
      await ok('keys.releaseHold', { holdId });
      expect(await read()).toEqual({ remaining: 100, refill });
    });

    test('to never keeps the balance; one that is typed is set', async () => {
      await make(300);
      const holdId = await hold(40);
      await editRefill();
      await edit(async (dialog) => dialog.getByLabel('Refill').selectOption('never'));
      await card().getByText('It is not refilled.').waitFor();
      expect(await read()).toEqual({ remaining: 260 });
      await edit((dialog) => dialog.getByLabel('Balance').fill('7'));
      await card().getByText('7 left').waitFor();
      await ok('keys.releaseHold', { holdId });
      expect(await read()).toEqual({ remaining: 7 });
    });
  });
});
