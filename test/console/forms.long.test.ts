// Forms in a real browser: a filled one is not left by accident, a limit is a row, times are in UTC, and names of
// permissions and roles are suggested.

import { beforeAll, describe, expect, test } from 'vitest';
import { consoleInChromium, inChromium, shots } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, goTo, open, violations, isWithinWidth } = consoleInChromium(h);
  let key: { keyId: string; key: string };

  beforeAll(async () => {
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    const ratelimits = ['requests', 'tokens'].map((name) => ({ name, limit: 10, duration: hourMs, autoApply: true }));
    key = await h.createKey({ apiId, name: 'ada', ratelimits, permissions: ['documents.read', 'documents.write'] });
    // A name with a space would be two of the field, and is not suggested.
    for (const name of ['editor', 'Billing admin']) await ok('permissions.createRole', { name });
  });

  const button = (name: string) => page().getByRole('button', { name, exact: true });
  const link = (name: string) => page().getByRole('link', { name, exact: true });
  const heading = (name: string) => page().getByRole('heading', { level: 1, name });
  const question = () => page().getByRole('dialog', { name: 'Leave the form?' });
  const dialog = () => page().getByRole('dialog', { name: 'Edit ada' });

  test('a screen with a filled form asks before it is left, an untouched one does not', async () => {
    await open('/keys');
    await link('New key').first().click();
    await heading('New key').waitFor();
    await page().getByText('Trial with credits').click();
    await link('Live').click();
    await heading('Live').waitFor();
    await page().goBack();
    await page().getByLabel('Name', { exact: true }).first().fill('bob');
    for (const leaves of [
      () => link('Live').click(),
      () => page().evaluate('history.back()'),
      () => button('Sign out').click(),
    ]) {
      await leaves();
      await question().getByRole('button', { name: 'Stay' }).click();
      await question().waitFor({ state: 'detached' });
      expect(await page().getByLabel('Name', { exact: true }).first().inputValue()).toBe('bob');
    }
    const asked = page().waitForEvent('dialog');
    page()
      .evaluate('location.reload()')
      .catch(() => {});
    await (await asked).dismiss();
    await link('Live').click();
    await question().getByRole('button', { name: 'Leave' }).click();
    await heading('Live').waitFor();
    await link('Keys').click();
    await heading('Keys').waitFor();
    expect(await question().count()).toBe(0);
  });

  test('a dialog asks before Escape, a click beside it or its cross discards changes; Cancel does not', async () => {
    await open(`/keys/${key.keyId}`);
    const edit = async () => {
      await button('Edit').first().click();
      await dialog().waitFor();
    };
    await edit();
    await page().keyboard.press('Escape');
    await dialog().waitFor({ state: 'detached' });
    await edit();
    const name = dialog().getByLabel('Name');
    await name.fill('eve');
    for (const leaves of [
      () => page().keyboard.press('Escape'),
      () => page().mouse.click(5, 5),
      () => dialog().getByRole('button', { name: 'Close' }).click(),
    ]) {
      await leaves();
      await question().waitFor();
      // Escape answers the question only.
      await page().keyboard.press('Escape');
      await question().waitFor({ state: 'detached' });
      expect(await name.inputValue()).toBe('eve');
    }
    await page().keyboard.press('Escape');
    await question().getByRole('button', { name: 'Leave' }).click();
    await dialog().waitFor({ state: 'detached' });
    await edit();
    expect(await name.inputValue()).toBe('ada');
    await name.fill('eve');
    await button('Cancel').click();
    await dialog().waitFor({ state: 'detached' });
    await edit();
    await name.fill('ada 2');
    await button('Save').click();
    await heading('ada 2').waitFor();
    await link('Keys').click();
    await heading('Keys').waitFor();
    expect(await question().count()).toBe(0);
    await ok('keys.updateKey', { keyId: key.keyId, name: 'ada' });
  });

  test('a dialog asks also where a field is not complete', async () => {
    await open(`/keys/${key.keyId}`);
    for (const [card, field, text] of [
      [0, 'Metadata', '{"plan": '],
      [1, 'Balance', 'many'],
    ] as const) {
      await button('Edit').nth(card).click();
      await page().getByLabel(field).fill(text);
      await page().keyboard.press('Escape');
      await question().getByRole('button', { name: 'Leave' }).click();
      await page().getByRole('dialog').waitFor({ state: 'detached' });
    }
    await goTo('/customers');
    await button('New customer').click();
    await page().getByLabel('Metadata').fill('{');
    await page().keyboard.press('Escape');
    await question().waitFor();
  });

  test('the end of the session does not wait for a form', async () => {
    const made = await ok('rootKeys.createRootKey', { permissions: ['*'] });
    await open(`/keys/${key.keyId}`, made.key);
    await button('Edit').first().click();
    await dialog().getByLabel('Name').fill('eve');
    await ok('rootKeys.deleteRootKey', { rootKeyId: made.rootKeyId });
    await page().locator('.sign-in').waitFor();
  });

  test('a limit is one row, with its own Remove', async () => {
    await open(`/keys/${key.keyId}`);
    const limits = page().locator('section.card', {
      has: page().getByRole('heading', { name: 'Limits', exact: true }),
    });
    await limits.getByRole('button', { name: 'Edit' }).click();
    const rows = page().locator('.limit');
    for (const row of await rows.all()) {
      const tops = await Promise.all(
        (await row.locator('input:not([type=checkbox]), select, button').all()).map(
          async (of) => (await of.boundingBox())!.y,
        ),
      );
      expect(tops).toHaveLength(7);
      expect(Math.max(...tops) - Math.min(...tops)).toBeLessThan(4);
    }
    expect(await violations()).toEqual([]);
    await shots(page(), 'form-limits');
    await page().setViewportSize({ width: 390, height: 800 });
    expect(await isWithinWidth()).toBe(true);
    expect(
      await page()
        .getByRole('dialog')
        .evaluate((of: Box) => of.scrollWidth <= of.clientWidth),
    ).toBe(true);
    await button('Remove requests').click();
    expect(await rows.count()).toBe(1);
    expect(await rows.getByLabel('Name').inputValue()).toBe('tokens');
  });

  test('the expiry is one field with presets, and states its time in UTC', async () => {
    await open('/new-key');
    const field = page().getByLabel('Expires, UTC');
    await button('90 days').click();
    const text = await field.inputValue();
    await page().getByText(`${text} UTC, in `).waitFor();
    await shots(page(), 'form-key');
    await button('Never').click();
    expect(await field.inputValue()).toBe('');
    await page().getByText('Empty: never.').waitFor();
    expect(await button('Never').count()).toBe(0);
  });

  describe('suggestions', () => {
    const options = (of: string) =>
      page()
        .locator(`#names-${of} option`)
        .evaluateAll((all: { value: string }[]) => all.map(({ value }) => value).sort());
    test('of permissions and roles, after those that are typed', async () => {
      await open('/new-key');
      const field = page().getByLabel('Permissions');
      expect(await field.getAttribute('list')).toBe('names-permissions');
      await expect.poll(() => options('permissions')).toEqual(['documents.read', 'documents.write']);
      await field.fill('WRITE');
      await expect.poll(() => options('permissions')).toEqual(['documents.write']);
      await field.fill('documents.write ');
      await expect.poll(() => options('permissions')).toEqual(['documents.write documents.read']);
      await expect.poll(() => options('roles')).toEqual(['editor']);
    });
    test('none without their grants', async () => {
      const made = await ok('rootKeys.createRootKey', { permissions: ['api.*.create_key', 'api.*.read_api'] });
      const asked: string[] = [];
      page().on('request', (request) => asked.push(request.url().split('/').at(-1)!));
      await open('/new-key', made.key);
      await page().getByLabel('Permissions').fill('documents.read');
      await button('Create key').and(page().locator(':enabled')).waitFor();
      expect(asked.filter((name) => name.startsWith('permissions.'))).toEqual([]);
    });
  });

  test('the first key has a prefix', async () => {
    await open('/', (await h.createWorkspace()).rootKey);
    await page().getByLabel('Name of the API').fill('Billing 2');
    expect(await page().getByLabel('Prefix of its key').inputValue()).toBe('bil');
    await page().getByLabel('Prefix of its key').fill('shop');
    await shots(page(), 'form-wizard');
    await button('Make both').click();
    await expect.poll(() => page().locator('.snippet pre').first().textContent()).toMatch(/^shop_/);
  });
});

interface Box {
  scrollWidth: number;
  clientWidth: number;
}
