// The API reference at /docs: the served files, and a call from the page in a real browser.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstPaths, sampleOrigin, type samplesOf } from '../../src/http/samples.ts';
import { closeContexts, inChromium, sharedChromium } from '../support/chromium.ts';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';
import { thoroughTest } from '../support/testIf.ts';

const h = harness();
const { resolve } = createRequire(import.meta.url);
let server: Awaited<ReturnType<typeof serveStore>>;
let url: string;

beforeAll(async () => {
  server = await serveStore(h.store);
  url = server.url;
});
afterAll(() => server.close());

const policyOf = (response: Response) => response.headers.get('content-security-policy')!;

describe('the pages of /docs', () => {
  test('the page allows content of this server only', async () => {
    const response = await fetch(`${url}/docs`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(response.headers.get('cache-control')).toBe('no-cache');
    expect(policyOf(response)).toContain("default-src 'none'; script-src 'self' 'sha256-");
    expect(policyOf(response)).not.toMatch(/unsafe|http|\*/);
    expect(await response.text()).not.toMatch(/https?:/);
  });

  test('/ redirects to the console', async () => {
    const response = await fetch(url, { redirect: 'manual' });
    expect([response.status, response.headers.get('location')]).toEqual([302, '/console']);
    expect((await fetch(url, { method: 'POST' })).status).toBe(405);
  });

  test('/docs/ redirects to it', async () => {
    const response = await fetch(`${url}/docs/`, { redirect: 'manual' });
    expect([response.status, response.headers.get('location')]).toEqual([308, '/docs']);
  });

  test.each([
    ['swagger-ui-bundle.js', 'text/javascript; charset=utf-8'],
    ['swagger-ui.css', 'text/css; charset=utf-8'],
  ])('%s is complete, and may be cached for ever, as its name has the version', async (file, contentType) => {
    const { version } = JSON.parse(readFileSync(resolve('swagger-ui-dist/package.json'), 'utf8'));
    const html = await (await fetch(`${url}/docs`)).text();
    const [path] = new RegExp(`/docs/[^"]*${version}\\.${file.split('.').at(-1)}`).exec(html)!;
    const response = await fetch(url + path);
    expect(response.headers.get('content-type')).toBe(contentType);
    expect(response.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    const sent = Buffer.from(await response.arrayBuffer());
    expect(sent.equals(readFileSync(resolve(`swagger-ui-dist/${file}`)))).toBe(true);
  });

  test.each([
    '/docs/swagger-ui-bundle.js',
    '/docs/swagger-ui-bundle.js.map',
    '/docs/index.html',
    '/docs/package.json',
    '/docs/..%2f..%2fpackage.json',
    '/docs/x',
  ])('nothing else: 404 for %s', async (path) => {
    expect((await fetch(url + path)).status).toBe(404);
  });

  test('no reference of the document is circular, as the page follows them', async () => {
    const document = (await (await fetch(`${url}/openapi.json`)).json()) as object;
    const follow = (node: unknown, followed: readonly string[]): void => {
      if (typeof node !== 'object' || node === null) return;
      const { $ref } = node as { $ref?: string };
      if ($ref === undefined) {
        for (const part of Object.values(node)) follow(part, followed);
        return;
      }
      expect(followed).not.toContain($ref);
      const names = $ref.slice('#/'.length).split('/');
      follow(
        names.reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], document),
        [...followed, $ref],
      );
    };
    follow(document, []);
  });

  test('with GET and HEAD only', async () => {
    const response = await fetch(`${url}/docs`, { method: 'POST' });
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });

  test.each(['/docs', '/openapi.json', '/errors/route_not_found', '/v2/liveness', '/health/live', '/health/ready'])(
    'HEAD of %s has the headers of GET',
    async (path) => {
      const headOf = async (method: string) => {
        const response = await fetch(url + path, { method, headers: { 'accept-encoding': 'identity' } });
        const { date: _date, 'x-request-id': _id, ...headers } = Object.fromEntries(response.headers);
        return { status: response.status, headers, bytes: (await response.arrayBuffer()).byteLength };
      };
      const got = await headOf('GET');
      expect(got.headers['content-length']).toBe(`${got.bytes}`);
      expect(await headOf('HEAD')).toEqual({ ...got, bytes: 0 });
    },
  );
});

