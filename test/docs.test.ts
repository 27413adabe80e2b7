// Runs the commands of docs/ as written, in order, on a server that `npm start` has started. Those of backup.md run in
// test/cli/backup.test.ts, those of the first pages that a user reads in test/tutorial.test.ts.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { compileInput } from '../src/input/validate.ts';
import { Holder } from '../src/operations/keys/me.ts';
import { dataVersion } from '../src/scripts/layout.ts';
import { makeCertificates } from './support/certificates.ts';
import { runCli } from './support/cli.ts';
import { type Client, openClient } from './support/client.ts';
import { blocksOf, openFolder, withNpm } from './support/folder.ts';
import { run as runProgram } from './support/processes.ts';
import { pythonWith } from './support/python.ts';
import { freePort } from './support/redisNodes.ts';

let folder: ReturnType<typeof openFolder>;
let server: Awaited<ReturnType<typeof folder.serve>>;
let rootKey: string;
let workspaceId: string;
const run = (commands: string) =>
  folder.run(commands.replaceAll('http://127.0.0.1:8080', server.url), { ROOT_KEY: rootKey, WORKSPACE: workspaceId });

const variables = new Map<string, string>();
const files = new Map<string, string>();

/**
 * Runs a line of a page in this process, which takes a tenth of the time: a command of Tollgate or jq, with `$NAME`,
 * with a file as input or output, as the value of a variable, or piped to jq. It must succeed.
 */
