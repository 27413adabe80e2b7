// Compares README.md, SECURITY.md and docs/settings.md with the code.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, test } from 'vitest';
import { settings } from '../src/config.ts';
import { operations } from '../src/operations/index.ts';
import { harness } from './support/harness.ts';
import { repositoryFiles } from './support/references.ts';

const read = (page: string) => readFileSync(new URL(`../${page}`, import.meta.url), 'utf8');
const readme = read('README.md');
/** A text without its line breaks. */
const prose = readme.replace(/\s+/g, ' ');
const security = read('SECURITY.md');
const h = harness();

test('docs/settings.md has the settings of src/config.ts', async () => {
  const rows = settings.map(({ variable, default: fallback, meaning }) => {
    return `| \`${variable}\` | ${fallback === '' ? '' : `\`${fallback}\``} | ${meaning} |`;
  });
  const table = [
    '<!-- settings -->',
    '| Variable | Default | Meaning |',
    '|---|---|---|',
    ...rows,
    '<!-- /settings -->',
  ];
  const page = read('docs/settings.md');
  expect(page).toMatch(/^<!-- settings -->$[\s\S]*^<!-- \/settings -->$/m);
  const generated = page.replace(/^<!-- settings -->$[\s\S]*^<!-- \/settings -->$/m, () => table.join('\n'));
  await expect(generated).toMatchFileSnapshot('../docs/settings.md');
});

test('the README of leases names the tests of each promise', () => {
  const [, table] = /^\| Promise \| File \| Tests \|\n\|---\|---\|---\|\n((?:\|.*\n)+)/m.exec(
    read('src/decide/leases/README.md'),
  )!;
  const rows = table!.trim().split('\n');
  expect(rows.length).toBeGreaterThan(10);
  for (const row of rows) {
    const [, , file, titles] = row.split('|').map((cell) => cell.trim());
    const source = read(`test/${file!.replaceAll('`', '')}`);
    for (const title of titles!.split('; ')) expect(source).toContain(title);
  }
});

test('the page that npm run test:faults writes has its marks', () => {
  const program = read('bin/faults.mjs');
  const [, page] = /^const name = '(.+)';$/m.exec(program)!;
  const marks = [...program.matchAll(/<!-- .+? -->/g)].map(([mark]) => mark);
  expect(marks).toHaveLength(2);
  for (const mark of marks) expect(read(page!).split('\n')).toContain(mark);
});

test('docs/contract.md describes every operation', () => {
  const described = new Set(
    [...read('docs/contract.md').matchAll(/\*\*([\w.]+(?:, [\w.]+)*)\*\*/g)].flatMap(([, names]) => names!.split(', ')),
  );
  const isDescribed = (name: string) => described.has(name) || described.has(name.split('.')[1]!);
  expect(operations.map(({ name }) => name).filter((name) => !isDescribed(name))).toEqual([]);
});

test('SECURITY.md names the pages that need no root key', async () => {
  const [, row] = /^\| anyone who reaches the port \| (.*?) \|/m.exec(security)!;
  const named = [...row!.matchAll(/`(\/[^`]*)`/g)].map((match) => match[1]!);
  expect(named).toEqual([
    '/v2/liveness',
    '/health/live',
    '/health/ready',
    '/openapi.json',
    '/docs',
    '/llms.txt',
    '/',
    '/errors/…',
    '/metrics',
  ]);
  for (const path of named.slice(0, -1)) {
    const { status } = await h.send(path.replace('…', 'key_not_found'), { method: 'GET', authorization: '', body: '' });
    expect(status, path).toBe(path === '/' ? 302 : 200);
  }
});

test('the calls of the first key respond as printed', async () => {
  const calls = [...readme.matchAll(/\btoll (\w+\.\w+) (?:'([^']+)'|"((?:\\"|[^"])+)")/g)].map(
    ([, name, plain, quoted]) => [name!, plain ?? quoted!.replaceAll('\\"', '"')] as const,
  );
  expect(calls.map(([name]) => name)).toEqual(['apis.createApi', 'keys.createKey', 'keys.verifyKey']);
  const [printed, ...others] = [...readme.matchAll(/(?<=^```json\n).*(?=\n```$)/gm)].map(([text]) => text);
  expect(others).toEqual([]);

  // Ids and times differ between runs. Everything else must be equal.
  const shape = (response: unknown) =>
    JSON.parse(
      JSON.stringify(response, (name, value) =>
        typeof value === 'string' && /^(req|key|rl)_/.test(value) ? value.split('_')[0] : name === 'reset' ? 0 : value,
      ),
    );
  let [apiId, key] = ['', ''];
  const send = (name: string, body: string) =>
    h.send(`/v2/${name}`, { body: body.replace('$API', apiId).replace('$KEY', key) });
  const sent: unknown[] = [];
  for (const [name, body] of calls) {
    const { json } = await send(name, body);
    apiId ||= json.data.apiId ?? '';
    key ||= json.data.key ?? '';
    sent.push(json);
  }
  const isSame = isDeepStrictEqual(shape(sent.at(-1)), shape(JSON.parse(printed!)));
  // `npm run examples` writes a response that has changed.
  const updated = isSame ? readme : readme.replace(printed!, () => JSON.stringify(sent.at(-1)));
  await expect(updated).toMatchFileSnapshot('../README.md');

  const [name, body] = calls.at(-1)!;
  await send(name, body);
  const { json } = await send(name, body);
  expect(readme).toContain(`\`"valid":${json.data.valid},"code":"${json.data.code}"\``);
});

test('docs/README.md lists every page of docs/', () => {
  const listed = new Set([...read('docs/README.md').matchAll(/\]\(([\w-]+\.md)\)/g)].map(([, page]) => page));
  const pages = repositoryFiles('docs').filter((file) => /^docs\/[\w-]+\.md$/.test(file) && file !== 'docs/README.md');
  expect(pages.filter((page) => !listed.has(page.slice('docs/'.length)))).toEqual([]);
});