inChromium(() => {
  let browser: Browser;
  let page: Page;
  /** Errors of the browser, and all addresses that it requests. */
  const complaints: string[] = [];
  const asked: string[] = [];

  beforeAll(async () => {
    browser = await sharedChromium();
    page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
    page.on('console', (message) => complaints.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('requestfailed', (request) => complaints.push(`failed: ${request.url()}`));
    page.on('request', (request) => asked.push(request.url()));
  });
  afterAll(() => closeContexts(browser));

  /** A folder for screenshots: SCREENSHOTS=<folder>. */
  async function picture(name: string) {
    const folder = process.env.SCREENSHOTS;
    if (folder) await page.screenshot({ path: `${folder}/docs-${name}.png` });
  }

  /** The first of the page: what it begins with is listed twice. */
  const operation = (name: string) =>
    page
      .locator('.opblock')
      .filter({ has: page.locator(`[data-path="/v2/${name}"]`) })
      .first();

  const listed = () => page.locator('.opblock-summary-path');
  const listedPaths = () => listed().evaluateAll((all) => all.map((each) => each.getAttribute('data-path')));

  async function openPage() {
    await page.goto(`${url}/docs`);
    await page.locator('.opblock').first().waitFor({ timeout: 60_000 });
  }

  /** As with the keyboard only: the field is the one that has the focus. */
  async function authorize() {
    const button = page.locator('.btn.authorize').first();
    await button.focus();
    await page.keyboard.press('Enter');
    await page.locator('.auth-container').first().waitFor();
    await picture('authorize');
    expect(await page.locator('.auth-container input').count()).toBe(1);
    await page.keyboard.insertText(h.rootKey);
    await page.keyboard.press('Enter');
    await page.locator('.dialog-ux').waitFor({ state: 'detached' });
    expect(await button.evaluate((element) => element === element.ownerDocument.activeElement)).toBe(true);
  }

  test('the page opens on the first three operations, with samples', { timeout: 120_000 }, async () => {
    await openPage();
    const first = Object.keys(firstPaths);
    expect(await page.locator('.opblock-tag').first().getAttribute('data-tag')).toBe('start here');
    expect((await listedPaths()).slice(0, first.length)).toEqual(first);
    const last = (await listed().nth(2).boundingBox())!;
    expect(last.y + last.height).toBeLessThan(page.viewportSize()!.height);
    await picture('start');

    const samples = (await (await fetch(`${url}/docs/samples.json`)).json()) as ReturnType<typeof samplesOf>;
    for (const path of ['/v2/keys.verifyKey', '/v2/keys.createKey']) {
      const shown = operation(path.slice('/v2/'.length));
      await shown.locator('.opblock-summary-control').click();
      const sample = shown.locator('.sample');
      await sample.waitFor();
      const { programs, variables } = samples[path]!;
      expect(await sample.locator('p').textContent()).toContain(`${variables.join(', ')}.`);
      const languages = await sample.getByRole('button', { name: /^\w+$/ }).allTextContents();
      expect(languages).toEqual(['curl', 'TypeScript', 'Python', 'Go']);
      for (const language of languages) {
        const button = sample.getByRole('button', { name: language });
        await button.press('Enter');
        expect(await button.getAttribute('aria-pressed')).toBe('true');
        expect(await sample.locator('[aria-pressed=true]').count()).toBe(1);
        const program = (await sample.locator('pre').textContent())!;
        expect(program).toBe(programs[language]!.replaceAll(sampleOrigin, url));
        await picture(`${path.split('.')[1]}-${language}`);
      }
    }
    // The next operation has the language that was chosen last.
    await operation('keys.whoami').locator('.opblock-summary-control').click();
    const next = operation('keys.whoami').locator('.sample');
    expect(await next.locator('[aria-pressed=true]').textContent()).toBe('Go');
    expect(await next.locator('pre').textContent()).toContain('os.Getenv("KEY")');
    expectNoComplaints();
  });

  test('the page lists every operation once, and can send a call', { timeout: 120_000 }, async () => {
    await openPage();
    const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: object };
    const names = Object.keys(paths).filter((path) => !path.startsWith('/v2/ratelimit.'));
    expect(names).toHaveLength(Object.keys(paths).length - 8);
    expect((await listedPaths()).slice(Object.keys(firstPaths).length).sort()).toEqual(names.sort());
    await picture('list');
    await authorize();

    const verify = operation('keys.verifyKey');
    await verify.locator('.opblock-summary-control').click();
    expect(await verify.locator('.opblock-section-request-body').textContent()).toContain('documents.read AND');
    expect(await verify.locator('.responses-table').textContent()).toContain('"VALID"');
    await picture('verifyKey');

    const { key, keyId } = await h.createKey({ credits: { remaining: 7 } });
    await verify.locator('.try-out__btn').click();
    await verify.locator('textarea.body-param__text').fill(JSON.stringify({ key }));
    await verify.locator('.execute').click();
    const live = verify.locator('.live-responses-table');
    await live.waitFor();
    expect(await live.locator('.response-col_status').last().textContent()).toContain('200');
    const answer = (await live.locator('.response-col_description pre').first().textContent())!;
    expect(JSON.parse(answer).data).toMatchObject({ valid: true, code: 'VALID', keyId, credits: 6 });
    await live.scrollIntoViewIfNeeded();
    await picture('answer');
    expect((await h.ok('keys.getKey', { keyId })).credits).toMatchObject({ remaining: 6 });
    expectNoComplaints();
  });

  function expectNoComplaints() {
    expect(complaints).toEqual([]);
    expect(asked.filter((address) => !address.startsWith(`${url}/`) && !address.startsWith('data:'))).toEqual([]);
  }

  test('the padlock of the gateway check asks for the key first', { timeout: 120_000 }, async () => {
    await openPage();
    const check = page.locator('.opblock').filter({ has: page.locator('[data-path="/v2/gateway/check"]') });
    await check.locator('.authorization__btn').click();
    const fields = page.locator('.auth-container input');
    await fields.first().waitFor();
    expect(await fields.count()).toBe(2);
    expect(await fields.first().evaluate((input) => input === input.ownerDocument.activeElement)).toBe(true);
    await page.keyboard.press('Escape');
    expectNoComplaints();
  });

  thoroughTest('the search finds operations by path and summary', { timeout: 120_000 }, async () => {
    await openPage();
    const search = async (text: string) => {
      await page.locator('.operation-filter-input').fill(text);
      await page.waitForTimeout(500);
      return listedPaths();
    };
    expect(await search('CREATEKEY')).toEqual(['/v2/keys.createKey', '/v2/rootKeys.createKey']);
    expect(await search('server-sent events')).toEqual(['/v2/analytics.tail']);
    expect(await search('workspace.')).toContain('/v2/workspace.getSettings');
    expect(await search('no such operation')).toEqual([]);
    expectNoComplaints();
  });

  thoroughTest('the page is dark where the browser prefers it, also after a change', { timeout: 120_000 }, async () => {
    const brightness = () =>
      page.evaluate(`getComputedStyle(document.documentElement).backgroundColor`).then((color) => {
        const [red, , , alpha = 1] = String(color)
          .match(/[\d.]+/g)!
          .map(Number);
        return alpha === 0 ? 255 : red;
      });
    await openPage();
    expect(await brightness()).toBe(255);
    const dark = page.locator('html.dark-mode');
    await page.emulateMedia({ colorScheme: 'dark' });
    await dark.waitFor();
    expect(await brightness()).toBeLessThan(50);
    await openPage();
    await dark.waitFor();
    await picture('dark');
    await page.emulateMedia({ colorScheme: 'light' });
    await dark.waitFor({ state: 'detached' });
    expectNoComplaints();
  });
});
