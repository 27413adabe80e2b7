// The packages that Tollgate is delivered with, and their licenses: THIRD_PARTY.md is written from package-lock.json.
// After a change of dependencies: npx vitest run test/licenses.test.ts -u

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** Licenses that only require their notices, so they are compatible with an MIT program. */
const compatible = ['MIT', 'ISC', '0BSD', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0', 'BlueOak-1.0.0'];

interface Package {
  dev?: boolean;
  license?: string;
}

const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Record<string, Package> };
const delivered = Object.entries(packages)
  .filter(([path, { dev }]) => path !== '' && !dev)
  .map(([path, { license }]) => ({ name: path.split('node_modules/').at(-1)!, license }));

/** One package with builds for many systems. The lock file has the license of the builds in the registry. */
const builtFor = {
  '@typescript/': '| @typescript/…, the builds of the compiler by system; not in the container image | Apache-2.0 |',
  '@uwsjs/': '| @uwsjs/…, the builds of uWebSockets.js by system | Apache-2.0 |',
};
const isBuild = ({ name }: { name: string }) => Object.keys(builtFor).some((scope) => name.startsWith(scope));

test('every package that is delivered has a compatible license', () => {
  expect(delivered.length).toBeGreaterThan(30);
  expect(delivered.some(({ name }) => name === 'ioredis')).toBe(true);
  expect(delivered.filter(({ license }) => license === 'Apache-2.0').some(isBuild)).toBe(true);
  const others = delivered.filter((found) => !isBuild(found) || found.license !== undefined);
  expect(others.filter(({ license }) => !compatible.includes(license ?? 'none'))).toEqual([]);
});

test('THIRD_PARTY.md lists them', async () => {
  const rows = delivered
    .filter((found) => !isBuild(found))
    .map(({ name, license }) => `| ${name} | ${license} |`)
    .concat(Object.values(builtFor));
  const list = [...new Set(rows)].sort();
  await expect(
    [
      '# Third-party software',
      '',
      'The packages that Tollgate is built with and runs with, and their licenses. Their texts are in the packages, below',
      '`node_modules`.',
      'Written from package-lock.json by `npx vitest run test/licenses.test.ts -u`.',
      '',
      '| Package | License |',
      '|---|---|',
      ...list,
      '',
    ].join('\n'),
  ).toMatchFileSnapshot('../THIRD_PARTY.md');
});
