// `tollgate mcp`: with the official client, on the built command; and line by line, in this process.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Tool, toolsOf } from '../../src/cli/mcpTools.ts';
import { grantPresets } from '../../src/domain/grants.ts';
import { digestOf } from '../../src/domain/keyString.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations } from '../../src/operations/index.ts';
import { version } from '../../src/version.ts';
import { refused, runCli, runCliProcess, spawnCli } from '../support/cli.ts';
import { served } from '../support/cliWays.ts';
import { reads } from '../support/everyRead.ts';
import { exampleOf, makeThings, type Things } from '../support/examples.ts';
import { blocksOf } from '../support/folder.ts';
import { harness } from '../support/harness.ts';
import { build, cliFile } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';

const app = harness();
const url = served(app);
beforeAll(() => build());

const offered = (write: boolean): Tool[] =>
  [...toolsOf(write).values()].filter((tool): tool is Tool => typeof tool !== 'string');
const namesOf = (tools: readonly Tool[]): string[] => tools.map(({ operation }) => operation);
const request = (id: unknown, method: unknown, params?: unknown) => ({ jsonrpc: '2.0', id, method, params });
const call = (id: number, name: unknown, input?: unknown) => request(id, 'tools/call', { name, arguments: input });

interface Setup {
  args?: string[];
  rootKey?: string;
  server?: string;
}

/** Sends messages, each in a line, and returns the responses. The command must succeed and print nothing else. */
async function talk(messages: readonly unknown[], { args = [], rootKey = app.rootKey, server = url() }: Setup = {}) {
  const lines = messages.map((message) => (typeof message === 'string' ? message : JSON.stringify(message)));
  const env = { TOLLGATE_URL: server, TOLLGATE_ROOT_KEY: rootKey };
  const { code, out, err } = await runCli(['mcp', ...args], env, lines.join('\n'));
  expect({ code, err }).toEqual({ code: 0, err: '' });
  return out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

/** The result of a tool. */
async function resultOf(name: string, input: unknown, setup: Setup = {}) {
  const [{ result, error }] = await talk([call(1, name, input)], setup);
  expect(error).toBeUndefined();
  const [{ type, text }, ...others] = result.content;
  expect({ type, others }).toEqual({ type: 'text', others: [] });
  return { isError: result.isError as boolean, text: text as string };
}

/** The official client, which starts the built command. */
async function connect(args: string[] = [], { words = [cliFile, 'mcp'], rootKey = app.rootKey } = {}) {
  const client = new Client({ name: 'test', version: '1.0.0' });
  const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: rootKey };
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [...words, ...args],
    env,
    stderr: 'pipe',
  });
  let err = '';
  transport.stderr!.on('data', (text) => (err += text));
  onTestFinished(async () => {
    await client.close();
    expect(err).toBe('');
  });
  await client.connect(transport);
  return {
    client,
    async call(name: string, input: Record<string, unknown>) {
      const { isError, content } = await client.callTool({ name, arguments: input });
      return { isError, text: (content as { text: string }[])[0]!.text };
    },
  };
}

