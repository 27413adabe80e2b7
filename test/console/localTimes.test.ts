// Times in a real browser of another zone: local times beside UTC, and what the fields for times read.

import { beforeAll, expect, test } from 'vitest';
import { inChromium, serverAndBrowser, signIn, violationsOf } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { url, browser } = serverAndBrowser(h);
  let keyId: string;
  /** Seven and a half hours after midnight of UTC; in Kolkata 5:30 later, it is 13:00. */
  const now = Math.floor(Date.now() / dayMs) * dayMs + 7.5 * hourMs;
  const iso = (ms: number) => new Date(ms).toISOString().slice(0, 16);

  beforeAll(async () => {
    h.clock.now = now;
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    const key = await h.createKey({ apiId, expires: now + 400 * dayMs });
    keyId = key.keyId;
    await ok('keys.verifyKey', { key: key.key, permissions: 'none' });
  });

  const open = async (path: string) => {
    const page = await browser().newPage({ timezoneId: 'Asia/Kolkata' });
    await page.clock.setFixedTime(now);
    await page.goto(`${url()}/console${path}`);
    await signIn(page, h.rootKey);
    return page;
  };

  test('the choice displays local times beside UTC, and stays', async () => {
    const page = await open(`/keys/${keyId}`);
    const expires = page.locator('dt:text("Expires") + dd');
    const text = iso(now + 400 * dayMs).replace('T', ' ');
    await expires.getByText(`${text}:00 UTC`, { exact: true }).waitFor();
    await page.getByLabel('Times').selectOption('UTC and local time');
    await expires.getByText(`${text}:00 UTC (13:00 here)`, { exact: true }).waitFor();
    expect(await violationsOf(page)).toEqual([]);
    await page.reload();
    await expires.getByText('(13:00 here)').waitFor();
    expect(await page.evaluate("localStorage.getItem('tollgate.times')")).toBe('local');
    await page.goto(`${url()}/console/attention`);
    await page.getByRole('region', { name: 'Recent refusals' }).getByText('(13:00 here)').first().waitFor();
    await page.getByLabel('Times').selectOption('Times in UTC');
    await expect.poll(() => page.getByText('here)').count()).toBe(0);
    await page.close();
  });

  test('14:03, yesterday 14:03, days and whole times are read in the zone that is chosen', async () => {
    const page = await open('/attention');
    const from = () => new URL(page.url()).searchParams.get('from') ?? '';
    const day = (ago: number) => iso(now - ago * dayMs).slice(0, 10);
    const field = () => page.getByLabel(/^From, /);
    const reads = async (text: string, expected: string) => {
      await field().fill(text);
      await expect.poll(from, { message: text }).toBe(expected);
    };
    // A time without a day is the last one.
    await reads('7:03', `${day(0)}T07:03`);
    await reads('14:03', `${day(1)}T14:03`);
    await reads('Yesterday 14:03', `${day(1)}T14:03`);
    await reads('today 7:00', `${day(0)}T07:00`);
    await reads('yesterday', `${day(1)}T00:00`);
    await reads('2026-02-28', '2026-02-28T00:00');
    await reads('2026-02-28 09:05', '2026-02-28T09:05');
    await reads('2026-02-28T09:06', '2026-02-28T09:06');
    for (const text of ['2026-02-30', '24:03', '14:60', 'monday', 'T', '12026-01-01 00:00']) await reads(text, '?');
    await page.getByText('A time such as 14:03, yesterday 14:03 or 2026-11-22 14:03.').waitFor();
    expect(await field().getAttribute('aria-invalid')).toBe('true');
    await reads('14:03', `${day(1)}T14:03`);
    await field().blur();
    expect(await field().inputValue()).toBe(`${day(1)} 14:03`);
    await page.getByLabel('Times').selectOption('UTC and local time');
    await page.getByLabel('From, local time').waitFor();
    // 14:03 in Kolkata is 8:33 in UTC, which was yesterday.
    await reads('14:03', `${day(1)}T08:33`);
    await reads('12:03', `${day(0)}T06:33`);
    await reads('', '');
    await page.close();
  });

  test('of an expiry, a time without a day is the next one, and a wrong text saves nothing', async () => {
    const page = await open(`/keys/${keyId}`);
    await page.getByRole('button', { name: 'Edit' }).first().click();
    const dialog = page.getByRole('dialog');
    const field = dialog.getByLabel('Expires, UTC');
    const save = dialog.getByRole('button', { name: 'Save' });
    await field.fill('soon');
    expect(await save.isDisabled()).toBe(true);
    await dialog.getByRole('button', { name: '1 field is wrong: go to the first' }).click();
    await expect.poll(() => page.evaluate('document.activeElement.value')).toBe('soon');
    await dialog.getByRole('button', { name: 'Never' }).click();
    expect(await field.inputValue()).toBe('');
    await field.fill('6:00');
    await save.click();
    await dialog.waitFor({ state: 'detached' });
    expect((await ok('keys.getKey', { keyId })).expires).toBe(Date.parse(`${iso(now + dayMs).slice(0, 10)}T06:00Z`));
    await page.close();
  });

  test('a temporary limit keeps what is typed until it is a time', async () => {
    await ok('ratelimits.setOverride', { namespace: 'mail', identifier: 'ada', limit: 10, duration: 60_000 });
    const page = await open('/rate-limits/mail');
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Applies').selectOption({ label: 'until …' });
    const field = page.getByLabel('Until, UTC');
    await field.pressSequentially('tomorrow 14:0');
    expect(await field.inputValue()).toBe('tomorrow 14:0');
    expect(await page.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    await field.pressSequentially('3');
    await page.getByText(`Until ${iso(now + dayMs).slice(0, 10)} 14:03:00 UTC, then 10 in any 1 min.`).waitFor();
    await page.close();
  });
});
