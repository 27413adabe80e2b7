// A real browser, where the machine has one.

import { spawnSync } from 'node:child_process';
import { type Browser, chromium, type Page } from 'playwright-core';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** The path of the browser on the PATH; undefined without one. */
export const chromiumPath: string | undefined = names
  .map((name) => spawnSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).stdout.trim())
  .find((path) => path !== '');

/** Headless. It can only connect to this machine: a page that loads anything else fails. */
export const startChromium = (): Promise<Browser> =>
  chromium.launch({
    executablePath: chromiumPath,
    // Chromium does not start with its sandbox as root, as on CI.
    args: ['--no-sandbox', '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1'],
  });

/** Signs in on the page, which displays the form. The form has a heading too: a heading alone does not show the end. */
export async function signIn(page: Page, rootKey: string): Promise<void> {
  const field = page.getByLabel('Root key');
  await field.fill(rootKey);
  await page.keyboard.press('Enter');
  await field.waitFor({ state: 'detached' });
  await page.locator('h1').waitFor();
}
