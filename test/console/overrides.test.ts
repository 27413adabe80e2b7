// Overrides in a real browser: for how long one applies, and what applies afterwards.

import { beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const minute = 60_000;

inChromium(() => {
  const { page, open: openPath, dialog, save, looksRight } = consoleInChromium(h);
  let namespace: string;
  let made = 0;

  beforeEach(async () => {
    h.clock.now = Date.now();
    namespace = `mail ${++made}`;
    await set('user_42', 10);
  });

  const set = (identifier: string, limit: number, until?: number) =>
    ok('ratelimits.setOverride', { namespace, identifier, limit, duration: minute, ...(until && { until }) });
  const get = (identifier: string) => ok('ratelimits.getOverride', { namespace, identifier });
  const open = () => openPath(`/rate-limits/${encodeURIComponent(namespace)}`);
  const row = (identifier: string) => page().locator('tbody tr', { hasText: identifier });
  const edit = (identifier: string) => row(identifier).getByRole('button', { name: 'Edit' }).click();

  test('a limit is raised for a day, and the list has the end and what applies then', async () => {
    await open();
    expect(await row('user_42').textContent()).toContain('always');
    await edit('user_42');
    await dialog().getByLabel('Limit').fill('500');
    const before = Date.now();
    await dialog().getByLabel('Applies').selectOption({ label: 'for 1 day' });
    expect(await dialog().textContent()).toMatch(/Until \d{4}-\d\d-\d\d \S+ UTC, then 10 in any 1 min\./);
    await save();
    await expect
      .poll(() => row('user_42').textContent())
      .toMatch(/500.*until \d{4}-\d\d-\d\d \d\d:\d\d UTC, then 10 in any 1 min/);
    const { until, former } = await get('user_42');
    expect(former).toEqual({ limit: 10, duration: minute });
    expect(until! - before).toBeGreaterThanOrEqual(dayMs);
    expect(until! - Date.now()).toBeLessThanOrEqual(dayMs);
  });

  test('an edit keeps the end; always replaces the former one, too', async () => {
    const until = Date.now() + 5 * hourMs;
    await set('user_42', 500, until);
    await open();
    await edit('user_42');
    expect(await dialog().getByLabel('Applies').inputValue()).toBe('keep');
    await dialog().getByLabel('Limit').fill('600');
    await save();
    expect(await get('user_42')).toMatchObject({ limit: 600, until, former: { limit: 10 } });
    await expect.poll(() => row('user_42').textContent()).toContain('600');
    await edit('user_42');
    await dialog().getByLabel('Applies').selectOption({ label: 'always' });
    await dialog().getByText('Replaces 10 in any 1 min, too.').waitFor();
    await save();
    const permanent = await get('user_42');
    expect(permanent).toMatchObject({ limit: 600 });
    expect(permanent).not.toHaveProperty('until');
  });

  test('a new one until a time, and a time that is refused', async () => {
    await open();
    await page().getByRole('button', { name: 'New override' }).click();
    await dialog().getByLabel('Identifier').fill('guest_*');
    await dialog().getByLabel('In any').fill('1 min 30 s');
    await dialog().getByLabel('Applies').selectOption({ label: 'until …' });
    expect(await dialog().getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    const time = (ms: number) => new Date(ms).toISOString().slice(0, 16);
    await dialog()
      .getByLabel('Until, UTC')
      .fill(time(Date.now() + 400 * dayMs));
    await dialog().getByRole('button', { name: 'Save' }).click();
    await dialog().getByText('must be at most 366 days ahead').first().waitFor();
    const until = Date.now() + 10 * dayMs;
    await dialog().getByLabel('Until, UTC').fill(time(until));
    await dialog().getByText(', then its permanent override, if it has one.').waitFor();
    await save();
    await expect
      .poll(() => row('guest_*').textContent())
      .toContain(`until ${time(until).replace('T', ' ')} UTC, then none`);
    const expected = { duration: 90_000, until: Math.floor(until / minute) * minute };
    expect(await get('guest_*')).toMatchObject(expected);
    // It leaves the list when it ends: the card looks again every ten seconds.
    h.clock.advance(11 * dayMs);
    await expect.poll(() => row('guest_*').count(), { timeout: 20_000 }).toBe(0);
    h.clock.now = Date.now();
  });

  test('a new one for an identifier that has a permanent one does not state that none applies then', async () => {
    await open();
    await page().getByRole('button', { name: 'New override' }).click();
    await dialog().getByLabel('Identifier').fill('user_42');
    await dialog().getByLabel('Applies').selectOption({ label: 'for 1 day' });
    await dialog()
      .getByText(/Until .* UTC, then its permanent override, if it has one\.$/)
      .waitFor();
    await save();
    await expect.poll(() => row('user_42').textContent()).toContain('then 10 in any 1 min');
  });

  test('on a narrow screen and in both themes', async () => {
    await set('user_42', 500, Date.now() + dayMs);
    await open();
    await row('user_42').waitFor();
    await looksRight('overrides');
    await edit('user_42');
    await looksRight('overrides-form');
  });
});
