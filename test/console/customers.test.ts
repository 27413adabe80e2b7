// The list of customers in a real browser: what each used in 7 days.

import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, looksRight } = consoleInChromium(h);

  beforeAll(async () => {
    h.clock.now = Date.now();
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    for (const [externalId, valid, refused] of [
      ['ada', 3, 1],
      ['bob', 0, 2],
    ] as const)
      for (let key = 0; key < 2; key++) {
        const made = await h.createKey({ apiId, externalId });
        for (let times = 0; times < valid; times++) await ok('keys.verifyKey', { key: made.key });
        for (let times = 0; times < refused; times++)
          await ok('keys.verifyKey', { key: made.key, permissions: 'documents.write' });
      }
    for (let number = 0; number < 53; number++)
      await ok('identities.createIdentity', { externalId: `idle${number}`, meta: { number } });
  });

  const rows = () => page().getByRole('region', { name: 'Customers', exact: true }).locator('tbody tr');
  const cellsOf = (externalId: string, name: string) =>
    rows()
      .filter({ has: page().getByRole('link', { name: externalId, exact: true }) })
      .locator(`[data-name="${name}"]`)
      .textContent();
  const usedBy = (externalId: string, expected: [string, string]) =>
    expect
      .poll(async () => [await cellsOf(externalId, '7 days'), await cellsOf(externalId, 'Refused')])
      .toEqual(expected);

  test('each has the number of its keys and its verifications of 7 days, in one request for a page', async () => {
    const asked: number[] = [];
    page().on('request', (request) => {
      const { externalIds } = request.url().endsWith('analytics.getVerifications') ? request.postDataJSON() : {};
      if (externalIds) asked.push(externalIds.length);
    });
    await open('/customers');
    await usedBy('ada', ['8', '2']);
    await usedBy('bob', ['4', '4']);
    await usedBy('idle3', ['0', '0']);
    expect([await cellsOf('ada', 'Keys'), await cellsOf('idle3', 'Keys')]).toEqual(['2', '0']);
    expect(asked).toEqual([50]);
    await page().getByRole('button', { name: 'Show more' }).click();
    await usedBy('idle52', ['0', '0']);
    expect(asked).toEqual([50, 5]);
    await looksRight('customers');
  });

  test('without the grant for analytics there is no such column', async () => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['identity.*.read_identity'] });
    await open('/customers', key);
    await expect.poll(() => rows().count()).toBe(50);
    expect(await page().getByRole('columnheader', { name: '7 days' }).count()).toBe(0);
  });
});
