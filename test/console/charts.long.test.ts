// Charts and rankings in a real browser: what a pointer, a finger or the keyboard reads in them, and the periods that
// they choose.

import { beforeAll, describe, expect, test } from 'vitest';
import { consoleInChromium, inChromium, shots } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;

inChromium(() => {
  const { page, open, violations, isWithinWidth } = consoleInChromium(h);
  /** The start of the hour, this many hours ago. */
  const hour = (ago: number) => (Math.floor(Date.now() / hourMs) - ago) * hourMs;
  const text = (ms: number) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ');
  let limited: { keyId: string; key: string };

  beforeAll(async () => {
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    h.clock.now = Math.min(hour(30), Math.floor(Date.now() / dayMs) * dayMs - 12 * dayMs);
    const key = (name: string, more = {}) => h.createKey({ apiId, name, externalId: name, ...more });
    const [ada, bob] = [await key('ada'), await key('bob', { enabled: false })];
    limited = await key('eve', { ratelimits: [{ name: 'requests', limit: 3, duration: hourMs, autoApply: true }] });
    const verify = async ({ key }: { key: string }, times: number) => {
      for (let time = 0; time < times; time++) await ok('keys.verifyKey', { key });
    };
    await verify(limited, 4);
    h.clock.now = hour(5);
    await verify(ada, 6);
    h.clock.now = hour(3);
    await verify(ada, 4);
    await verify(limited, 4);
    await verify(bob, 1);
    h.clock.now = Date.now();
    await verify(ada, 2);
  });

  const slider = () => page().getByRole('slider', { name: /^Verifications by outcome/ });
  const tip = () => page().locator('.tip');
  const figure = (label: string) => page().locator('.figure', { hasText: label }).locator('.figure-value');
  /** The middle of a bar of the last 24 hours. */
  const at = async (ago: number) => {
    const { x, y, width, height } = (await slider().boundingBox())!;
    return [x + ((23.5 - ago) / 24) * width, y + height / 2] as const;
  };
  const overview = async () => {
    await open('/');
    await slider().waitFor();
    await expect.poll(() => figure('Verifications').textContent()).toBe('17');
  };

  test('a pointer reads a bar, and a click makes its hour the period', async () => {
    await overview();
    await page().mouse.move(...(await at(3)));
    await expect
      .poll(() => tip().locator('caption').textContent())
      .toBe(`${text(hour(3))} to ${text(hour(2)).slice(11)} UTC`);
    const rows = await tip().locator('tr').allTextContents();
    expect(rows.map((row) => row.trim())).toEqual(['Valid777.8 %', 'Rate limited111.1 %', 'Disabled111.1 %', 'All9']);
    await shots(page(), 'chart-hover');
    await page().mouse.move(...(await at(3)));
    await page().mouse.move(5, 5);
    await tip().waitFor({ state: 'detached' });
    await page().mouse.click(...(await at(3)));
    await expect.poll(() => figure('Verifications').textContent()).toBe('9');
    expect(await page().getByRole('radio', { checked: true }).count()).toBe(1);
    await page()
      .locator('.chosen', { hasText: text(hour(3)) })
      .waitFor();
    // The rankings are of that hour, too.
    await page().getByRole('region', { name: 'Largest customers' }).getByText('eve', { exact: true }).waitFor();
    // The address has it, so reload keeps it and Back leaves it.
    expect(new URL(page().url()).searchParams.get('period')).toBe(`${hour(3)}-${hour(2)}`);
    await page().reload();
    await expect.poll(() => figure('Verifications').textContent()).toBe('9');
    await page().goBack();
    await expect.poll(() => figure('Verifications').textContent()).toBe('17');
    await page().goForward();
    await page().getByText('24 hours').click();
    await expect.poll(() => figure('Verifications').textContent()).toBe('17');
  });

  test('an invalid or too long period in the address is replaced by 24 hours', async () => {
    for (const period of ['0-99999999999999', '5-1', '1-', 'x']) {
      await open(`/?period=${period}`);
      await page().locator('.chosen', { hasText: '24 hours' }).waitFor();
      await expect.poll(() => figure('Verifications').textContent()).toBe('17');
      await page().evaluate('sessionStorage.clear()');
      await page().goto('about:blank');
    }
  });

  test('a drag takes several hours', async () => {
    await overview();
    await page().mouse.move(...(await at(5)));
    await page().mouse.down();
    await page().mouse.move(...(await at(3)), { steps: 4 });
    expect(await tip().textContent()).toContain('All15');
    await shots(page(), 'chart-drag');
    await page().mouse.move(...(await at(5)));
    await page().mouse.move(...(await at(3)));
    await page().mouse.up();
    await expect.poll(() => figure('Verifications').textContent()).toBe('15');
    await expect.poll(() => slider().getAttribute('aria-valuemax')).toBe('2');
  });

  test('the keyboard reads and chooses what a pointer does', async () => {
    await overview();
    await slider().focus();
    await page().keyboard.press('End');
    await expect.poll(() => slider().getAttribute('aria-valuetext')).toMatch(/ UTC, not over yet: 2; Valid 2, 100 %$/);
    for (let times = 0; times < 3; times++) await page().keyboard.press('ArrowLeft');
    expect(await slider().getAttribute('aria-valuetext')).toMatch(
      /UTC: 9; Valid 7, 77\.8 %; Rate limited 1, 11\.1 %; Disabled 1, 11\.1 %$/,
    );
    await page().keyboard.press('Shift+ArrowLeft');
    await page().keyboard.press('Shift+ArrowLeft');
    expect(await slider().getAttribute('aria-valuetext')).toMatch(/UTC: 15; Valid 13, 86\.7 %/);
    await page().keyboard.press('Escape');
    await tip().waitFor({ state: 'detached' });
    await page().keyboard.press('Home');
    expect(await slider().getAttribute('aria-valuenow')).toBe('0');
    for (let times = 0; times < 20; times++) await page().keyboard.press('ArrowRight');
    await page().keyboard.press('Enter');
    await expect.poll(() => figure('Verifications').textContent()).toBe('9');
    expect(await violations()).toEqual([]);
  });

  test('one large hour is cut, as a note states, and the period before is a line', async () => {
    // The figures of the other tests stay.
    const { rootKey, of } = await h.openWorkspace();
    const { apiId } = await of('apis.createApi', { name: 'peaks' });
    const { key } = await of('keys.createKey', { apiId });
    const verify = async (ago: number, times: number) => {
      h.clock.now = hour(ago);
      for (let time = 0; time < times; time++) await of('keys.verifyKey', { key });
    };
    for (const ago of [28, 9, 8, 7, 6, 5]) await verify(ago, 2);
    await verify(4, 62);
    for (const ago of [3, 2]) await verify(ago, 2);
    h.clock.now = Date.now();
    await open('/', rootKey);
    await expect.poll(() => figure('Verifications').textContent()).toBe('76');
    const note = page().getByText('The scale ends at 4: bars that reach the top are higher.');
    await note.waitFor();
    await page()
      .getByRole('button', { name: /^The period before 2$/ })
      .waitFor();
    expect(await violations()).toEqual([]);
    await shots(page(), 'chart-cut');
    await page().getByRole('button', { name: 'Whole scale' }).click();
    await note.waitFor({ state: 'detached' });
    await page().getByText('Figures', { exact: true }).click();
    await page().getByRole('columnheader', { name: 'The period before' }).waitFor();
  });

  test('the legend hides a series, and the hour that is not over is hatched', async () => {
    await overview();
    const valid = page().getByRole('button', { name: /^Valid/ });
    const drawn = () =>
      page()
        .locator('.chart canvas')
        .evaluate((canvas: Canvas) => canvas.toDataURL());
    const before = await drawn();
    await valid.click();
    expect(await valid.getAttribute('aria-pressed')).toBe('false');
    await expect.poll(drawn).not.toBe(before);
    await page().mouse.move(...(await at(3)));
    expect(await tip().textContent()).toContain('Rate limited111.1 %');
    expect(await tip().textContent()).not.toContain('Valid');
    await shots(page(), 'chart-hidden');
    await valid.press('Enter');
    await expect.poll(drawn).toBe(before);
    const now = (await page().locator('.plot-now').boundingBox())!;
    const all = (await slider().boundingBox())!;
    expect(now.x + now.width).toBeCloseTo(all.x + all.width, 0);
    expect(now.width).toBeCloseTo(all.width / 24, 0);
  });

  test('a finger explores, and a button chooses', async () => {
    await overview();
    const [x, y] = await at(3);
    const touch = (type: string) =>
      slider().dispatchEvent(type, {
        pointerType: 'touch',
        pointerId: 1,
        isPrimary: true,
        button: 0,
        clientX: x,
        clientY: y,
        bubbles: true,
      });
    await page().evaluate('Element.prototype.setPointerCapture = () => {}');
    await touch('pointerdown');
    await touch('pointerup');
    await tip().getByRole('button', { name: 'Show this period' }).waitFor();
    await expect.poll(() => figure('Verifications').textContent()).toBe('17');
    await tip().getByRole('button', { name: 'Show this period' }).click();
    await expect.poll(() => figure('Verifications').textContent()).toBe('9');
  });

  test('days of which no hours are kept are drawn as days', async () => {
    await open(`/keys/${limited.keyId}`);
    await page().getByText('30 days').click();
    const day = Math.floor(Date.now() / dayMs) * dayMs - 12 * dayMs;
    await slider().focus();
    await page().keyboard.press('End');
    for (let times = 0; times < 12; times++) await page().keyboard.press('ArrowLeft');
    expect(await slider().getAttribute('aria-valuetext')).toMatch(`${text(day).slice(0, 10)} UTC: 4;`);
    await page().keyboard.press('Enter');
    await page()
      .getByText(/^By day: the hours of these days/)
      .waitFor();
    await expect
      .poll(() => slider().getAttribute('aria-valuetext'))
      .toBe(`${text(day).slice(0, 10)} UTC: 4; Valid 3, 75.0 %; Rate limited 1, 25.0 %`);
  });

  test('a ranking has shares, and marks what is mostly refused', async () => {
    await overview();
    const row = (name: string) =>
      page().getByRole('region', { name: 'Largest customers' }).getByRole('row').filter({ hasText: name });
    await expect.poll(() => row('ada').textContent()).toBe('ada1270.6 %00');
    await expect.poll(() => row('bob').textContent()).toContain('1100 %');
    expect(await row('bob').locator('.number.hot').count()).toBe(1);
    expect(await row('eve').locator('.number.hot').count()).toBe(0);
    await shots(page(), 'ranking');
  });

  describe.each(['light', 'dark'] as const)('%s', (colorScheme) => {
    test('axe finds nothing, and a narrow screen has room', async () => {
      await overview();
      await page().emulateMedia({ colorScheme });
      await page().mouse.move(...(await at(3)));
      expect(await violations()).toEqual([]);
      await page().setViewportSize({ width: 390, height: 800 });
      await slider().focus();
      for (const key of ['Home', 'End', 'ArrowLeft']) {
        await page().keyboard.press(key);
        expect(await isWithinWidth()).toBe(true);
      }
    });
  });
});

interface Canvas {
  toDataURL(): string;
}
