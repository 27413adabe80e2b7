// examples/mcp-server: the server as a process, with the built Tollgate and the official client. What an agent reads
// when it may not go on, and what its customer pays.

import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { blocksOf } from '../support/folder.ts';
import { dayMs, type InputOf } from '../support/harness.ts';
import { dirOfTest } from '../support/ofFile.ts';
import { addressOf, type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const granted = 1000;
const waiting = { timeout: 30_000, interval: 20 };

let tollgate: Tollgate;
let apiId: string;
let serverKey: string;
let server: Program;
let url: string;
const programs: Program[] = [];
beforeAll(async () => {
  tollgate = await startTollgate();
  apiId = (await tollgate.ok('apis.createApi', { name: 'tools' })).apiId;
  serverKey = (await tollgate.ok('rootKeys.createRootKey', { permissions: [`api.${apiId}.verify_key`] })).key;
  server = start();
  url = await addressOf(server);
}, startMsMax);
afterAll(async () => {
  for (const program of programs) await program.stop('SIGKILL');
  await tollgate?.stop();
});

function start(settings: Record<string, string> = {}): Program {
  const env = { TOLLGATE_URL: tollgate.url, TOLLGATE_ROOT_KEY: serverKey, PORT: '0', PAGE_MS: '20', ...settings };
  const program = run(process.execPath, ['examples/mcp-server/server.mjs'], {
    env: { PATH: process.env.PATH, ...env },
  });
  programs.push(program);
  return program;
}

async function newKey(more: Partial<InputOf<'keys.createKey'>> = {}) {
  const { keyId, key } = await tollgate.ok('keys.createKey', { apiId, credits: { remaining: granted }, ...more });
  return {
    key,
    keyId,
    /** It adds up at every moment: nothing else uses the key. */
    async ledger() {
      const [record, holds] = await Promise.all([
        tollgate.ok('keys.getKey', { keyId }),
        tollgate.ok('keys.listHolds', { keyId }),
      ]);
      return { held: holds.reduce((sum, { credits = 0 }) => sum + credits, 0), left: record.credits!.remaining };
    },
  };
}

/** The official client, with the key of a customer. */
async function connect(key: string, at = url) {
  const client = new Client({ name: 'agent', version: '1.0.0' });
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(at), { requestInit }));
  onTestFinished(() => client.close());
  return {
    client,
    async call(name: string, input: Record<string, unknown>, signal?: AbortSignal) {
      const { isError = false, content } = await client.callTool(
        { name, arguments: input },
        undefined,
        signal && { signal },
      );
      return { isError, text: (content as { text: string }[])[0]!.text };
    },
  };
}

test('an agent buys calls until its quota is spent, and learns when it renews', async () => {
  const { key, keyId, ledger } = await newKey();
  const { client, call } = await connect(key);
  expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['lookup', 'report']);
  const answers = [];
  do answers.push(await call('lookup', { word: 'toll' }));
  while (!answers.at(-1)!.isError);
  expect(answers.map(({ text }) => text)).toEqual([
    ...Array(5).fill('a charge for passing'),
    expect.stringMatching(/^The quota "calls of lookup" of 5 is used up\. .* do not call this tool before\.$/),
  ]);
  const renews = Date.parse(/It renews at (\S+): tell the user/.exec(answers.at(-1)!.text)![1]!);
  expect(renews % dayMs).toBe(0);
  expect(renews).toBeGreaterThan(Date.now());
  expect(renews - Date.now()).toBeLessThanOrEqual(dayMs);
  // A quota is of one tool and one key, and what is refused costs nothing.
  expect(await ledger()).toEqual({ held: 0, left: granted - 5 });
  expect(await call('report', { word: 'toll', pages: 1 })).toMatchObject({ isError: false });
  const other = await connect((await newKey()).key);
  expect(await other.call('lookup', { word: 'gate' })).toMatchObject({ isError: false });

  await vi.waitUntil(async () => {
    const query = { keyId, granularity: 'total', groupBy: ['tag', 'outcome'] } as const;
    const rows = await tollgate.ok('analytics.getVerifications', { ...query, groupBy: [...query.groupBy] });
    const counts = rows.map(({ tag, outcome, count, spentCredits }) => [tag, outcome, count, spentCredits].join(' '));
    return counts.sort().join() === 'tool=lookup RATE_LIMITED 1 0,tool=lookup VALID 5 5,tool=report VALID 1 2';
  }, waiting);
});

