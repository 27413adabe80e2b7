// The tests of every gateway example: the real gateway between a client and an API, with the built Tollgate. Each example runs
// twice: as written (closed), and with the change that its own comment describes (open).

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import { cliActor, type RootKeyRecord } from '../../src/store/rootKeys.ts';
import type { InputOf } from '../support/harness.ts';
import type { Program } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { testIf } from '../support/testIf.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

export interface GatewayExample {
  /** The path below examples/. */
  file: string;
  /** The changes that make it open, as texts and their replacements; undefined if the gateway has no open mode. */
  open: readonly (readonly [from: string, to: string])[] | undefined;
  /** The reason why it cannot run on this machine; undefined if it can. */
  missing: () => string | undefined;
  /** Starts the gateway with the example, after the addresses were replaced by those of the test. */
  start(dir: string, example: string, port: number): Program | Promise<Program>;
  /** The addresses in the example; without `listen` if another file has it. */
  addresses: { listen?: string; tollgate: string; api: string };
  /** The status when Tollgate is unreachable or hangs. */
  away: number;
  /** The status when Tollgate refuses the gateway's own settings, such as its root key. */
  misconfigured: number;
  /** It cannot tell such a refusal from an unreachable Tollgate, and so lets requests pass in open mode. */
  openWhenMisconfigured?: true;
  /** It waits for a Tollgate that hangs for longer than a test may take. */
  waitsForTollgate?: true;
  /** Responses other than refusals have the header RateLimit. */
  ratelimitOnSuccess: boolean;
  /** The status for a header of 6 KB that is neither the key nor a cookie, if it is not 200. */
  largeHeader?: number;
  /** The status for a URL of 6 KB, if it is not 200. */
  longUrl?: number;
  /** How it accepts HTTP/2 without TLS: on the same port, or with these changes on another one. */
  http2?: 'same port' | ((port: number) => readonly (readonly [from: string, to: string])[]);
  /** Further tests of this gateway. */
  more?(context: Context): void;
}

/** Prints on the terminal that a program is missing, because a skipped test is easily overlooked. */
export const missingProgram =
  (program: string, ...args: string[]) =>
  (): string | undefined =>
    spawnSync(program, args, { stdio: 'ignore' }).error ? `there is no ${program} here` : undefined;

export interface Reached {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  bytes: number;
}

interface Running {
  program: Program;
  dir: string;
  port: number;
}

export interface Context {
  tollgate: () => Tollgate;
  closed: () => Running;
  /** Another gateway with these changes, until the end of the test. */
  start: (changes: readonly (readonly [string, string])[]) => Promise<Running>;
  newKey: (more?: Partial<InputOf<'keys.createKey'>>) => Promise<{ key: string; keyId: string }>;
  ask: Ask;
  reached: Reached[];
}

interface Answer {
  status: number;
  headers: Map<string, string>;
  text: string;
}
interface AskOptions {
  key?: string | undefined;
  method?: string;
  headers?: readonly string[];
  body?: string;
  open?: boolean;
  /** The port of another gateway than the open and the closed one. */
  port?: number;
  on?: Connection;
}
type Ask = (path: string, options?: AskOptions) => Promise<Answer>;

