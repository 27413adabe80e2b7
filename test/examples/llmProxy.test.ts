// examples/llm-proxy: the proxy and its stand-in model as processes, with the built Tollgate. After each way in which a
// stream can end, the ledger of the key adds up: granted = spent + held + left.

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { blocksOf } from '../support/folder.ts';
import { dirOfTest } from '../support/ofFile.ts';
import { addressOf, type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const granted = 1000;
const holdMs = 1500;
const waiting = { timeout: 30_000, interval: 20 };

let tollgate: Tollgate;
let apiId: string;
let proxyKey: string;
const programs: Program[] = [];
beforeAll(async () => {
  tollgate = await startTollgate();
  apiId = (await tollgate.ok('apis.createApi', { name: 'answers' })).apiId;
  const permissions = [`api.${apiId}.verify_key`];
  proxyKey = (await tollgate.ok('rootKeys.createRootKey', { permissions })).key;
}, startMsMax);
afterAll(async () => {
  for (const program of programs) await program.stop('SIGKILL');
  await tollgate?.stop();
});

function start(name: string, env: Record<string, string>): Program {
  const all = { PATH: process.env.PATH, PORT: '0', ...env };
  const program = run(process.execPath, [`examples/llm-proxy/${name}.mjs`], { env: all });
  programs.push(program);
  return program;
}

/** A proxy with a model of its own. */
async function startProxy({ tokenMs }: { tokenMs: number }, more: Record<string, string> = {}) {
  const model = await addressOf(start('model', { TOKEN_MS: `${tokenMs}` }));
  const env = { TOLLGATE_URL: tollgate.url, TOLLGATE_ROOT_KEY: proxyKey, MODEL_URL: model, HOLD_MS: `${holdMs}` };
  const program = start('proxy', { ...env, ...more });
  const url = await addressOf(program);
  const ask = (key: string, words: number, maxTokens: number, signal?: AbortSignal) =>
    fetch(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ prompt: 'word '.repeat(words), max_tokens: maxTokens }),
      ...(signal && { signal }),
    });
  return { program, ask };
}

async function newKey() {
  const { keyId, key } = await tollgate.ok('keys.createKey', { apiId, credits: { remaining: granted } });
  return {
    key,
    /** It adds up at every moment: nothing else uses the key. */
    async ledger() {
      const [record, holds, rows] = await Promise.all([
        tollgate.ok('keys.getKey', { keyId }),
        tollgate.ok('keys.listHolds', { keyId }),
        tollgate.ok('analytics.getVerifications', { keyId, granularity: 'total' }),
      ]);
      const spent = rows.reduce((sum, row) => sum + row.spentCredits, 0);
      const held = holds.reduce((sum, { credits = 0 }) => sum + credits, 0);
      return { spent, held, left: record.credits!.remaining };
    },
  };
}

const tokensIn = (text: string) => text.split('data: {"token":').length - 1;
/** Reads a response until it has this many tokens. */
async function read(response: Response, tokens: number): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; tokensIn(text) < tokens; ) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`The response ended: ${text}`);
    text += value;
  }
}

test('max_tokens are held while it streams, and what was streamed is settled', async () => {
  // Long enough to see what is held on a busy machine.
  const { program, ask } = await startProxy({ tokenMs: 60 });
  const { key, ledger } = await newKey();
  const response = await ask(key, 3, 400);
  await vi.waitUntil(async () => (await ledger()).held > 0, waiting);
  expect(await ledger()).toEqual({ spent: 0, held: 400, left: 600 });
  const text = await response.text();
  expect([tokensIn(text), text.endsWith('data: [DONE]\n\n')]).toEqual([30, true]);
  expect(await ledger()).toEqual({ spent: 30, held: 0, left: 970 });
  expect(program.err).toBe('');
});

test('a stream longer than a hold extends it', async () => {
  const { program, ask } = await startProxy({ tokenMs: 100 });
  const { key, ledger } = await newKey();
  const response = await ask(key, 4, 400);
  const startedAt = performance.now();
  while (performance.now() - startedAt < 2.2 * holdMs) {
    await new Promise((done) => setTimeout(done, 200));
    expect((await ledger()).left).toBe(600);
  }
  expect(tokensIn(await response.text())).toBe(40);
  expect(await ledger()).toEqual({ spent: 40, held: 0, left: 960 });
  expect(program.err).toBe('');
});

test('a client that goes away before the first token pays nothing, later what was streamed', async () => {
  // Long, so that no expiry gives anything back meanwhile.
  const { ask } = await startProxy({ tokenMs: 500 }, { HOLD_MS: '60000' });
  const { key, ledger } = await newKey();
  const early = new AbortController();
  const asked = ask(key, 3, 400, early.signal).catch(() => {});
  await vi.waitUntil(async () => (await ledger()).held === 400, waiting);
  early.abort();
  await asked;
  await vi.waitUntil(async () => (await ledger()).held === 0, waiting);
  expect(await ledger()).toEqual({ spent: 0, held: 0, left: granted });

  const later = new AbortController();
  const response = await ask(key, 3, 400, later.signal);
  await read(response, 2);
  later.abort();
  await vi.waitUntil(async () => (await ledger()).held === 0, waiting);
  const { spent, left } = await ledger();
  expect([2, 3]).toContain(spent);
  expect(left).toBe(granted - spent);
});