test('README.md has at most 6 KB', () => expect(Buffer.byteLength(readme)).toBeLessThanOrEqual(6144));

describe('figures of speed', () => {
  const results = read('bench/RESULTS.md');
  /** The cells of the table row that begins with this text. */
  const row = (...cells: string[]) => {
    const begin = cells.map((cell) => `\\| ${cell} *`).join('');
    const line = new RegExp(`^${begin}\\| (.*) \\|$`, 'm').exec(results)?.[1];
    expect(line, cells.join(', ')).toBeDefined();
    return line!.split('|').map((cell) => cell.trim());
  };

  test('bench/RESULTS.md is generated from bench/results/', async () => {
    const { pageOf } = await import(new URL('../bench/support/results.mjs', import.meta.url).href);
    expect(results).toBe(pageOf(fileURLToPath(new URL('../bench/results', import.meta.url))));
  });

  test('README has the figures of bench/RESULTS.md', () => {
    const [perSecond, , median] = row('tollgate', '64');
    expect(prose).toContain(
      `${perSecond} verifications/s at 64 connections with a median latency of ${median}, on two cores`,
    );
    expect(prose).toContain(`${row('`tollgate` / `fastify`')[2]} times Fastify`);
    expect(prose).toContain(`${row('`tollgate` / `express-rlf`')[2]} times Express`);
    const [leased] = row('tollgate-leases', '64');
    const [median1, median1Leased] = ['tollgate-hot', 'tollgate-leases'].map((target) => row(target, '1')[2]);
    expect(prose).toContain(`${leased} verifications/s, and at one connection a median of ${median1Leased} in place`);
    expect(prose).toContain(`in place of ${median1}.`);
    const [, date, cores] = /^## Against peers[\s\S]*?, ([\d-]+) [\d:]+ UTC, on (\d+) × /m.exec(results)!;
    expect(prose).toContain(`(bench/RESULTS.md) (${date})`);
    expect(cores).toBe('2');
  });

  test('no other page has figures of speed', () => {
    const pages = repositoryFiles().filter((file) => file.endsWith('.md'));
    const elsewhere = pages.filter((page) => !['README.md', 'bench/RESULTS.md'].includes(page));
    expect(elsewhere.length).toBeGreaterThan(10);
    const speed = /\d *(?:µs|microseconds?|(?:requests|verifications|checks) ?(?:\/ ?s|(?:a|per) second))\b/;
    const written = (page: string) => read(page).replace(/^<!-- findings[\s\S]*^<!-- end of findings -->$/m, '');
    const found = elsewhere.flatMap((page) =>
      written(page)
        .split('\n')
        .filter((line) => speed.test(line)),
    );
    expect(found).toEqual([]);
    expect('takes 8 µs').toMatch(speed);
    expect('45 000 requests a second').toMatch(speed);
  });
});