/** A connection of a client that sends exactly the given bytes. */
class Connection {
  readonly socket: Socket;
  #buffer = Buffer.alloc(0);
  #ended = false;

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.on('data', (data) => {
      this.#buffer = Buffer.concat([this.#buffer, data]);
    });
    this.socket
      .on('error', () => {})
      .on('close', () => {
        this.#ended = true;
      });
  }

  get isOpen(): boolean {
    return !this.#ended;
  }

  async #until<Value>(read: () => Value | undefined): Promise<Value> {
    const giveUpAt = performance.now() + 15_000;
    for (;;) {
      const value = read();
      if (value !== undefined) return value;
      if (this.#ended || performance.now() > giveUpAt)
        throw new Error(`No answer: ${this.#buffer.toString('latin1').slice(0, 500)}`);
      await delay(2);
    }
  }

  #take(bytes: number): Buffer {
    const taken = this.#buffer.subarray(0, bytes);
    this.#buffer = this.#buffer.subarray(bytes);
    return taken;
  }

  async #line(): Promise<string> {
    const end = await this.#until(() => {
      const at = this.#buffer.indexOf('\r\n');
      return at < 0 ? undefined : at;
    });
    const line = this.#take(end).toString('latin1');
    this.#take(2);
    return line;
  }

  async #bytes(count: number): Promise<string> {
    await this.#until(() => (this.#buffer.length >= count ? true : undefined));
    return this.#take(count).toString();
  }

  /** The next response. Interim responses are skipped. */
  async answer(): Promise<Answer> {
    const status = Number((await this.#line()).split(' ')[1]);
    const headers = new Map<string, string>();
    for (let line = await this.#line(); line !== ''; line = await this.#line()) {
      const colon = line.indexOf(':');
      const name = line.slice(0, colon).toLowerCase();
      const before = headers.get(name);
      headers.set(name, (before === undefined ? '' : `${before}, `) + line.slice(colon + 1).trim());
    }
    if (status === 100) return this.answer();
    if (status === 101) return { status, headers, text: '' };
    let text = '';
    if (headers.get('transfer-encoding') === 'chunked') {
      for (;;) {
        const size = Number.parseInt(await this.#line(), 16);
        text += await this.#bytes(size);
        await this.#line();
        if (size === 0) break;
      }
    } else text = await this.#bytes(Number(headers.get('content-length') ?? 0));
    return { status, headers, text };
  }

  /** Bytes received without HTTP framing, after an upgrade. */
  read = (count: number): Promise<string> => this.#bytes(count);
}

/** Paths that a lenient API serves as /documents or below. */
const documents = [
  '/documents',
  '/documents/',
  '/documents/7',
  '/documents?x=/other',
  '/documents?',
  '/documents/../documents',
  '/%64ocuments',
  '/%64%6f%63%75%6d%65%6e%74%73/7',
  '/%44ocuments',
  '//documents',
  '///documents//7',
  '/./documents',
  '/%2e/documents',
  '/other/../documents',
  '/other/%2e%2e/documents',
  '/other/.%2E/documents',
  '/other/..%2fdocuments',
  '/other%2f..%2fdocuments',
  '/%2fdocuments',
  '/%2Fdocuments/7',
  '/other%2f%2e%2e%2fdocuments',
  '/Documents',
  '/DOCUMENTS/7',
  '/documents/.',
  '/documents;a=b',
  '/documents%2f7',
  '/documents%20',
  '/documents%3fx',
  '/documents%23x',
  '/documents%0a',
  '/documents%00',
  '/other/..\\documents',
  '/other%5c..%5cdocuments',
  '/\\documents',
  '/%5cdocuments',
  'http://api.example/documents',
  'http://api.example//documents',
  'HTTP://api.example/%64ocuments',
  '/documents#x',
  '/other/./..//documents',
  '/other/x/../../documents',
  '/../documents',
  '/..//documents',
];

/** Paths that are /documents to a gateway that normalises them and not to an API that does not, or the other way round. */
const twoWays = [
  '/documents/../other',
  '/documents/%2e%2e/other',
  '/documents%2f..%2fother',
  '/documents/..%2fother',
  '/documents%5c..%5cother',
  '/documents/..;/other',
  '/other/..;/documents',
  '/;/documents',
  '/;a=b/documents',
  '/other/;/../../documents',
  '/other/..%3b/documents',
];

/** All interpretations of a path by APIs: decoded or not, with dots and slashes resolved or not, in any order. */
function readings(url: string): Set<string> {
  const path = url.replace(/^https?:\/\/[^/]*/i, '').replace(/[?#].*$/s, '');
  const decode = (text: string) =>
    text.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  const steps = [
    decode,
    (text: string) => text.replaceAll('\\', '/'),
    (text: string) => text.replaceAll(/;[^/]*/g, ''),
    (text: string) => text.replaceAll(/\/+/g, '/'),
    (text: string) => {
      const parts: string[] = [];
      for (const part of text.split('/').slice(1)) {
        if (part === '..') parts.pop();
        else if (part !== '.') parts.push(part);
      }
      return `/${parts.join('/')}`;
    },
  ];
  const found = new Set([path]);
  // The set grows during the loop. Only one pass of decoding: no gateway can protect an API that decodes twice.
  for (const text of found) for (const step of steps) if (step !== decode || text === path) found.add(step(text));
  return found;
}

const isDocuments = (url: string) => [...readings(url)].some((path) => /^\/documents/i.test(path));

const requests = { name: 'requests', limit: 2, duration: 60_000, autoApply: true };

export function describeGateway(name: string, example: GatewayExample) {
  const why = example.missing();
  if (why) console.warn(`${name}: the tests of examples/${example.file} are SKIPPED: ${why}.`);

  describe.skipIf(why !== undefined)(name, () => {
    let tollgate: Tollgate;
    let apiId: string;
    let gatewayRootKeyId: string;
    let closed: Running;
    let open: Running | undefined;
    const reached: Reached[] = [];
    const api = createServer(async (request, response) => {
      const { method, url, headers } = request;
      let bytes = 0;
      for await (const chunk of request) bytes += chunk.length;
      reached.push({ method: method!, url: url!, headers, bytes });
      const status = /^\/status\/(\d+)/.exec(url!)?.[1];
      response.statusCode = Number(status ?? 200);
      response.setHeader('X-Of-The-Api', 'yes');
      response.end('from the API');
    });
    api.on('upgrade', ({ url, headers }, socket: Socket) => {
      reached.push({ method: 'UPGRADE', url: url!, headers, bytes: 0 });
      const accept = createHash('sha1')
        .update(`${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
        .digest('base64');
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\nhello `,
      );
      socket.on('data', (data) => socket.write(data)).on('error', () => {});
      socket.on('end', () => socket.end());
    });

    async function startGateway(changes: readonly (readonly [string, string])[]): Promise<Running> {
      const dir = mkdtempSync(join(tmpdir(), 'tollgate-gateway-'));
      const port = await freePort();
      const { listen, tollgate: check, api: behind } = example.addresses;
      const replaced = [
        ...(listen === undefined
          ? []
          : [[listen, listen.replace(/\b80\b/, String(port)).replace('0.0.0.0', '127.0.0.1')]]),
        [check, check.replace('8080', new URL(tollgate.url).port)],
        [behind, behind.replace('3000', String((api.address() as AddressInfo).port))],
        ...changes,
      ] as (readonly [string, string])[];
      let text = readFileSync(`examples/${example.file}`, 'utf8');
      for (const [from, to] of replaced) {
        expect(text.split(from), `${from} in examples/${example.file}`).toHaveLength(2);
        text = text.replace(from, () => to);
      }
      const program = await example.start(dir, text, port);
      await vi.waitFor(
        async () => {
          if (program.hasEnded()) throw new Error(program.printed());
          const connection = new Connection(port);
          connection.socket.write('GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n');
          const { status } = await connection.answer().finally(() => connection.socket.destroy());
          // Traefik listens before it has read its file.
          expect(status).not.toBe(404);
        },
        { timeout: 20_000, interval: 50 },
      );
      return { program, dir, port };
    }

    beforeAll(async () => {
      tollgate = await startTollgate(async ({ workspaceId, store }) => {
        apiId = await store.apis.create(workspaceId, name, cliActor);
        const { key, start } = createRootKeyString(workspaceId);
        const permissions = [`api.${apiId}.verify_key`];
        const record = { digest: digestOf(key), start, permissions };
        gatewayRootKeyId = ((await store.rootKeys.create(workspaceId, record, cliActor)) as RootKeyRecord).rootKeyId;
        return { GATEWAY_ROOT_KEY: key, GATEWAY_META: 'plan', LOG_LEVEL: 'trace' };
      });
      api.listen(0, '127.0.0.1');
      await once(api, 'listening');
      closed = await startGateway([]);
      if (example.open) open = await startGateway(example.open);
    }, startMsMax);
    afterAll(async () => {
      for (const gateway of [closed, open]) {
        if (!gateway) continue;
        await gateway.program.stop();
        rmSync(gateway.dir, { recursive: true });
      }
      api.close();
      api.closeAllConnections();
      await tollgate?.stop();
    }, 60_000);
    beforeEach(() => {
      reached.length = 0;
    });

    const newKey: Context['newKey'] = (more = {}) => tollgate.ok('keys.createKey', { apiId, ...more });

    const ask: Ask = async (path, { key, method = 'GET', headers = [], body, open: isOpen = false, port, on } = {}) => {
      const connection = on ?? new Connection(port ?? (isOpen ? open! : closed).port);
      const lines = [
        `${method} ${path} HTTP/1.1`,
        'Host: api.example',
        ...(key === undefined ? [] : [`Authorization: Bearer ${key}`]),
        ...(body === undefined ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]),
        ...headers,
      ];
      connection.socket.write(`${lines.join('\r\n')}\r\n\r\n${body ?? ''}`);
      try {
        return await connection.answer();
      } finally {
        if (!on) connection.socket.destroy();
      }
    };

    test('a valid key passes: the API gets its owner, and does not get the key', async () => {
      const { key, keyId } = await newKey({
        externalId: 'ada',
        meta: { plan: 'pro ✓' },
        ratelimits: [{ ...requests, limit: 5 }],
      });
      const answer = await ask('/orders?id=7', { key, method: 'POST', body: '{"a":1}' });
      expect([answer.status, answer.text]).toEqual([200, 'from the API']);
      expect(reached).toMatchObject([
        {
          method: 'POST',
          url: '/orders?id=7',
          bytes: 7,
          headers: {
            'x-tollgate-code': 'VALID',
            'x-tollgate-key-id': keyId,
            'x-tollgate-api-id': apiId,
            'x-tollgate-external-id': 'ada',
            'x-tollgate-meta-plan': 'pro%20%E2%9C%93',
          },
        },
      ]);
      expect(JSON.stringify(reached)).not.toContain(key);
      expect((await ask('/', { key: (await newKey()).key })).headers.has('ratelimit')).toBe(false);
      if (example.ratelimitOnSuccess) {
        expect(answer.headers.get('ratelimit')).toMatch(/^"requests";r=4;t=6[01]$/);
        expect(answer.headers.get('ratelimit-policy')).toBe('"requests";q=5;w=60');
      }
    });

    test('refusals have the reason: 401 with a challenge, 403, 429 with the time to wait; in JSON, with the code', async () => {
      const { key, keyId } = await newKey();
      await tollgate.ok('keys.updateKey', { keyId, enabled: false });
      const { key: spent } = await newKey({ credits: { remaining: 0 } });
      const { key: limited } = await newKey({ ratelimits: [{ ...requests, limit: 1 }] });
      expect((await ask('/', { key: limited })).status).toBe(200);
      reached.length = 0;
      for (const [presented, status, code] of [
        [undefined, 401, 'NOT_FOUND'],
        ['made_up', 401, 'NOT_FOUND'],
        [key, 403, 'DISABLED'],
        [spent, 429, 'USAGE_EXCEEDED'],
        [limited, 429, 'RATE_LIMITED'],
      ] as const) {
        const answer = await ask('/', { key: presented });
        expect([answer.status, answer.headers.get('x-tollgate-code')]).toEqual([status, code]);
        expect(answer.headers.get('content-type')).toMatch(/^application\/(problem\+)?json/);
        expect(JSON.parse(answer.text).error.status).toBe(status);
        expect(answer.headers.get('www-authenticate')).toBe(status === 401 ? 'Bearer' : undefined);
        expect(answer.headers.has('retry-after')).toBe(code === 'RATE_LIMITED');
        if (code !== 'RATE_LIMITED') continue;
        expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(50);
        expect(answer.headers.get('ratelimit')).toBe(`"requests";r=0;t=${answer.headers.get('retry-after')}`);
        expect(answer.headers.get('ratelimit-policy')).toBe('"requests";q=1;w=60');
      }
      expect(reached).toEqual([]);
    });

    test('two routes with two permissions: each needs its own', async () => {
      const { key } = await newKey();
      const { key: reader } = await newKey({ permissions: ['documents.read'] });
      const { key: other } = await newKey({ permissions: ['documents.write'] });
      for (const path of ['/', '/other', '/other/documents', '/other?next=/documents']) {
        expect([(await ask(path, { key })).status, path]).toEqual([200, path]);
      }
      for (const path of ['/documents', '/documents/7?a=b', '/other']) {
        expect([(await ask(path, { key: reader })).status, path]).toEqual([200, path]);
      }
      for (const without of [key, other]) {
        const answer = await ask('/documents/7', { key: without });
        expect([answer.status, answer.headers.get('x-tollgate-code')]).toEqual([403, 'INSUFFICIENT_PERMISSIONS']);
      }
      expect(reached.map(({ url }) => url)).toEqual([
        ...['/', '/other', '/other/documents', '/other?next=/documents'],
        ...['/documents', '/documents/7?a=b', '/other'],
      ]);
    });

    test.each(open ? [false, true] : [false])(
      'no spelling of a path passes by its permission (open: %s)',
      async (isOpen) => {
        const { key } = await newKey();
        const answers: [path: string, status: number][] = [];
        for (const path of [...documents, ...twoWays]) {
          // Some are refused by closing the connection.
          const answer = await ask(path, { key, open: isOpen }).catch(() => ({ status: 0 }));
          answers.push([path, answer.status]);
        }
        expect(reached.map(({ url }) => url).filter(isDocuments)).toEqual([]);
        expect(answers.filter(([path, status]) => documents.includes(path) && status === 200)).toEqual([]);
      },
    );

    test('headers of the client with Tollgate’s names reach neither Tollgate nor the API', async () => {
      const { key, keyId } = await newKey({ credits: { remaining: 1000 } });
      const names = [
        'Root-Key',
        'Permissions',
        'Cost',
        'Limits',
        'Code',
        'Key-Id',
        'Api-Id',
        'External-Id',
        'Meta-Plan',
      ];
      const forged = names.flatMap((each) => [
        `X-Tollgate-${each}: forged`,
        `x-tollgate-${each.toLowerCase()}: forged`,
        `X_Tollgate_${each.replace('-', '_')}: forged`,
        `X-Tollgate_${each.replace('-', '_')}: forged`,
      ]);
      for (const isOpen of open ? [false, true] : [false]) {
        for (const headers of [forged, ...forged.map((line) => [line])]) {
          const { status } = await ask('/', { key, headers, open: isOpen });
          // Envoy and others may refuse headers that are duplicate or have underscores.
          expect([200, 400]).toContain(status);
        }
      }
      expect(reached.length).toBeGreaterThan(names.length);
      expect(JSON.stringify(reached)).not.toContain('forged');
      expect(new Set(reached.map(({ headers }) => headers['x-tollgate-key-id']))).toEqual(new Set([keyId]));
      expect((await ask('/', { key: 'made_up', headers: forged })).status).not.toBe(200);
      const { credits } = await tollgate.ok('keys.getKey', { keyId });
      expect(credits!.remaining).toBe(1000 - reached.length);
    }, 60_000);

    test('refusals do not close the client’s connection, also with a body', async () => {
      const { key } = await newKey({ ratelimits: [{ ...requests, limit: 1 }] });
      const { key: well } = await newKey();
      const connection = new Connection(closed.port);
      onTestFinished(() => void connection.socket.destroy());
      expect((await ask('/', { key, on: connection })).status).toBe(200);
      for (let round = 0; round < 5; round++) {
        expect((await ask('/', { key, on: connection })).status).toBe(429);
        expect((await ask('/', { on: connection })).status).toBe(401);
        expect((await ask('/documents', { key: well, on: connection })).status).toBe(403);
      }
      const small = await ask('/', { key, method: 'POST', body: 'x'.repeat(1_000), on: connection });
      expect(small.status).toBe(429);
      await delay(20);
      expect(connection.isOpen).toBe(true);
      expect((await ask('/', { key: well, on: connection })).status).toBe(200);
    });

    test('large headers and bodies of a client pass, and errors of the API are passed on', async () => {
      const { key } = await newKey();
      const cookie = `Cookie: ${'c'.repeat(6_000)}`;
      expect((await ask('/', { key, headers: [cookie] })).status).toBe(200);
      expect((await ask(`/?${'q'.repeat(6_000)}`, { key })).status).toBe(example.longUrl ?? 200);
      expect((await ask('/', { key, headers: [`X-Large: ${'l'.repeat(6_000)}`] })).status).toBe(
        example.largeHeader ?? 200,
      );
      const body = 'b'.repeat(200_000);
      expect((await ask('/', { key, method: 'PUT', body })).status).toBe(200);
      expect(reached.at(-1)).toMatchObject({ method: 'PUT', bytes: 200_000 });
      const chunked = `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0`;
      expect((await ask('/', { key, method: 'POST', headers: [chunked] })).status).toBe(200);
      expect(reached.at(-1)).toMatchObject({ method: 'POST', bytes: 200_000 });
      for (const status of [401, 403, 404, 429, 500, 503]) {
        const answer = await ask(`/status/${status}`, { key });
        expect([answer.status, answer.text, answer.headers.get('x-of-the-api')]).toEqual([
          status,
          'from the API',
          'yes',
        ]);
        expect(answer.headers.get('x-tollgate-code')).toBe(undefined);
      }
    });

    test('a key with fifty limits gets a response with all of them', async () => {
      const ratelimits = Array.from({ length: 50 }, (_, index) => ({
        ...requests,
        limit: 1,
        name: `a limit with quite a long name, which is number ${index}`,
      }));
      const { key } = await newKey({ ratelimits });
      expect((await ask('/', { key })).status).toBe(200);
      const limited = await ask('/', { key });
      expect([limited.status, limited.headers.get('ratelimit')?.split(', ').length]).toEqual([429, 50]);
    });

    test('an upgrade to a WebSocket passes with a key, and not without', async () => {
      const { key } = await newKey();
      const upgrade = [
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      ];
      expect((await ask('/socket', { headers: upgrade })).status).toBe(401);
      expect(reached).toEqual([]);
      const connection = new Connection(closed.port);
      onTestFinished(() => void connection.socket.destroy());
      expect((await ask('/socket', { key, headers: upgrade, on: connection })).status).toBe(101);
      expect(await connection.read(6)).toBe('hello ');
      connection.socket.write('echo');
      expect(await connection.read(4)).toBe('echo');
      expect(reached).toMatchObject([{ method: 'UPGRADE', url: '/socket' }]);
    });

    testIf(example.open !== undefined)(
      'while all is well, open is as strict as closed: no client makes a check fail',
      async () => {
        const { key, keyId } = await newKey();
        const long = 'k'.repeat(6_000);
        for (const [options, ...statuses] of [
          [{}, 401],
          [{ key: 'made_up' }, 401],
          [{ key: long }, 400, 401, 431, 500],
          [{ key: 'k'.repeat(600) }, 401],
          [{ headers: [`Authorization: Bearer ${key}`, `Authorization: Bearer ${key}`] }, 400, 401, 500],
          [{ headers: [`Authorization: Bearer ${key}\t`] }, 200],
          [{ headers: ['Authorization: Bearer ä', `Cookie: ${long}`] }, 400, 401],
          [{ headers: [`Authorization:${long}`] }, 400, 401, 431, 500],
          [{ headers: [`X-Large: ${long}`] }, 401, 500],
          [{ headers: ['Expect: 100-continue', 'Content-Length: 0'] }, 401],
          [{ method: 'PROPFIND' }, 401, 405, 501],
          [{ method: 'POST', body: 'b'.repeat(100_000) }, 401],
        ] as [AskOptions, ...number[]][]) {
          reached.length = 0;
          const { status } = await ask('/', { ...options, open: true }).catch(() => ({ status: 401 }));
          expect(statuses, JSON.stringify(options).slice(0, 80)).toContain(status);
          if (status !== 200) expect(reached).toEqual([]);
        }
        await tollgate.ok('keys.updateKey', { keyId, enabled: false });
        expect((await ask('/', { key, open: true })).status).toBe(403);
        expect((await ask('/documents', { key: (await newKey()).key, open: true })).status).toBe(403);
      },
    );

    test('connections to Tollgate are reused', async () => {
      const { key } = await newKey();
      await ask('/', { key });
      const port = Number(new URL(tollgate.url).port);
      const before = new Set(connectionsTo(port));
      for (let request = 0; request < 20; request++) expect((await ask('/', { key })).status).toBe(200);
      expect(connectionsTo(port).filter((connection) => !before.has(connection)).length).toBeLessThanOrEqual(2);
    });

    const { http2 } = example;
    testIf(http2 !== undefined)('HTTP/2: what passes and what is refused, with a body as well', async () => {
      const port = await freePort();
      const [at, changes] = http2 === 'same port' ? [undefined, []] : [port, http2!(port)];
      const gateway = await start(changes);
      const client = connectHttp2(`http://127.0.0.1:${at ?? gateway.port}`);
      onTestFinished(() => void client.destroy());
      const { key } = await newKey();
      const body = 'b'.repeat(100_000);
      for (const [presented, path, sent, status] of [
        [key, '/', '', 200],
        [key, '/', body, 200],
        [key, '/documents', body, 403],
        ['made_up', '/', body, 401],
        [key, '/', '', 200],
      ] as const) {
        const head = { ':method': sent ? 'POST' : 'GET', ':path': path, authorization: `Bearer ${presented}` };
        const stream = client.request(head, { endStream: !sent }).on('error', () => {});
        if (sent) stream.end(sent);
        const [headers] = (await once(stream, 'response')) as [IncomingHttpHeaders & { ':status': number }];
        expect([headers[':status'], path]).toEqual([status, path]);
        stream.resume();
        if (status === 200) await once(stream, 'end');
      }
      expect(reached.map(({ bytes }) => bytes)).toEqual([0, body.length, 0]);
    });

    async function start(changes: readonly (readonly [string, string])[]) {
      const gateway = await startGateway(changes);
      onTestFinished(async () => {
        await gateway.program.stop();
        rmSync(gateway.dir, { recursive: true });
      });
      return gateway;
    }
    example.more?.({ tollgate: () => tollgate, closed: () => closed, start, newKey, ask, reached });

    /** The open gateway lets the request pass, without any header in Tollgate's names. */
    async function expectOpen(path: string, key: string | undefined) {
      reached.length = 0;
      const headers = ['X-Tollgate-Key-Id: forged', 'X-Tollgate-Code: VALID', 'X-Tollgate-Meta-Plan: forged'];
      const answer = await ask(path, { key, headers, method: 'POST', body: 'b'.repeat(100), open: true });
      expect([answer.status, answer.text]).toEqual([200, 'from the API']);
      expect(reached).toMatchObject([{ method: 'POST', url: path, bytes: 100 }]);
      const names = Object.entries(reached[0]!.headers).filter(([, value]) => value);
      expect(names.filter(([header]) => header.startsWith('x-tollgate-'))).toEqual([]);
      expect(JSON.stringify(reached)).not.toContain(key ?? 'forged');
    }

    test('a Redis that hangs: closed responds 503, soon immediately; open lets requests pass; both recover without intervention', async () => {
      const { key } = await newKey();
      onTestFinished(() => void tollgate.redis.child.kill('SIGCONT'));
      tollgate.redis.child.kill('SIGSTOP');
      const stoppedAt = performance.now();
      const away = await ask('/', { key });
      expect([away.status, away.headers.get('retry-after')]).toEqual([503, '1']);
      expect(performance.now() - stoppedAt).toBeLessThan(3_000);
      expect(reached).toEqual([]);
      // REDIS_TIMEOUT_MS is 500, and the breaker waits for half of it.
      await delay(600);
      const startedAt = performance.now();
      for (let request = 0; request < 20; request++) {
        expect((await ask('/', { key })).status).toBe(503);
        if (open) await expectOpen('/documents', key);
      }
      expect(performance.now() - startedAt).toBeLessThan(5_000);
      tollgate.redis.child.kill('SIGCONT');
      await vi.waitFor(async () => expect((await ask('/', { key })).status).toBe(200), {
        timeout: 3_000,
        interval: 20,
      });
      if (open) expect((await ask('/', { key: 'made_up', open: true })).status).toBe(401);
    });

    testIf(!example.waitsForTollgate)(
      'a Tollgate that hangs: the gateway gives up within 3 s, closed or open, and sends each check once',
      async () => {
        const { key, keyId } = await newKey({ credits: { remaining: 1000 } });
        onTestFinished(() => void tollgate.server.child.kill('SIGCONT'));
        tollgate.server.child.kill('SIGSTOP');
        const startedAt = performance.now();
        const [away] = await Promise.all([ask('/', { key }), open && expectOpen('/', key)]);
        expect(away.status).toBe(example.away);
        expect(performance.now() - startedAt).toBeLessThan(4_000);
        tollgate.server.child.kill('SIGCONT');
        const { key: other } = await newKey();
        await vi.waitFor(async () => expect((await ask('/', { key: other })).status).toBe(200), {
          timeout: 3_000,
          interval: 20,
        });
        // Tollgate still receives the checks, although the gateway has given up.
        await delay(200);
        const { credits } = await tollgate.ok('keys.getKey', { keyId });
        expect(credits!.remaining).toBeGreaterThanOrEqual(open ? 998 : 999);
      },
    );

    test('a root key that Tollgate refuses is the operator’s fault: no request passes, also in open mode', async () => {
      const { key } = await newKey();
      const setEnabled = (enabled: boolean) =>
        tollgate.ok('rootKeys.updateRootKey', { rootKeyId: gatewayRootKeyId, enabled });
      await setEnabled(false);
      expect((await ask('/', { key })).status).toBe(example.misconfigured);
      expect(reached).toEqual([]);
      if (open) {
        const { status } = await ask('/', { key, open: true });
        expect(status).toBe(example.openWhenMisconfigured ? 200 : example.misconfigured);
      }
      await setEnabled(true);
      expect((await ask('/', { key })).status).toBe(200);
    });

    test('an unreachable Tollgate: closed refuses, open lets requests pass', async () => {
      const { key } = await newKey();
      await tollgate.server.stop();
      expect(tollgate.server.printed()).not.toContain(key);
      const away = await ask('/', { key });
      expect(away.status).toBe(example.away);
      if (away.status === 503) expect(away.headers.get('retry-after')).toBe('1');
      expect(reached).toEqual([]);
      for (const presented of open ? [key, 'made_up', undefined] : []) await expectOpen('/', presented);
    });
  });
}

/** The connections to a port of this machine, including those just closed, by the ports at both ends. */
function connectionsTo(port: number): string[] {
  const hex = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const lines = readFileSync('/proc/net/tcp', 'utf8').trim().split('\n').slice(1);
  return lines
    .map((line) => line.trim().split(/\s+/).slice(1, 3))
    .filter((ends) => ends.some((end) => end.endsWith(hex)) && !ends.some((end) => end.endsWith(':0000')))
    .map((ends) => ends.sort().join());
}
