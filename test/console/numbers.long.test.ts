// Figures that people can read, in a real browser: factors in the place of large percentages, no comparison with a time
// before the first key, all digits, and what quantiles mean.

import { beforeAll, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open } = consoleInChromium(h);
  let key: { keyId: string; key: string };

  beforeAll(async () => {
    const now = h.clock.now;
    h.clock.now = now - 3 * dayMs;
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    const old = await h.createKey({ apiId, credits: { remaining: 50_000 } });
    h.clock.now = now - 36 * hourMs;
    await ok('keys.verifyKey', { key: old.key, credits: { cost: 2 } });
    h.clock.now = now - 2 * hourMs;
    key = await h.createKey({ apiId, name: 'new' });
    for (let times = 0; times < 11; times++) await ok('keys.verifyKey', { key: old.key });
    await ok('keys.verifyKey', { key: old.key, credits: { cost: 12_345 } });
    await ok('keys.verifyKey', { key: key.key });
    h.clock.now = now;
  });

  const figure = async (label: string) => {
    const of = page().locator('.figure', { hasText: label });
    await expect.poll(() => of.locator('.figure-value').textContent()).not.toBe('–');
    return `${await of.locator('.figure-value').textContent()} ${(await of.locator('.figure-note').textContent())!.trim()}`.trim();
  };

  test('a factor from ten times on, all digits, and no share of zero', async () => {
    await open('/');
    await page().getByText('13 × the period before').waitFor();
    expect(await figure('Verifications')).toBe('13 13 × the period before');
    expect(await figure('Credits spent')).toBe('12,356 6,178 × the period before');
    expect(await figure('Refused')).toBe('0');
    await page().getByText('7 days').click();
    await page().getByText('no full period before').waitFor();
    // One note for all figures.
    expect(await figure('Credits spent')).toBe('12,358');
    await page().getByText('1 hour', { exact: true }).click();
    await expect.poll(() => figure('Verifications')).toBe('0');
    expect(await page().locator('.figure', { hasText: 'Valid' }).textContent()).not.toContain('of 0');
  });

  test('a key is not compared with the time before it', async () => {
    await open(`/keys/${key.keyId}`);
    await page().getByText('no full period before').waitFor();
    expect(await figure('Verifications')).toBe('1 no full period before');
  });

  test('System names its quantiles', async () => {
    await open('/system');
    expect(await figure('From this page to the server and back, median (p50)')).toMatch(
      /^\d+\.\d ms 95 % within \d+\.\d ms \(p95\)/,
    );
  });
});