test('calls of a key with slots are paid', async () => {
  const slots = { name: 'at a time', limit: 10, duration: 60_000, autoApply: true, type: 'concurrency' as const };
  const { key, ledger } = await newKey({ ratelimits: [slots] });
  const { call } = await connect(key);
  for (let calls = 0; calls < 3; calls++) expect((await call('lookup', { word: 'toll' })).isError).toBe(false);
  expect(await ledger()).toEqual({ held: 0, left: granted - 3 });
});

test('a long tool holds the most that it may cost, and pays for what it did', async () => {
  const { key, ledger } = await newKey();
  const { call } = await connect(key, await addressOf(start({ PAGE_MS: '200' })));
  const report = call('report', { word: 'road', pages: 20 });
  await vi.waitUntil(async () => (await ledger()).held === 40, waiting);
  expect(await ledger()).toEqual({ held: 40, left: granted - 40 });
  const { isError, text } = await report;
  expect({ isError, pages: text.split('\n').length }).toEqual({ isError: false, pages: 4 });
  expect(await ledger()).toEqual({ held: 0, left: granted - 8 });
});

test('a client that goes away pays what was done until then', async () => {
  const { key, ledger } = await newKey();
  const { client, call } = await connect(key, await addressOf(start({ PAGE_MS: '2000' })));
  const report = call('report', { word: 'road', pages: 4 }).catch(() => {});
  await vi.waitUntil(async () => (await ledger()).held === 8, waiting);
  await client.close();
  await report;
  await vi.waitUntil(async () => (await ledger()).held === 0, waiting);
  expect((await ledger()).left).toBeGreaterThanOrEqual(granted - 4);
});

test.each([
  ['too few credits', { credits: { remaining: 5 } }, 'This call costs 6 credits, and 5 are left. Ask the user to buy'],
  ['a disabled key', { enabled: false }, 'The key of this server is refused: DISABLED. Ask the user for another one.'],
])('%s: a refusal that a model can act on, which costs nothing', async (_, more, message) => {
  const { key, ledger } = await newKey(more);
  const before = await ledger();
  const { call } = await connect(key);
  const { isError, text } = await call('report', { word: 'toll', pages: 3 });
  expect({ isError, text }).toEqual({ isError: true, text: expect.stringContaining(message) });
  expect(await ledger()).toEqual(before);
});

test('an unknown key is refused, and so is a request without one', async () => {
  const { call } = await connect('made_up');
  expect((await call('lookup', { word: 'toll' })).text).toContain('NOT_FOUND');
  await expect(connect('')).rejects.toThrow();
  expect((await fetch(url, { method: 'POST' })).status).toBe(401);
  expect((await fetch(url, { headers: { authorization: 'Bearer x' } })).status).toBe(405);
});

test('without Tollgate a call is refused without details', async () => {
  const { key } = await newKey();
  const lonely = start({ TOLLGATE_URL: 'http://127.0.0.1:1' });
  const { call } = await connect(key, await addressOf(lonely));
  expect(await call('lookup', { word: 'toll' })).toEqual({
    isError: true,
    text: 'Payments do not work at the moment. Try again in a minute.',
  });
  await expect.poll(() => lonely.err).toContain('fetch failed');
  expect(lonely.err).not.toContain(key);
  expect(server.err).toBe('');
});

test('the commands of README.md work', async () => {
  const port = await freePort();
  const blocks = blocksOf('examples/mcp-server/README.md');
  const [refusal, counts] = blocksOf('examples/mcp-server/README.md', 'text');
  expect(blocks).toHaveLength(4);
  const commands = blocks
    .join('\n')
    .replace('export ROOT_KEY=root_…\n', '')
    .replaceAll('http://127.0.0.1:8080', tollgate.url)
    .replaceAll('127.0.0.1:3004', `127.0.0.1:${port}`)
    .replace('TOLLGATE_URL=', `PORT=${port} PAGE_MS=20 TOLLGATE_URL=`)
    .replaceAll('examples/mcp-server/', resolve('examples/mcp-server/').concat('/'));
  const env = { PATH: process.env.PATH, ROOT_KEY: tollgate.rootKey };
  const { stdout } = spawnSync('bash', ['-c', commands], { cwd: dirOfTest(), env, encoding: 'utf8', timeout: 60_000 });
  const printed = stdout.split('\n').filter((line) => line !== '' && !line.startsWith('listens on'));
  const anyTime = (line: string) => line.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/, '…');
  expect(printed.map(anyTime)).toEqual([
    ...Array(5).fill('a charge for passing'),
    anyTime(refusal!.trim()),
    ...[1, 2, 3, 4].map((page) => `Page ${page}. gate: where a toll is paid.`),
    '"remaining":17',
    'This call costs 40 credits, and 17 are left. Ask the user to buy more, or ask for less.',
    ...counts!.trim().split('\n'),
  ]);
});