async function runLine(line: string): Promise<{ out: string; err: string }> {
  const text = line.replace(/ {2,}# .*/, '').replace(/\$(\w+)/g, (whole, name) => variables.get(name) ?? whole);
  expect(text, line).not.toMatch(/"\$\w+"/);
  const [, variable, inner = text] = /^(\w+)=\$\((.*)\)$/.exec(text) ?? [];
  const [, command, input, path, output] = /^(.*?)(?: < (\S+))?(?: \| jq -r (\S+))?(?: > (\S+))?$/.exec(inner)!;
  const [program, ...args] = wordsOf(command!);
  if (program === 'umask') return { out: '', err: '' };
  const { out, err } =
    program === 'jq'
      ? { out: jq(args[1]!, files.get(args[2]!)!), err: '' }
      : await runTollgate([program!, ...args], input === undefined ? '' : files.get(input)!, line);
  const result = path === undefined ? out : jq(wordsOf(path)[0]!, out);
  if (variable) variables.set(variable, result.trim());
  if (output) files.set(output, result);
  return { out: result, err };
}

async function runTollgate([npx, tollgate, ...args]: readonly string[], input: string, line: string) {
  expect([npx, tollgate], line).toEqual(['npx', 'tollgate']);
  // Files of exports are written by the command itself.
  const placed = args.map((word) => (word.endsWith('.jsonl') ? join(folder.path, word) : word));
  const { code, out, err } = await runCli(placed, { TOLLGATE_DATA_DIR: join(folder.path, 'data') }, input);
  expect(code, `${line}: ${err}`).toBe(0);
  return { out, err };
}

const wordsOf = (text: string) =>
  text.match(/'[^']*'|"[^"]*"|\S+/g)!.map((word) => word.replace(/^(['"])(.*)\1$/, '$2'));

/** `jq -r` with a path such as `.apiId`, `.[0].keyId` or `.[].keyId`. */
function jq(path: string, json: string): string {
  type Json = Record<string, unknown> & unknown[];
  const valuesAt = (value: unknown, [step, ...rest]: readonly string[]): unknown[] => {
    if (step === undefined) return [value];
    return step === '[]'
      ? (value as Json).flatMap((item) => valuesAt(item, rest))
      : valuesAt((value as Json)[step], rest);
  };
  const values = valuesAt(JSON.parse(json), path.match(/\[\]|\w+/g)!);
  expect(values, path).not.toContain(undefined);
  return values.map((value) => `${value}\n`).join('');
}

/** The lines of blocks that are commands. `tail` runs until it is stopped; test/cli/tail.test.ts runs it. */
const linesOf = (blocks: readonly string[]) =>
  blocks.flatMap((text) => text.split('\n')).filter((line) => line !== '' && !/^#|^npx tollgate tail/.test(line));

const call: Client['ok'] = (name, input) => openClient(server.url, rootKey).ok(name, input);

beforeAll(async () => {
  folder = openFolder({ dependencies: 'bundled' });
  server = await folder.serve('npm start', withNpm);
  rootKey = await server.firstRootKey();
  workspaceId = rootKey.replace(/^root_(\w{16})_.*/, 'ws_$1');
});
afterAll(() => folder.close());

test('limits.md: the commands, and the limits that it names', async () => {
  const out = run(blocksOf('docs/limits.md').join('\n'));
  expect(out).toMatch(/"success":true.*\n.*"success":true.*\n.*"success":false/);
  expect(out).toContain('requests 5000 per month from 2026-01-31T00:00:00Z');
  expect(out).toMatch(/burst 500 per 1m \(until .*, then 100 per 1m\)/);
  expect(out).toMatch(/customer_42 .*500 per 1m +100 per 1m/);

  const named = readFileSync('docs/limits.md', 'utf8').matchAll(/\{"name":\s+"[^}]*\}/g);
  const [jobs, tokens, budget, ...others] = [...named].map(([json]) => JSON.parse(json));
  expect(others).toEqual([]);
  const { apiId } = await call('apis.createApi', { name: 'limits' });
  const { key } = await call('keys.createKey', { apiId, ratelimits: [jobs, { ...tokens, autoApply: true }] });
  const verified = await call('keys.verifyKey', { key, ratelimits: [{ name: 'jobs' }, budget] });
  expect(verified).toMatchObject({
    code: 'VALID',
    ratelimits: expect.arrayContaining([
      expect.objectContaining({ name: 'jobs', remaining: 2 }),
      expect.objectContaining({ name: 'tokens', remaining: 999_999 }),
      expect.objectContaining({ name: 'gpt-x', remaining: 5_000_000 - 1200 }),
    ]),
  });
});

test('gateways.md', () => {
  expect(run(blocksOf('docs/gateways.md').join('\n'))).toMatch(/^root_\w+_\w+\npay_\w+\ndoc_\w+\n200\n403\n200\n$/);
});

test('holds.md', () => {
  const lines = run(blocksOf('docs/holds.md').join('\n')).trim().split('\n');
  const credits = lines.map((line) => /"credits":(\d+)/.exec(line)?.[1] ?? /"status":(\d+)/.exec(line)?.[1]);
  // Slots: taken, refused, extended, released, and taken again, each found by its grep.
  const ofSlots = Array(5).fill(undefined);
  expect(credits).toEqual(['600', '863', '863', ...ofSlots, '853', '853', '409', '0']);
});

test('plans.md', () => {
  const out = run(blocksOf('docs/plans.md').join('\n'));
  expect(out.match(/"remaining":\d+/g)).toEqual(
    [99, 9998, 49_997, 19_996].map((remaining) => `"remaining":${remaining}`),
  );
  expect(out).toContain('Deleted plan free. Its keys and customers have pro.');

  // Its example of a file creates the plan again, and a customer that exists.
  const [lines] = blocksOf('docs/plans.md', 'json');
  writeFileSync(join(folder.path, 'plans.jsonl'), lines!);
  run('npx tollgate import plans.jsonl --workspace $WORKSPACE');
  expect(run('npx tollgate plan list')).toMatch(/^free /m);
});

test('customers.md: the commands, the answer, and the backend', async () => {
  const printed = run(blocksOf('docs/customers.md').join('\n'));
  const answer = JSON.parse(printed.trim());
  const [example] = blocksOf('docs/customers.md', 'json').map((text) => JSON.parse(text));
  expect(shapeOf(example)).toEqual(shapeOf(answer));
  compileInput(Holder)(example.data, 1);
  expect(answer.data).toMatchObject({ name: 'CI', meta: { tier: 'pro' }, credits: { remaining: 497 } });

  const [program] = blocksOf('docs/customers.md', 'js');
  writeFileSync(join(folder.path, 'usage.mjs'), program!);
  const { apiId } = await call('apis.createApi', { name: 'backend' });
  const { key } = await call('keys.createKey', { apiId, credits: { remaining: 7 } });
  const port = String(await freePort());
  const env = { PATH: process.env.PATH, TOLLGATE_URL: server.url, PORT: port };
  const backend = runProgram('node', [join(folder.path, 'usage.mjs')], { env });
  const ask = (presented: string) =>
    fetch(`http://127.0.0.1:${port}/`, { headers: { authorization: `Bearer ${presented}` } });
  await vi.waitFor(async () => expect((await ask('wrong')).status).toBe(401), { timeout: 10_000, interval: 100 });
  expect(await (await ask(key!)).json()).toMatchObject({ ratelimits: [], credits: { remaining: 7 } });
  expect(await (await ask('wrong')).json()).toEqual({ error: 'The key is unknown.' });
  await backend.stop();
});

/** The members of a JSON value, each with its type; of a list, those of its first item. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(shapeOf);
  if (typeof value !== 'object' || value === null) return typeof value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shapeOf(member)]));
}

test('moving.md', () => {
  const out = run(blocksOf('docs/moving.md').join('\n'));
  const [hash] = out.split('\n');
  expect(readFileSync('docs/moving.md', 'utf8')).toContain(`{"hash": "${hash}"`);
  expect(out).toContain('"code":"VALID"');

  const [program] = blocksOf('docs/moving.md', 'ts');
  writeFileSync(join(folder.path, 'moving.mjs'), program!.replaceAll('http://127.0.0.1:8080', server.url));
  expect(run('node moving.mjs')).toBe('true\n');
});

const python = pythonWith('test/sdks/python/requirements.txt');
test.skipIf('missing' in python)("moving.md's Python", () => {
  if ('missing' in python) return;
  const [program] = blocksOf('docs/moving.md', 'python');
  const args = [...python.args, '-c', program!.replaceAll('http://127.0.0.1:8080', server.url)];
  const env = { PATH: process.env.PATH, ...python.env, ROOT_KEY: rootKey };
  expect(spawnSync('python3', args, { env, encoding: 'utf8' })).toMatchObject({ stdout: 'True\n', stderr: '' });
});

test('npx runs the command line in this folder', () => {
  expect(folder.run('npx tollgate --help', withNpm)).toMatch(/^Usage: tollgate /);
});

const ofCommands = blocksOf('docs/commands.md');
/** This block links the program, in a test of its own. */
const tasks = ofCommands.filter((text) => !text.includes('ln -sf'));

test('commands.md: the commands of each task, in one folder, as they stand', async () => {
  const lines = linesOf(tasks);
  expect(lines.length).toBeGreaterThan(70);
  for (const line of lines) {
    const { err } = await runLine(line);
    const expected = err.replace(/^These figures are not final before .*\n/, '');
    if (!/tollgate (doctor|inspect|import|export)/.test(line)) expect(expected, line).toBe('');
  }
  expect(variables.get('API')).toMatch(/^api_/);
  expect(files.get('key.txt')).toMatch(/^\w+\n$/);
  expect(files.get('bill.csv')).toMatch(/^Customer,/i);
});

test('operate.md: an API gets a workspace of its own', async () => {
  const { apiId } = await call('apis.createApi', { name: 'moved' });
  const { key } = await call('keys.createKey', { apiId });
  for (const [name, value] of Object.entries({ API: apiId!, NAME: 'moved', WORKSPACE: workspaceId }))
    variables.set(name, value);
  let targetKey = '';
  const [block] = blocksOf('docs/operate.md').filter((text) => text.includes('TARGET='));
  for (const line of linesOf([block!])) {
    const { out } = await runLine(line);
    if (line.includes('root-key create')) targetKey = /^root_\w+_\w+$/m.exec(out)![0];
  }
  expect(await openClient(server.url, targetKey).ok('keys.verifyKey', { key: key! })).toMatchObject({ code: 'VALID' });
  expect(await call('keys.verifyKey', { key: key! })).toMatchObject({ code: 'NOT_FOUND' });
});

test('operate.md: the lines of the log', () => {
  const parsed = (text: string): Record<string, unknown>[] =>
    text
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));
  const examples = parsed(blocksOf('docs/operate.md', 'json').join(''));
  expect(examples).toHaveLength(4);
  const [ready, request] = examples;
  const logged = parsed(server.err);
  expect(shapeOf(ready)).toEqual(shapeOf(logged.find(({ msg }) => msg === 'Ready.')));
  expect(shapeOf(request)).toEqual(shapeOf(logged.find(({ operation }) => operation === 'apis.createApi')));
});

test('upgrade.md', () => {
  const lines = linesOf(blocksOf('docs/upgrade.md'));
  expect(lines).toHaveLength(3);
  for (const line of lines) expect(run(line)).toContain(`has version ${dataVersion}, the newest of this release.`);
});

test('commands.md: the command line from everywhere', () => {
  const [block] = ofCommands.filter((text) => text.includes('ln -sf'));
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  // A commit that is no release has its own in the version.
  expect(run(block!)).toMatch(new RegExp(`^${version}(\\+g[0-9a-f]+(\\.dirty)?)?\n$`));
  expect(folder.run('cd / && "$HOME/.local/bin/tollgate" workspace list')).toContain(`${workspaceId}  `);
});

test('install.md: HTTPS', async () => {
  const { certFile, keyFile } = makeCertificates(folder.path);
  const [command] = blocksOf('docs/install.md').filter((text) => text.includes('TLS_CERT_FILE'));
  const secure = await folder.serve(
    command!
      .replace('/etc/tollgate/fullchain.pem', certFile)
      .replace('/etc/tollgate/privkey.pem', keyFile)
      .replace('TLS_CERT_FILE', `TOLLGATE_DATA_DIR=${join(folder.path, 'secure')} TLS_CERT_FILE`),
  );
  expect(secure.url).toMatch(/^https:/);
  await secure.stop('SIGINT');
});

test('clients.md: the document', () => {
  const printed = run(
    `export TOLLGATE_URL=http://127.0.0.1:8080\n${blocksOf('docs/clients.md').join('')}cat openapi.json`,
  );
  expect(printed).toMatch(/^\{"openapi":/m);
});

test('every command of a page is run by a test, except those for Kubernetes', () => {
  const runWhole = [
    'README.md',
    'backup.md',
    'choose.md',
    'commands.md',
    'customers.md',
    'gateways.md',
    'holds.md',
    'limits.md',
    'mcp.md',
    'moving.md',
    'plans.md',
    'selling.md',
    'start.md',
    'upgrade.md',
  ];
  const isRun = (text: string) =>
    text === 'npm start\n' || ['TLS_CERT_FILE', 'TARGET=', 'openapi.json'].some((part) => text.includes(part));
  for (const page of readdirSync('docs').filter((name) => name.endsWith('.md') && !runWhole.includes(name))) {
    const left = blocksOf(`docs/${page}`).filter((text) => !isRun(text));
    for (const text of left) expect(text, page).toMatch(/^((\w+=\$\()?kubectl (.|\\\n)*\n)+$/);
  }
});
