// Recent refusals in a real browser: what was asked, asking it again, and what has no row.

import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium, shots, viewport } from '../support/chromium.ts';
import { harness, hourMs } from '../support/harness.ts';

/** Rows for 437 keys at the beginning of an hour. */
const h = harness(undefined, { refusalBytesMax: 65_536, leaseMs: 0 });
const { ok } = h;

inChromium(() => {
  const { page, open, card: cardOf, button, violations } = consoleInChromium(h);
  let ada: { keyId: string; key: string };
  let without: { keyId: string };
  /** The hour of the storm, as the console displays it. */
  let period: string;

  beforeAll(async () => {
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    const hour = (Math.floor(Date.now() / hourMs) - 2) * hourMs;
    h.clock.now = hour;
    const keys: { keyId: string; key: string }[] = [];
    while (keys.length < 450)
      keys.push(...(await Promise.all(Array.from({ length: 5 }, () => h.createKey({ apiId, enabled: false })))));
    await Promise.all(keys.map(({ key }) => ok('keys.verifyKey', { key })));
    const listed = await h.call('analytics.listRefusals', { limit: 1000 });
    const ids = new Set(listed.data.map(({ keyId }) => keyId));
    without = keys.find(({ keyId }) => !ids.has(keyId))!;
    const text = (ms: number) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ');
    period = `${text(hour)} to ${text(hour + hourMs).slice(11)} UTC`;
    h.clock.now = Date.now();
    ada = await h.createKey({ apiId, name: "Ada's key", externalId: 'ada', credits: { remaining: 3 } });
    await ok('keys.verifyKey', { key: ada.key, permissions: 'documents.write AND team.a', tags: ['eu'] });
    await ok('keys.verifyKey', { key: ada.key, credits: { cost: 5 } });
  });

  const rows = () => page().getByRole('region', { name: 'Recent refusals' }).last().locator('tbody tr');
  const shot = (name: string) => shots(page(), `refusals-${name}`, [viewport, { width: 390, height: 800 }]);

  test('a row has what was asked, and asks it again', async () => {
    await open(`/why/${ada.keyId}`);
    await page().getByText('The answer is Valid').waitFor();
    await expect.poll(() => rows().count()).toBe(2);
    // The rules without figures are folded.
    await page().getByText('7 more rules pass').click();
    await page().getByText('It has not expired').waitFor();
    expect(await page().getByRole('region', { name: 'Rules in order' }).locator('tbody tr').allTextContents()).toEqual([
      'Its credits sufficepassedBalance 3, cost 1, then 2.',
    ]);
    // The last refusal asked something else.
    const notice = page().locator('.notice', { hasText: 'It was refused' });
    expect(await notice.textContent()).toMatch(/: Usage exceeded\. That request was another one\. Ask with this cost$/);
    expect(await rows().nth(0).textContent()).toMatch(/Usage exceeded.*5, 3 left/);
    expect(await rows().nth(1).textContent()).toMatch(/Lacks permission.*documents\.write AND team\.a/);
    await shot('why');
    await rows().nth(1).getByRole('link', { name: 'Ask with this query' }).click();
    await page().getByText('The answer is Lacks permission').waitFor();
    expect(await page().getByLabel('Permissions, as a query').inputValue()).toBe('documents.write AND team.a');
    await page().getByText('Missing: documents.write, team.a.').waitFor();
    await rows().nth(0).getByRole('link', { name: 'Ask with this cost' }).click();
    await page().getByText('The answer is Usage exceeded').waitFor();
    expect(await page().getByLabel('Permissions, as a query').inputValue()).toBe('');
    expect(await page().getByLabel('Cost in credits').inputValue()).toBe('5');
    await page().goBack();
    await page().getByText('The answer is Lacks permission').waitFor();
  });

  test('a root key that may not read refusals explains without them', async () => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_key'] });
    await open(`/why/${ada.keyId}`, key);
    await page().getByText('The answer is Valid').waitFor();
    expect(await page().getByText('It was refused').count()).toBe(0);
    expect(await page().getByRole('heading', { name: 'Recent refusals' }).count()).toBe(0);
  });

  test('a key whose refusals have no row does not look like one without refusals', async () => {
    await open(`/why/${without.keyId}`);
    await page().getByText('Details of the refusals were left out').waitFor();
    await page().getByText(`${period}: 1 refusal; details of 1 were left out.`).waitFor();
    await shot('none');
  });

  test('of all keys: further pages, and the hour of the storm', async () => {
    await open('/attention');
    await expect.poll(() => rows().count()).toBe(50);
    expect(await page().getByText('were left out.').count()).toBe(1);
    await page().getByText(`${period}: 450 refusals; details of 13 were left out.`).waitFor();
    const card = cardOf('Recent refusals');
    await card.getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => rows().count()).toBe(100);
    expect(await page().getByText('were left out.').count()).toBe(1);
    await shot('all');
  });

  test('of a period: the minute that is named is included', async () => {
    await open('/attention');
    await expect.poll(() => rows().count()).toBe(50);
    const card = cardOf('Recent refusals');
    const [from, to] = [card.getByLabel('From, UTC'), card.getByLabel('To, UTC')];
    const stormAt = period.slice(0, 16).replace(' ', 'T');
    await from.fill(stormAt);
    await to.fill(stormAt);
    await card.getByRole('button', { name: 'Show more' }).waitFor();
    // Those of Ada's key are of now.
    await expect.poll(() => rows().filter({ hasText: "Ada's key" }).count()).toBe(0);
    expect(await rows().count()).toBe(50);
    await shot('period');
    await from.fill(stormAt.replace(/:00$/, ':01'));
    await to.fill('');
    await expect.poll(() => rows().count()).toBe(2);
    // Of the hour some details were left out, of this minute none.
    const quiet = stormAt.replace(/:00$/, ':30');
    await from.fill(quiet);
    await to.fill(quiet);
    await card.getByText('No refusal with details in this period').waitFor();
    await card.getByText(`${period}: 450 refusals; details of 13 were left out.`).waitFor();
    expect(await card.getByText('Details of the refusals were left out').count()).toBe(0);
    // The hour after the storm had none.
    const later = new Date(Date.parse(`${stormAt}Z`) + hourMs).toISOString().slice(0, 16);
    await from.fill(later);
    await to.fill(later);
    await card.getByText('Nothing was refused in this period').waitFor();
    await from.fill('');
    await to.fill('');
    await expect.poll(() => rows().count()).toBe(50);
  });

  test('a refusal by a limit that the request named is asked again', async () => {
    const ratelimits = [{ name: 'tokens', limit: 10, duration: hourMs }];
    const { keyId, key } = await h.createKey({ ratelimits });
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 11 }] });
    await open(`/why/${keyId}`);
    await page().getByText('All 8 rules pass').waitFor();
    await page().locator('.notice').getByRole('link', { name: 'Ask with this limit' }).click();
    await page().getByText('The answer is Rate limited').waitFor();
    expect(await page().getByLabel('Limits that it names').inputValue()).toBe('tokens=11');
    await page().getByText('tokens: 0 of 10 in any 1 h are used, the cost is 11.').waitFor();
    expect(await page().locator('.notice').count()).toBe(0);
    expect(await violations()).toEqual([]);
    await page().getByLabel('Limits that it names').fill('tokens');
    await page().getByRole('button', { name: 'Explain', exact: true }).click();
    await page().getByText('The answer is Valid').waitFor();
  });

  test('what is asked is in the address once its key is found, but no key string is', async () => {
    const field = (label: string) => page().getByLabel(label);
    const explain = button('Explain');
    const address = () =>
      page()
        .url()
        .replace(/^.*\/console/, '');
    await open('/why');
    await field('Key or key id').fill(ada.keyId);
    await field('Permissions, as a query').fill('documents.write');
    await explain.click();
    await page().getByText('The answer is Lacks permission').waitFor();
    await expect.poll(address).toBe(`/why/${ada.keyId}?permissions=documents.write`);
    await field('Permissions, as a query').fill('');
    await field('Cost in credits').fill('5');
    await field('IP address').fill('203.0.113.7');
    await explain.click();
    await page().getByText('The answer is Usage exceeded').waitFor();
    await expect.poll(address).toBe(`/why/${ada.keyId}?cost=5&ip=203.0.113.7`);
    await page().goBack();
    await page().getByText('The answer is Lacks permission').waitFor();
    expect(await field('Cost in credits').inputValue()).toBe('');
    await page().goForward();
    await page().getByText('The answer is Usage exceeded').waitFor();
    await page().reload();
    await page().getByText('The answer is Usage exceeded').waitFor();
    expect(await field('IP address').inputValue()).toBe('203.0.113.7');

    const last = address();
    const { key, keyId } = await h.createKey({ prefix: 'key' });
    for (const [label, text, answer] of [
      ['Permissions, as a query', key, 'Lacks permission'],
      ['Key or key id', key, /./],
      ['Key or key id', keyId.slice(0, -1), /./],
    ] as const) {
      const before = await field(label).inputValue();
      await field('Cost in credits').fill('');
      await field(label).fill(text);
      const [response] = await Promise.all([page().waitForResponse('**/v2/keys.explainKey'), explain.click()]);
      await response.finished();
      if (answer === 'Lacks permission') await page().getByText(`The answer is ${answer}`).waitFor();
      expect(address()).toBe(last);
      await field(label).fill(before);
    }
  });

  test('a limit whose name has a space is not asked as two', async () => {
    const { keyId, key } = await h.createKey({ ratelimits: [{ name: 'large files', limit: 10, duration: hourMs }] });
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'large files', cost: 11 }] });
    await open(`/why/${keyId}`);
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().textContent()).toContain('large files: 10 in any 1 h');
    expect(await page().getByRole('link', { name: 'Ask with this limit' }).count()).toBe(0);
  });
});
