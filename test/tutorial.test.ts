// Runs the commands of README.md, docs/README.md, docs/start.md, docs/choose.md and docs/selling.md as written, in the
// order in which a new user reads them, on one server that `npm start` has started. `-u` writes outputs that have
// changed.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openClient } from './support/client.ts';
import { blocksOf, openFolder, withNpm } from './support/folder.ts';

let folder: ReturnType<typeof openFolder>;
let server: Awaited<ReturnType<typeof folder.serve>>;
let rootKey: string;

beforeAll(async () => {
  folder = openFolder({ dependencies: 'bundled' });
  server = await folder.serve('npm start', withNpm);
  rootKey = await server.firstRootKey();
});
afterAll(() => folder.close());

const endOfBlock = '-- end of the block --';

/**
 * Runs the commands of a page in one shell, each block with what it printed. A block of text or JSON below commands is
 * what they print: it must be equal to that, except ids, secrets, times and the widths of columns.
 */
async function runPage(page: string): Promise<string[]> {
  const text = readFileSync(page, 'utf8');
  const commands = blocksOf(page)
    .filter((block) => block !== 'npm start\n')
    .map((block) => `${block}printf '\\n%s\\n' '${endOfBlock}'\n`)
    .join('')
    .replaceAll('http://127.0.0.1:8080', server.url);
  const outputs = folder
    .run(commands, { ROOT_KEY: rootKey })
    .replaceAll('\r', '')
    .split(`${endOfBlock}\n`)
    .slice(0, -1)
    .map((output) => output.trim());

  const left = outputs.values();
  const updated = text.replace(
    /(^```sh\n)([\s\S]*?)^```$(\n\n```(?:text|json)\n)?([\s\S]*?)(?=^```)/gm,
    (whole, _begin, block: string, opened: string | undefined, printed: string) => {
      if (block === 'npm start\n') return whole;
      const output = left.next().value!;
      if (opened === undefined || comparable(output) === comparable(printed)) return whole;
      return `${whole.slice(0, -printed.length)}${output}\n`;
    },
  );
  await expect(updated).toMatchFileSnapshot(`../${page}`);
  return outputs;
}

/** A text without ids, secrets, times, and the widths of columns. */
const comparable = (text: string): string =>
  text
    .replace(/\b([a-z]{2,4})_\w{12,}/g, '$1_')
    .replace(/\b\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'time')
    .replace(/\b\d{13}\b/g, 'time')
    .replace(/\bt=\d+/g, 't=')
    .replace(/[ \n]+/g, ' ')
    .trim();

test('README.md: the first key', async () => {
  const [, verified] = await runPage('README.md');
  expect(verified).toContain('"valid":true,"code":"VALID"');
});

test('docs/README.md: a lost root key', async () => {
  const [printed] = await runPage('docs/README.md');
  const [created] = /^root_\w{16}_\w+$/m.exec(printed!)!;
  const client = openClient(server.url, created);
  expect(await client.ok('apis.createApi', { name: 'again' })).toMatchObject({ apiId: expect.any(String) });
});

test('docs/start.md: from an API to a bill', async () => {
  const outputs = await runPage('docs/start.md');
  const statuses = outputs.map((output) => /HTTP\/1\.1 (\d+)/.exec(output)?.[1]).filter(Boolean);
  expect(statuses).toEqual(['200', '429', '200']);
  const [refusals, explained] = outputs.slice(4);
  expect(refusals).toMatch(/ RATE_LIMITED .* juno .* burst 3 per 1m/);
  expect(explained).toMatch(/^RATE_LIMITED: /);
  expect(outputs.at(-1)).toMatch(/^juno +starter +4 +1 +5 +0$/m);
});

test('docs/choose.md: one example of each', async () => {
  const outputs = await runPage('docs/choose.md');
  const charged = outputs.slice(1).map((output) => /"(?:remaining|credits|hold)":\d*\}?$/m.exec(output)?.[0]);
  const [window, slot, quota, credits, hold] = charged;
  expect([window, slot, quota, credits, hold]).toEqual([
    '"remaining":99',
    '"hold":',
    '"remaining":9996',
    '"credits":480}',
    '"credits":443}',
  ]);
  expect(outputs.at(-1)).toMatch(/^vela now has the limits requests 500 per 1m \(until .*, then none\)\.$/);
});

const hasJq = spawnSync('jq', ['--version']).status === 0;
test.skipIf(!hasJq)(
  `docs/selling.md: from the sign-up to an unpaid bill${hasJq ? '' : ' (jq is missing)'}`,
  async () => {
    const outputs = await runPage('docs/selling.md');
    expect(outputs.join('\n')).toMatch(/^orion +plus +4 +1 +5 +25 +0\.02 EUR$/m);
    expect(outputs.at(-1)).toMatch(/"code":"DISABLED"\n(Enabled key_\w+\.\n?){2}$/);
  },
);
