// Limits of keys and customers that end, in a real browser: the page displays the end, and an edit keeps it.

import { beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const minute = 60_000;
const requests = { name: 'requests', limit: 10, duration: minute, autoApply: true };
const former = { limit: 10, duration: minute, autoApply: true };

inChromium(() => {
  const { page, goTo, open, card: cardOf, dialog, save, looksRight } = consoleInChromium(h);

  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const card = () => cardOf(/^Limits/);
  const row = (name: string) => card().locator('tbody tr', { hasText: name });
  const limitsOf = async (keyId: string) => (await ok('keys.getKey', { keyId })).ratelimits!;
  const edit = () => card().getByRole('button', { name: 'Edit' }).click();

  test('a limit that is renamed keeps its end, and all others the durations that they have', async () => {
    const until = Date.now() + dayMs;
    const long = { name: 'long', limit: 5, duration: 90_061_000, autoApply: false };
    const { keyId } = await h.createKey({ ratelimits: [long, { ...requests, until }] });
    await open(`/keys/${keyId}`);
    await edit();
    await dialog().getByLabel('Name').last().fill('renamed');
    expect(await dialog().getByLabel('Applies').last().inputValue()).toBe('keep');
    await save();
    expect((await limitsOf(keyId)).map(({ id: _, ...limit }) => limit)).toEqual([
      long,
      { ...requests, name: 'renamed', until },
    ]);
    await page()
      .getByText(/renamed 10 per 1 min, autoApply, until \d{4}-\d\d-\d\d [\d:]+ UTC/)
      .waitFor();
  });

  test('what applies after it is of the type before', async () => {
    const { keyId } = await h.createKey({ ratelimits: [requests] });
    await open(`/keys/${keyId}`);
    await edit();
    await dialog().getByLabel('Limits', { exact: true }).selectOption('concurrency');
    await dialog().getByLabel('Applies').selectOption({ label: 'for 1 day' });
    await dialog().getByText('UTC, then 10 in any 1 min.').waitFor();
  });

  test('a limit of a key is raised for a day, and an edit of other fields keeps the end', async () => {
    const { keyId } = await h.createKey({ ratelimits: [requests] });
    await open(`/keys/${keyId}`);
    await card().waitFor();
    await edit();
    await dialog().getByLabel('Units').fill('500');
    const before = Date.now();
    await dialog().getByLabel('Applies').selectOption({ label: 'for 1 day' });
    await dialog().getByText('UTC, then 10 in any 1 min.').waitFor();
    await save();
    const [raised] = await limitsOf(keyId);
    expect(raised).toMatchObject({ limit: 500, former });
    expect(raised!.until! - before).toBeGreaterThanOrEqual(dayMs);
    await expect
      .poll(() => row('requests').textContent())
      .toMatch(/500 in any 1 min.*until \d{4}-\d\d-\d\d \S+ UTC, then 10 in any 1 min/);
    await edit();
    expect(await dialog().getByLabel('Applies').inputValue()).toBe('keep');
    await dialog().getByLabel('Units').fill('600');
    await dialog().getByLabel('Checked in every request').uncheck();
    await save();
    expect(await limitsOf(keyId)).toMatchObject([{ limit: 600, autoApply: false, until: raised!.until, former }]);
    await expect.poll(() => row('requests').textContent()).toContain('600 in any');
    await edit();
    await dialog().getByLabel('Applies').selectOption({ label: 'always' });
    await dialog().getByText('Replaces 10 in any 1 min, too.').waitFor();
    await save();
    const [permanent] = await limitsOf(keyId);
    expect(permanent).toMatchObject({ limit: 600 });
    expect(permanent).not.toHaveProperty('until');
  });

  test('a limit of a customer, in its screen, the list and Explain', async () => {
    const until = Math.floor((Date.now() + 5 * hourMs) / minute) * minute;
    const externalId = 'customer_with_end';
    await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    await ok('identities.updateIdentity', { identity: externalId, ratelimit: { name: 'requests', limit: 500, until } });
    const { keyId } = await h.createKey({ externalId });
    const end = `until ${new Date(until).toISOString().slice(0, 19).replace('T', ' ')} UTC, then 10 in any 1 min`;
    await open(`/customers/${externalId}`);
    await expect.poll(() => row('requests').textContent()).toContain(end);
    await edit();
    await dialog().getByRole('button', { name: 'Add a limit' }).click();
    await dialog().getByLabel('Name').last().fill('added');
    await save();
    const { ratelimits } = await ok('identities.getIdentity', { identity: externalId });
    expect(ratelimits).toMatchObject([
      { limit: 500, until, former },
      { name: 'added', limit: 100 },
    ]);
    expect(ratelimits[1]).not.toHaveProperty('until');
    await goTo('/customers');
    await expect.poll(() => page().locator('tbody tr', { hasText: externalId }).textContent()).toContain(end);
    await goTo(`/why/${keyId}`);
    await expect.poll(() => row('requests').textContent()).toContain(end);
  });

  test('on a narrow screen and in both themes', async () => {
    const until = Date.now() + dayMs;
    const { keyId } = await h.createKey({ ratelimits: [requests] });
    await ok('keys.updateKey', { keyId, ratelimit: { name: 'requests', limit: 500, until } });
    await open(`/keys/${keyId}`);
    await row('requests').waitFor();
    await looksRight('limits');
    await edit();
    await looksRight('limits-form');
  });
});
