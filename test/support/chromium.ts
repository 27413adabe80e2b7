// A real browser, where the machine has one.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as delay } from 'node:timers/promises';
import { type Browser, type BrowserContext, chromium, type Page, type ViewportSize } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from 'vitest';
import type { harness } from './harness.ts';
import { serveStore } from './serving.ts';

/** The first has no windows, whose own pages take most of the time of a test's page. */
const names = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** The path of the browser on the PATH; undefined without one. */
export const chromiumPath: string | undefined = names
  .map((name) => spawnSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).stdout.trim())
  .find((path) => path !== '');

/** Headless. It can only connect to this machine: a page that loads anything else fails. */
const startChromium = (): Promise<Browser> =>
  chromium.launch({
    executablePath: chromiumPath,
    // Chromium does not start with its sandbox as root, as on CI.
    args: ['--no-sandbox', '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1'],
  });

let started: Browser | undefined;
/**
 * The browser of all files of a worker, as its start takes longer than many tests. It ends with the process of the
 * worker. What a file has opened is closed with `closeContexts`.
 */
export async function sharedChromium(): Promise<Browser> {
  if (!started?.isConnected()) started = await startChromium();
  return started;
}
export const closeContexts = async (browser: Browser | undefined): Promise<void> =>
  void (await Promise.all((browser?.contexts() ?? []).map((context) => context.close())));

/** Signs in on the page, which displays the form. The form has a heading too: a heading alone does not show the end. */
export async function signIn(page: Page, rootKey: string): Promise<void> {
  const field = page.getByLabel('Root key', { exact: true });
  // Seldom, on a busy machine, a page stays empty: why is not known yet. It is printed, and loaded once more.
  await field.waitFor({ timeout: 15_000 }).catch(async () => {
    const body = await Promise.race([page.locator('body').innerHTML(), delay(2000, 'no answer')]);
    console.error(`The page ${page.url()} has no form to sign in: ${body.slice(0, 2000)}`);
    await page.reload();
  });
  await field.fill(rootKey);
  await page.keyboard.press('Enter');
  await field.waitFor({ state: 'detached' });
  await page.locator('h1').waitFor();
}

const title = `in Chromium${chromiumPath === undefined ? ' (SKIPPED: none is installed here)' : ''}`;
/** Tests that are skipped, and say so, where the machine has no browser. */
export const inChromium = (tests: () => void) => describe.skipIf(chromiumPath === undefined)(title, tests);

/** The width and height of a page, where a test does not choose others. */
export const viewport = { width: 1280, height: 900 };

/**
 * A server of the harness's store, and a browser. The harness's clock starts at the time of the browser, by which the
 * console requests counts.
 */
export function serverAndBrowser(h: ReturnType<typeof harness>) {
  let server: Awaited<ReturnType<typeof serveStore>>;
  let browser: Browser;
  beforeAll(async () => {
    h.clock.now = Date.now();
    server = await serveStore(h.store);
    browser = await sharedChromium();
  });
  afterAll(async () => {
    await closeContexts(browser);
    await server?.close();
  });
  return { url: () => server.url, browser: () => browser };
}

/** A browser context for each test, which fails on an uncaught error of its pages. */
export function contexts(browser: () => Browser) {
  let context: BrowserContext;
  const complaints: string[] = [];
  beforeEach(async () => {
    complaints.length = 0;
    context = await browser().newContext({ viewport });
  });
  afterEach(async () => {
    await context.close();
    expect(complaints).toEqual([]);
  });
  return {
    context: () => context,
    async newPage() {
      const page = await context.newPage();
      page.setDefaultTimeout(40_000);
      page.on('pageerror', (error) => complaints.push(error.message));
      return page;
    },
  };
}

const narrow = { width: 390, height: 800 };

/**
 * The page in each of the sizes and in both themes. It has its size and the light theme afterwards. With
 * SCREENSHOTS=<folder>, takes pictures, whose names are `name`-width-theme.
 */
async function inAllForms(page: Page, name: string, sizes: readonly ViewportSize[], look: (width: number) => unknown) {
  const before = page.viewportSize()!;
  for (const size of sizes)
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme });
      await look(size.width);
      await shot(page, `${name}-${size.width}-${colorScheme}`);
    }
  await page.setViewportSize(before);
  await page.emulateMedia({ colorScheme: 'light' });
}

/** With SCREENSHOTS=<folder>, takes a picture of the page. */
async function shot(page: Page, name: string): Promise<void> {
  const folder = process.env.SCREENSHOTS;
  if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
}

/** With SCREENSHOTS=<folder>, takes pictures of the page in each of the sizes and in both themes. */
export async function shots(page: Page, name: string, sizes = [{ width: 1440, height: 900 }, narrow]): Promise<void> {
  if (process.env.SCREENSHOTS) await inAllForms(page, name, sizes, () => {});
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds, with the elements. */
export async function violationsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate<{ violations: { id: string; nodes: { html: string }[] }[] }>('axe.run()');
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html)}`);
}

/** Whether all is within the width of the page. Charts have their new width a frame after it. */
export async function isWithinWidth(page: Page): Promise<boolean> {
  const [scrolled, client] = await page.evaluate<[number, number]>(`new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() =>
      done([document.documentElement.scrollWidth, document.documentElement.clientWidth]))))`);
  return scrolled <= client;
}

/** The console of a harness in a browser, with a new page for each test. */
export function consoleInChromium(h: ReturnType<typeof harness>) {
  const { url, browser } = serverAndBrowser(h);
  let page: Page;
  beforeEach(async () => {
    await page?.close();
    page = await browser().newPage({ viewport });
    page.setDefaultTimeout(40_000);
  });

  const dialog = () => page.getByRole('dialog');
  /** Path within the console. */
  const goTo = (path: string) => page.goto(`${url()}/console${path}`);
  return {
    page: () => page,
    goTo,
    /** The first screen of a page. */
    async open(path: string, rootKey = h.rootKey) {
      await goTo(path);
      await signIn(page, rootKey);
    },
    violations: () => violationsOf(page),
    isWithinWidth: () => isWithinWidth(page),
    /** On a wide and a narrow screen, in both themes, axe finds nothing and nothing scrolls sideways. */
    looksRight: (name: string) =>
      inAllForms(page, name, [viewport, narrow], async (width) => {
        expect([name, width, await isWithinWidth(page)]).toEqual([name, width, true]);
        expect(await violationsOf(page)).toEqual([]);
      }),
    shot: (name: string) => shot(page, name),
    card: (heading: string | RegExp) =>
      page.locator('section.card', {
        has: page.getByRole('heading', { name: heading, exact: typeof heading === 'string' }),
      }),
    button: (name: string) => page.getByRole('button', { name, exact: true }),
    dialog,
    /** Saves what the dialog has, and waits for its end. */
    async save() {
      await dialog().getByRole('button', { name: 'Save' }).click();
      await dialog().waitFor({ state: 'detached' });
    },
  };
}