describe('the official client', () => {
  test('reads, and cannot change anything', async () => {
    const { keyId } = await app.createKey({ name: 'before' });
    const { client, call } = await connect();
    expect(client.getServerVersion()).toEqual({ name: 'tollgate', version: expect.stringContaining(version) });
    expect(client.getInstructions()).toContain('never instructions');
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name).sort()).toEqual(
      namesOf(offered(false))
        .map((name) => name.replace('.', '_'))
        .sort(),
    );
    expect(tools.filter(({ annotations }) => annotations?.readOnlyHint !== true)).toEqual([]);

    const { isError, text } = await call('keys_getKey', { keyId });
    expect({ isError, ...JSON.parse(text).data }).toMatchObject({ isError: false, keyId, name: 'before' });
    expect(await call('keys_getKey', { keyId: 'key_none' })).toEqual({ isError: true, text: 'There is no such key.' });
    expect(await call('keys_getKey', {})).toEqual({ isError: true, text: 'body.keyId is required.' });
    await expect(call('keys_updateKey', { keyId, name: 'after' })).rejects.toThrow(/`tollgate mcp --write` offers it/);
    expect((await app.ok('keys.getKey', { keyId })).name).toBe('before');
  });

  test('with --write changes a key, and gets no key string', async () => {
    const { keyId, apiId } = await app.createKey({ name: 'before' });
    const { client, call } = await connect(['--write']);
    const { tools } = await client.listTools();
    const hintsOf = (name: string) => tools.find((tool) => tool.name === name)?.annotations;
    expect(hintsOf('keys_updateKey')).toEqual({ readOnlyHint: false, destructiveHint: true, openWorldHint: false });
    expect(hintsOf('plans_createPlan')).toMatchObject({ readOnlyHint: false, destructiveHint: false });
    expect(hintsOf('keys_getKey')).toMatchObject({ readOnlyHint: true, destructiveHint: false });
    expect(await call('keys_updateKey', { keyId, name: 'after' })).toMatchObject({ isError: false });
    expect((await app.ok('keys.getKey', { keyId })).name).toBe('after');
    await expect(call('keys_createKey', { apiId })).rejects.toThrow(/strings of keys.*A person uses the console/);
    await expect(call('keys_rerollKey', { keyId, expiration: 0 })).rejects.toThrow(/strings of keys/);
    expect((await app.ok('keys.listKeys', { apiId })).map((key) => key.keyId)).toEqual([keyId]);
  });

  test('starts it by the commands and configurations of docs/mcp.md', async () => {
    const { keyId } = await app.createKey({});
    const [, , ...create] = blocksOf('docs/mcp.md')[0]!.trim().split(' ');
    const store = { REDIS_URL: app.redisUrl() };
    const { out } = await runCli([...create, '--workspace', app.workspaceId, '--json'], store);
    const { rootKey } = JSON.parse(out);
    const [desktop, code] = blocksOf('docs/mcp.md', 'json').map((block) => JSON.parse(block));
    for (const { tollgate } of [desktop.mcpServers, code.servers]) {
      expect([tollgate.command, Object.keys(tollgate.env)]).toEqual(['node', ['TOLLGATE_URL', 'TOLLGATE_ROOT_KEY']]);
      const words = tollgate.args.map((word: string) => word.replace('/opt/tollgate', resolve('.')));
      const { call } = await connect([], { words, rootKey });
      expect(await call('keys_getKey', { keyId })).toMatchObject({ isError: false });
    }
    expect(`\${input:${code.inputs[0].id}}`).toBe(code.servers.tollgate.env.TOLLGATE_ROOT_KEY);
  });
});

interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  isSecret?: true;
}

/** All fields of a schema, by name. */
const fieldsOf = ({ properties = {}, items }: Schema): [string, Schema][] => [
  ...Object.entries(properties).flatMap(([name, field]): [string, Schema][] => [[name, field], ...fieldsOf(field)]),
  ...(items ? fieldsOf(items) : []),
];

