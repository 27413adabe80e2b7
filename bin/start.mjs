// npm start: installs and builds what is missing, then becomes the server, so that signals reach it directly.
import { readFileSync } from 'node:fs';
import { fail, prepare, versionSuffix } from './prepare.mjs';

const [argument] = process.argv.slice(2);
if (argument === '--version') {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  console.log(version + versionSuffix());
  process.exit();
}
if (argument !== undefined)
  fail(`npm start has no argument ${argument}, only --version. Settings are environment variables: docs/settings.md`);

await prepare({ needsRedis: () => !process.env.REDIS_URL && !process.env.REDIS_URL_FILE });

await import('../dist/main.js');