test('a proxy that is killed in the middle of streams leaks nothing, and the next one serves', async () => {
  const { program, ask } = await startProxy({ tokenMs: 100 });
  const { key, ledger } = await newKey();
  const [done, ...cut] = await Promise.all([ask(key, 1, 50), ask(key, 9, 200), ask(key, 9, 300)]);
  expect(tokensIn(await done!.text())).toBe(10);
  const reading = Promise.allSettled(cut.map((response) => read(response, 80)));
  await read(await ask(key, 9, 40), 5);
  expect(await ledger()).toEqual({ spent: 10, held: 540, left: 450 });
  await program.stop('SIGKILL');
  expect((await reading).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(await ledger()).toEqual({ spent: 10, held: 540, left: 450 });

  const next = await startProxy({ tokenMs: 1 });
  expect(tokensIn(await (await next.ask(key, 2, 100)).text())).toBe(20);
  await vi.waitUntil(async () => (await ledger()).held === 0, waiting);
  await vi.waitUntil(async () => (await ledger()).left === 970, waiting);
  expect(await ledger()).toEqual({ spent: 30, held: 0, left: 970 });
});

test('a settlement that a load balancer answers with a page is repeated', async () => {
  let pages = 0;
  const balancer = createServer(async (request, response) => {
    const body = await new Response(Readable.toWeb(request) as ReadableStream).text();
    if (request.url === '/v2/keys.settleHold' && pages++ < 2)
      return void response.writeHead(502, { 'content-type': 'text/html' }).end('<html>502 Bad Gateway</html>');
    const { authorization = '' } = request.headers;
    const headers = { authorization, 'content-type': 'application/json' };
    const answer = await fetch(`${tollgate.url}${request.url}`, { method: 'POST', headers, body });
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text());
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void balancer.close());
  await once(balancer, 'listening');
  const { port } = balancer.address() as AddressInfo;
  const { program, ask } = await startProxy(
    { tokenMs: 5 },
    { TOLLGATE_URL: `http://127.0.0.1:${port}`, HOLD_MS: '60000' },
  );
  const { key, ledger } = await newKey();
  await (await ask(key, 3, 400)).text();
  expect(pages).toBe(3);
  expect(await ledger()).toEqual({ spent: 30, held: 0, left: 970 });
  expect(program.err).toBe('');
});

test('a refused key and a wrong request ask the model nothing', async () => {
  const { ask } = await startProxy({ tokenMs: 1 }, { MODEL_URL: 'http://127.0.0.1:1' });
  const { key, ledger } = await newKey();
  const told = async (response: Promise<Response>) => [(await response).status, await (await response).text()];
  expect(await told(ask('made_up', 1, 10))).toEqual([401, '{"code":"NOT_FOUND"}']);
  expect(await told(ask(key, 1, 1001))).toEqual([429, '{"code":"USAGE_EXCEEDED"}']);
  expect(await told(ask(key, 1, 0))).toEqual([400, '{"code":"INVALID"}']);
  // A model that is away costs nothing.
  expect((await ask(key, 1, 10)).status).toBe(502);
  expect(await ledger()).toEqual({ spent: 0, held: 0, left: granted });
});

test('the commands of README.md work', async () => {
  const dir = dirOfTest();
  const [proxyPort, modelPort, budgetPort] = [await freePort(), await freePort(), await freePort()];
  const blocks = blocksOf('examples/llm-proxy/README.md');
  expect(blocks).toHaveLength(6);
  const commands = [...blocks, 'kill $MODEL']
    .join('\n')
    .replace('export ROOT_KEY=root_…\n', '')
    .replaceAll('http://127.0.0.1:8080', tollgate.url)
    .replaceAll('127.0.0.1:3001', `127.0.0.1:${proxyPort}`)
    .replaceAll('127.0.0.1:3002', `127.0.0.1:${modelPort}`)
    .replaceAll('3003', `${budgetPort}`)
    .replace('node examples/llm-proxy/model.mjs', `PORT=${modelPort} node examples/llm-proxy/model.mjs`)
    .replace('TOLLGATE_URL=', `PORT=${proxyPort} TOLLGATE_URL=`)
    .replaceAll('examples/llm-proxy/', resolve('examples/llm-proxy/').concat('/'));
  const env = { PATH: process.env.PATH, ROOT_KEY: tollgate.rootKey };
  const { stdout } = spawnSync('bash', ['-c', commands], { cwd: dir, env, encoding: 'utf8', timeout: 30_000 });
  const printed = stdout.split('\n').filter((line) => line !== '' && !line.startsWith('listens on'));
  expect(printed).toEqual([
    expect.stringMatching(/^data: \{"token":"\w+"\}$/),
    'data: [DONE]',
    '"remaining":970',
    '{"code":"USAGE_EXCEEDED"}"credits":400',
    expect.stringMatching(/^id_\w+$/),
    '"data":{}',
    'data: [DONE]',
    '"planId":"team"',
    '"used":600',
    '{"code":"RATE_LIMITED","plan":"team"}',
  ]);
  expect(readFileSync(join(dir, 'answer.txt'), 'utf8')).toContain('data: {"token":"the"}');
});