describe('the tools', () => {
  test('are without --write the operations that change nothing', () => {
    const none = ['keys.whoami'];
    expect(namesOf(offered(false)).sort()).toEqual(
      reads
        .map(({ name }) => name)
        .filter((name) => !none.includes(name))
        .sort(),
    );
    const changing = offered(true).filter(({ listed }) => !listed.annotations.readOnlyHint);
    expect(namesOf(changing)).toEqual(
      expect.arrayContaining(['keys.updateKey', 'keys.settleHold', 'ratelimits.limit']),
    );
  });

  test('are destructive unless all that they do is to create or add', () => {
    const mild = offered(true).filter(({ listed }) => !listed.annotations.destructiveHint);
    const adding = namesOf(mild).filter((name) => !reads.some((read) => read.name === name));
    expect(adding.filter((name) => !/\.(create|add)[A-Z]/.test(name))).toEqual([]);
    expect(adding.length).toBeGreaterThan(4);
    const changing = /\.(delete|disable|update|change|remove|revoke|set|restore|settle|cancel)/;
    for (const { operation, listed } of offered(true))
      expect(listed.annotations.destructiveHint || !changing.test(operation), operation).toBe(true);
  });

  test('have names and inputs that clients accept', () => {
    for (const { listed } of offered(true)) {
      expect(listed.name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
      expect(listed.description).not.toBe('');
      const { type, properties, additionalProperties } = listed.inputSchema as Schema & { additionalProperties: false };
      expect({ type, additionalProperties }, listed.name).toEqual({ type: 'object', additionalProperties: false });
      for (const name of Object.keys(properties!)) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
      const text = JSON.stringify(listed);
      expect(text).not.toMatch(/"(isSecret|documented|\$ref|\$schema)"/);
    }
  });

  test('every field with the string of a key is marked, and no tool has one', () => {
    const secret = /^(key|(key|root)?string|rootKey|token|secret|plaintext|password|decrypt|recoverable)$/i;
    const isText = ({ type }: Schema) => ['string', 'boolean'].includes(type as string);
    for (const { name, input, output } of operations as readonly AnyOperation[]) {
      const fields = [...fieldsOf(input as Schema), ...fieldsOf(output as Schema)];
      const unmarked = fields.filter(([field, of]) => secret.test(field) && isText(of) && !of.isSecret);
      expect(
        unmarked.map(([field]) => field),
        `${name}: use KeyString or out.secret`,
      ).toEqual([]);
    }
    const withheld = [...toolsOf(true)].flatMap(([name, tool]) => (typeof tool === 'string' ? name : []));
    const known = ['createKey', 'verifyKey', 'whoami', 'rerollKey', 'migrateKeys'].map((name) => `keys_${name}`);
    expect(withheld).toEqual(
      expect.arrayContaining([...known, 'rootKeys_createRootKey', 'ratelimits_multiLimit', 'analytics_tail']),
    );
    const named = offered(true).flatMap(({ listed }) => fieldsOf(listed.inputSchema as Schema).map(([name]) => name));
    expect(named.filter((name) => secret.test(name))).toEqual([]);
  });

  test('no result of any has a string that is a key or a root key', async () => {
    const texts: string[] = [];
    const all: Things[] = [];
    for (const { operation, listed } of offered(true)) {
      const things = await makeThings(app.call, app.rootKey);
      all.push(things);
      const { isError, text } = await resultOf(listed.name, exampleOf(operation).input(things), { args: ['--write'] });
      expect(isError, `${operation}: ${text}`).toBe(false);
      texts.push(text);
    }
    const text = texts.join('\n');
    for (const { key, deletedKey } of all) for (const one of [key, deletedKey]) expect(text).not.toContain(one);
    const words = new Set(text.match(/[\w+/=.-]{16,}/g));
    expect(words.size).toBeGreaterThan(100);
    for (const word of words) {
      expect(await app.store.keys.findByDigest(app.workspaceId, digestOf(word)), word).toBeUndefined();
      if (word.startsWith('root_')) expect((await app.call('rootKeys.whoami', {}, word)).status, word).toBe(401);
    }
  });

  test('that read need grants to read, and all others more', async () => {
    const rootKey = await app.createRootKey([...grantPresets.reader]);
    const things = await makeThings(app.call, app.rootKey);
    const changes = async () => (await app.ok('audit.listEvents', { order: 'desc', limit: 1 }))[0]!.id;
    const before = await changes();
    for (const { operation, listed } of offered(true)) {
      const setup = { rootKey, args: ['--write'] };
      const { isError, text } = await resultOf(listed.name, exampleOf(operation).input(things), setup);
      expect(isError, `${operation}: ${text}`).toBe(!listed.annotations.readOnlyHint);
    }
    expect(await changes()).toBe(before);
  });

  test('refuse secret inputs before they are sent', async () => {
    const seen = await openRecorder();
    const setup = { server: seen.url };
    for (const [name, input] of [
      ['keys_explainKey', { key: 'pay_secret' }],
      ['keys_getKey', { keyId: 'key_1', decrypt: true }],
      ['keys_getKey', JSON.parse('{"keyId":"key_1","__proto__":1}')],
    ] as const) {
      const { isError, text } = await resultOf(name, input, setup);
      expect(isError).toBe(true);
      expect(text).toMatch(/^This tool has no other inputs than these: keyId/);
      expect(text).not.toContain('pay_secret');
    }
    for (const key of [app.rootKey, ` ${(await app.createKey({ prefix: 'pay' })).key}`, (await app.createKey()).key]) {
      const { isError, text } = await resultOf('system_find', { text: key }, setup);
      expect(isError).toBe(true);
      expect(text).toMatch(/^text is the string of a key/);
      expect(text).not.toContain(key.trim());
    }
    const { key } = await app.createKey();
    const nested = await resultOf('audit_listEvents', { resource: { type: 'key', id: key } }, setup);
    expect([nested.isError, nested.text]).toEqual([true, expect.stringMatching(/^resource is the string of a key/)]);
    expect(seen.most()).toBe(0);
    expect((await resultOf('system_find', { text: { toString: 1 } })).text).toBe('body.text must be string.');
    for (const text of ['checksum', key.slice(0, 8), key.slice(0, -1)])
      expect((await resultOf('system_find', { text })).isError).toBe(false);
  });
});

/** A server that responds after some time, and counts how many requests it has at once. */
async function openRecorder(respondsMs = 0) {
  let [now, most] = [0, 0];
  const server = createServer((_request, response) => {
    most = Math.max(most, ++now);
    setTimeout(() => {
      now--;
      response.end('{"meta":{},"data":{}}');
    }, respondsMs);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, most: () => most };
}

describe('results', () => {
  test('of a list have the cursor of the next page', async () => {
    const { apiId } = await app.ok('apis.createApi', { name: 'pages' });
    const keys = [await app.createKey({ apiId }), await app.createKey({ apiId })];
    const first = JSON.parse((await resultOf('keys_listKeys', { apiId, limit: 1 })).text);
    expect(first.data).toMatchObject([{ keyId: keys[0]!.keyId }]);
    const second = JSON.parse((await resultOf('keys_listKeys', { apiId, limit: 1, cursor: first.cursor })).text);
    expect(second).toMatchObject({ data: [{ keyId: keys[1]!.keyId }] });
    expect(second.cursor).toBeUndefined();
  });

  test('that are too large name the inputs that narrow them', async () => {
    const { apiId } = await app.ok('apis.createApi', { name: 'large' });
    const meta = { text: 'x'.repeat(9000) };
    await Promise.all(Array.from({ length: 30 }, () => app.createKey({ apiId, meta })));
    const { isError, text } = await resultOf('keys_listKeys', { apiId });
    expect(isError).toBe(true);
    expect(text).toMatch(/^The result has \d{6} characters; at most 262144 .* by its inputs: .*\blimit\b.*externalId/);
    expect(await resultOf('keys_listKeys', { apiId, limit: 20 })).toMatchObject({ isError: false });
  });

  test('have no invisible characters', async () => {
    const name = 'paid\u{e0041}\u{e0042}\u202e\u200b';
    const { keyId } = await app.createKey({ name });
    const { text } = await resultOf('keys_getKey', { keyId });
    expect(text).not.toMatch(/[\u{e0041}\u202e\u200b]/u);
    expect(JSON.parse(text).data.name).toBe(name);
  });

  test('name a missing grant, and all wrong fields', async () => {
    const rootKey = await app.createRootKey(['api.*.read_key']);
    const { isError, text } = await resultOf('apis_listApis', {}, { rootKey });
    expect({ isError, text }).toEqual({ isError: true, text: expect.stringContaining('read_api') });
    const wrong = await resultOf('keys_listKeys', { limit: 1000, order: 'up' });
    expect(wrong.text).toMatch(/body\.limit must be at most 100\..*body\.order must be one of asc, desc\./);
  });

  test('state that a server cannot be reached, and that a change may have been made', async () => {
    const port = await freePort();
    const setup = { server: `http://127.0.0.1:${port}`, args: ['--write'] };
    const unreachable = `The server at TOLLGATE_URL cannot be reached: connect ECONNREFUSED 127.0.0.1:${port}.`;
    expect(await resultOf('apis_listApis', {}, setup)).toEqual({ isError: true, text: unreachable });
    expect(await resultOf('apis_createApi', { name: 'twice' }, setup)).toEqual({
      isError: true,
      text: `${unreachable} It may have been done: read what it changes before you repeat it.`,
    });
    expect(await resultOf('apis_listApis', {}, { rootKey: 'root_none' })).toEqual({
      isError: true,
      text: 'The root key is unknown.',
    });
  });
});

describe('the protocol', () => {
  const error = (id: unknown, code: number) => ({ jsonrpc: '2.0', id, error: { code, message: expect.any(String) } });

  test.each([
    ['no JSON', 'nonsense', error(null, -32_700)],
    ['a cut message', '{"jsonrpc":"2.0","id":1', error(null, -32_700)],
    ...[1, null, 'text', {}, { id: 1 }].map((message) => [
      `${JSON.stringify(message)}`,
      JSON.stringify(message),
      error((message as { id?: number } | null)?.id ?? null, -32_600),
    ]),
    ['another version', { ...request(1, 'ping'), jsonrpc: '1.0' }, error(1, -32_600)],
    ['an id that is null', request(null, 'ping'), error(null, -32_600)],
    ['an id that is an object', request({}, 'ping'), error(null, -32_600)],
    ['a method that is a number', request(1, 5), error(1, -32_600)],
    ['a response', { jsonrpc: '2.0', id: 'a', result: {} }, error('a', -32_600)],
    ['an unknown method', request('a', 'resources/list'), error('a', -32_601)],
    ['a method of a prototype', request(1, 'constructor'), error(1, -32_601)],
    ['the probe of a later revision', request(1, 'server/discover', { _meta: {} }), error(1, -32_601)],
    ['params that are a list', request(1, 'ping', []), error(1, -32_602)],
    ['no tool', request(1, 'tools/call'), error(1, -32_602)],
    ['an unknown tool', call(1, 'keys_none'), error(1, -32_602)],
    ['a tool named as an operation', call(1, 'keys.getKey'), error(1, -32_602)],
    ['a tool of a prototype', call(1, '__proto__'), error(1, -32_602)],
    ['a tool that is a number', call(1, 5), error(1, -32_602)],
    ['arguments that are a list', call(1, 'apis_listApis', []), error(1, -32_602)],
    ['arguments that are null', call(1, 'apis_listApis', null), error(1, -32_602)],
    ['an empty array', [], error(null, -32_600)],
    ['a long array', Array(101).fill(request(1, 'ping')), error(null, -32_600)],
    ['a long line', request(1, 'ping', { text: 'x'.repeat(3_000_000) }), error(null, -32_600)],
  ] as [string, unknown, object][])('%s is an error, and the next message is served', async (_, message, expected) => {
    const ping = { jsonrpc: '2.0', id: 'next', result: {} };
    expect(await talk([message, '', '\r', request('next', 'ping')])).toEqual([expected, ping]);
  });

  test('notifications have no response, also unknown ones and in an array', async () => {
    const notify = (method: string) => ({ jsonrpc: '2.0', method });
    const all = [notify('notifications/initialized'), notify('tools/call'), notify('nonsense')];
    expect(await talk([...all, all])).toEqual([]);
    const mixed = [request(1, 'ping'), notify('notifications/cancelled'), 5, call(2, 'keys_none')];
    expect(await talk([mixed])).toEqual([
      [{ jsonrpc: '2.0', id: 1, result: {} }, error(null, -32_600), error(2, -32_602)],
    ]);
  });

  test.each([
    ['2025-11-25', '2025-11-25'],
    ['2025-06-18', '2025-06-18'],
    ['2025-03-26', '2025-03-26'],
    ['2024-11-05', '2024-11-05'],
    ['1999-01-01', '2025-11-25'],
    [5, '2025-11-25'],
    [undefined, '2025-11-25'],
  ])('revision %s of the client is answered by %s', async (protocolVersion, answered) => {
    const [{ result }] = await talk([request(1, 'initialize', { protocolVersion, capabilities: {} })]);
    expect(result).toMatchObject({ protocolVersion: answered, capabilities: { tools: {} } });
  });

  test('at most eight calls run at once, and all are answered', async () => {
    const recorder = await openRecorder(100);
    const calls = Array.from({ length: 30 }, (_, id) => call(id, 'system_getStatus'));
    const answers = await talk([...calls, calls], { server: recorder.url });
    const [batch] = answers.filter(Array.isArray);
    const single = answers.filter((answer) => !Array.isArray(answer));
    for (const responses of [batch, single] as { id: number }[][])
      expect(responses.map(({ id }) => id).sort((a, b) => a - b)).toEqual([...Array(30).keys()]);
    expect(recorder.most()).toBe(8);
  });
});

describe('the process', () => {
  const start = (server = url()) => spawnCli(['mcp'], { TOLLGATE_URL: server, TOLLGATE_ROOT_KEY: app.rootKey });

  test('ends with its input, after the last response', async () => {
    const recorder = await openRecorder(300);
    const env = { TOLLGATE_URL: recorder.url, TOLLGATE_ROOT_KEY: app.rootKey };
    const { code, out, err } = await runCliProcess(['mcp'], env, JSON.stringify(call(1, 'system_getStatus')));
    expect({ code, err, ...JSON.parse(out) }).toMatchObject({ code: 0, err: '', id: 1, result: { isError: false } });
    expect(await runCliProcess(['mcp'], env)).toEqual({ code: 0, out: '', err: '' });
  });

  test('needs little memory for a line of any length', async () => {
    const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey, NODE_OPTIONS: '--max-old-space-size=64' };
    const message = JSON.stringify(request(1, 'ping'));
    const { code, out } = await runCliProcess(['mcp'], env, `${'x'.repeat(200_000_000)}\n${message}\n`);
    const answers = out.trim().split('\n');
    expect([code, ...answers.map((line) => JSON.parse(line).error?.code)]).toEqual([0, -32_600, undefined]);
  });

  test('ends by SIGTERM, and when its output is closed', async () => {
    const stopped = start();
    stopped.stdin.write(`${JSON.stringify(request(1, 'ping'))}\n`);
    await once(stopped.stdout, 'data');
    stopped.kill('SIGTERM');
    expect(await once(stopped, 'exit')).toEqual([null, 'SIGTERM']);

    const closed = start();
    closed.stdout.destroy();
    let err = '';
    closed.stderr.on('data', (text) => (err += text));
    closed.stdin.on('error', () => {}).write(`${JSON.stringify(request(1, 'tools/list'))}\n`);
    await once(closed, 'close');
    expect(err).toBe('');
  });

  test.each([
    [{}, 'Set TOLLGATE_URL to the address of a server, and TOLLGATE_ROOT_KEY'],
    [{ TOLLGATE_URL: 'http://x' }, 'TOLLGATE_ROOT_KEY is not'],
    [{ TOLLGATE_URL: 'ftp://x', TOLLGATE_ROOT_KEY: 'root_1' }, 'TOLLGATE_URL must be http'],
    [{ TOLLGATE_URL: 'http://ada:s3cret@x', TOLLGATE_ROOT_KEY: 'root_1' }, 'without user and password'],
    [{ TOLLGATE_URL: 'http://x', TOLLGATE_ROOT_KEY: 'root_s3cret\nroot_2' }, 'TOLLGATE_ROOT_KEY has characters'],
  ])('%j is an error that names the setting and repeats no secret', async (env, message) => {
    const outcome = runCli(['mcp'], env);
    await refused(outcome, message);
    expect((await outcome).err).not.toContain('s3cret');
  });
});

test('docs/mcp.md names the operations that are no tools, and the bounds', () => {
  const page = readFileSync('docs/mcp.md', 'utf8');
  for (const [name, tool] of toolsOf(true)) {
    if (typeof tool === 'string') expect(page).toContain(`\`${name.replace('_', '.')}\``);
  }
  const source = readFileSync('src/cli/mcp.ts', 'utf8');
  for (const [, number] of source.matchAll(/CharactersMax = ([\d_]+);/g))
    expect(page).toContain(`${number!.replaceAll('_', ',')} characters`);
});
