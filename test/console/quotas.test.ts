// Quotas in a real browser: forms with a period, and how much of one is used until it renews.

import { beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, goTo, open, card: cardOf, dialog, save, looksRight } = consoleInChromium(h);

  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const limits = () => cardOf(/^Limits/);
  const row = (name: string) => limits().locator('tbody tr', { hasText: name });

  test('a limit becomes a quota from a time on, and an edit of its number keeps its anchor to the second', async () => {
    const { keyId } = await h.createKey({ ratelimits: [{ name: 'tokens', limit: 10, duration: 60_000 }] });
    const read = async () => (await ok('keys.getKey', { keyId })).ratelimits!;
    await open(`/keys/${keyId}`);
    const edit = () => limits().getByRole('button', { name: 'Edit' }).click();
    await edit();
    await dialog().getByLabel('Units').fill('10,000');
    await dialog().getByLabel('Per', { exact: true }).selectOption('month');
    await dialog().getByLabel('Periods begin at').fill('2026-01-31T09:30');
    await looksRight('quota-form');
    await save();
    const anchor = Date.UTC(2026, 0, 31, 9, 30);
    expect(await read()).toMatchObject([{ name: 'tokens', limit: 10_000, type: 'quota', period: 'month', anchor }]);
    await expect.poll(() => row('tokens').textContent()).toContain('10,000 each month, from 2026-01-31 09:30 UTC');

    const exact = anchor + 12_345;
    await ok('keys.updateKey', { keyId, ratelimit: { name: 'tokens', limit: 10_000, anchor: exact } });
    await page().reload();
    await edit();
    await dialog().getByLabel('Units').fill('20000');
    await save();
    expect(await read()).toMatchObject([{ limit: 20_000, period: 'month', anchor: exact }]);
    await edit();
    await dialog().getByLabel('Per', { exact: true }).selectOption('');
    await dialog().getByLabel('In any').fill('1 h');
    await save();
    const [window] = await read();
    expect(window).toMatchObject({ limit: 20_000, duration: 3_600_000 });
    expect(window).not.toHaveProperty('period');
  });

  test('what is used, and when it renews', async () => {
    const tokens = { name: 'tokens', limit: 10_000, period: 'year' as const, autoApply: true };
    const { key, keyId } = await h.createKey({ ratelimits: [tokens] });
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 1234 }] });
    await open(`/keys/${keyId}`);
    const renews = `renews ${new Date(h.clock.now).getUTCFullYear() + 1}-01-01 00:00 UTC`;
    await expect.poll(() => row('tokens').textContent()).toContain(`1,234 of 10,000 this year${renews}`);
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 8766 }] });
    await goTo(`/why/${keyId}`);
    await page().getByText('tokens: 10,000 of 10,000 of this year are used, the cost is 1.').waitFor();
  });

  test('an override is a quota', async () => {
    await ok('ratelimits.setOverride', { namespace: 'mail', identifier: 'ada', limit: 5, duration: 60_000 });
    await open('/rate-limits/mail');
    await page().getByRole('button', { name: 'New override' }).click();
    await dialog().getByLabel('Identifier').fill('bob');
    await dialog().getByLabel('Limit', { exact: true }).fill('7');
    await dialog().getByLabel('Per', { exact: true }).selectOption('week');
    await save();
    const found = await ok('ratelimits.getOverride', { namespace: 'mail', identifier: 'bob' });
    expect(found).toMatchObject({ limit: 7, period: 'week', anchor: 4 * 86_400_000 });
    await expect.poll(() => page().locator('tbody tr', { hasText: 'bob' }).textContent()).toContain('7week');
  });
});
