// A real browser, headless.
import { spawnSync } from 'node:child_process';
import { chromium } from 'playwright-core';
import { atEnd } from './processes.mjs';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

export async function startBrowser() {
  const executablePath = names
    .map((name) => spawnSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).stdout.trim())
    .find((path) => path !== '');
  if (!executablePath) throw new Error(`this bench needs a browser: ${names.join(', ')}`);
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  atEnd(() => browser.close());
  return browser;
}
