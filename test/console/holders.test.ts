// The setting of GET /v2/me in a real browser: switched on with an origin, refused with a wrong one, switched off.

import { expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();

inChromium(() => {
  const { open, card, dialog, page } = consoleInChromium(h);
  const title = 'What customers see with their key';
  const settings = async () => (await h.ok('workspace.getSettings', {})).me;

  test('customers may read their keys, and then not', async () => {
    await open('/system');
    await card(title).getByText('Off').waitFor();
    await card(title).getByRole('button', { name: 'Change …' }).click();
    const save = dialog().getByRole('button', { name: 'Save' });
    expect(await save.isDisabled()).toBe(true);
    await dialog().getByLabel('Customers may read their keys').check();
    await dialog().getByLabel('Origins of pages').fill('https://app.example.com/ http://localhost:5173');
    await save.click();
    await dialog().getByText('body.me.origins[0]').first().waitFor();
    expect(await settings()).toBeUndefined();
    await dialog().getByLabel('Origins of pages').fill('https://app.example.com http://localhost:5173');
    await save.click();
    await card(title).getByText('https://app.example.com, http://localhost:5173').waitFor();
    expect(await settings()).toEqual({ origins: ['https://app.example.com', 'http://localhost:5173'] });

    // What the dialog does not show is kept.
    await h.ok('workspace.updateSettings', { me: { origins: [], meta: ['tier with a space'] } });
    await page().reload();
    await card(title).getByText('tier with a space').waitFor();
    await card(title).getByRole('button', { name: 'Change …' }).click();
    await dialog().getByLabel('Origins of pages').fill('https://app.example.com');
    await save.click();
    await dialog().waitFor({ state: 'detached' });
    expect(await settings()).toEqual({ origins: ['https://app.example.com'], meta: ['tier with a space'] });
    await card(title).getByRole('button', { name: 'Change …' }).click();
    await dialog().getByLabel('Customers may read their keys').uncheck();
    await save.click();
    await card(title).getByText('Off').waitFor();
    expect(await settings()).toBeUndefined();
  });

  test('the dialog begins with the setting of now: what was set since the page was drawn stays', async () => {
    await open('/system');
    await card(title).getByText('Off').waitFor();
    await h.ok('workspace.updateSettings', { me: { origins: ['https://app.example.com'], meta: ['tier'] } });
    await card(title).getByRole('button', { name: 'Change …' }).click();
    await dialog().getByLabel('Origins of pages').fill('https://shop.example.com');
    await dialog().getByRole('button', { name: 'Save' }).click();
    await dialog().waitFor({ state: 'detached' });
    expect(await settings()).toEqual({ origins: ['https://shop.example.com'], meta: ['tier'] });
  });
});
