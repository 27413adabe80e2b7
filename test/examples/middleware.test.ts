// examples/middleware: each program, started as its first lines describe, with the built Tollgate.

import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { addressOf, run } from '../support/processes.ts';
import { Connection } from './connection.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const programs = readdirSync('examples/middleware');

let tollgate: Tollgate;
let apiId: string;
/** In front of Tollgate, so that it can be away while the programs run. */
let relay: Relay;
const opened = new Map<string, { closed: Running; open: Running }>();

beforeAll(async () => {
  tollgate = await startTollgate();
  apiId = (await tollgate.ok('apis.createApi', { name: 'examples' })).apiId;
  relay = await openRelay(Number(new URL(tollgate.url).port));
  const start = async (name: string) =>
    opened.set(name, { closed: await startOne(name), open: await startOne(name, { FAIL_OPEN: 'true' }) });
  await Promise.all(programs.map(start));
}, startMsMax);
afterAll(async () => {
  await Promise.all([...opened.values()].flatMap(({ closed, open }) => [closed.stop(), open.stop()]));
  relay?.close();
  await tollgate?.stop();
});

type Relay = Awaited<ReturnType<typeof openRelay>>;

async function openRelay(to: number) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const upstream = connect(to, '127.0.0.1');
    socket.pipe(upstream).pipe(socket);
    for (const each of [socket, upstream]) sockets.add(each.on('error', () => {}));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const close = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${port}`,
    close,
    /** Refuses connections while `act` runs. */
    async away(act: () => Promise<void>) {
      close();
      try {
        await act();
      } finally {
        await once(server.listen(port, '127.0.0.1'), 'listening');
      }
    },
  };
}

type Running = Awaited<ReturnType<typeof startOne>>;

/** A program with a root key of its own. */
async function startOne(name: string, more: Record<string, string> = {}) {
  const { key: rootKey, rootKeyId } = await tollgate.ok('rootKeys.createRootKey', { permissions: ['*'] });
  const env = { TOLLGATE_URL: relay.url, TOLLGATE_ROOT_KEY: rootKey, PORT: '0', PATH: process.env.PATH, ...more };
  const program = run(process.execPath, [`examples/middleware/${name}`], { env });
  const address = await addressOf(program);
  return {
    rootKey,
    port: Number(new URL(address).port),
    stop: () => program.stop(),
    printed: () => program.printed(),
    /** Tollgate refuses the program's root key while `act` runs. */
    async refused(act: () => Promise<void>) {
      await tollgate.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
      try {
        await act();
      } finally {
        await tollgate.ok('rootKeys.updateRootKey', { rootKeyId, enabled: true });
      }
    },
    async ask(authorization?: string) {
      const response = await fetch(`${address}/api/hello`, { headers: authorization ? { authorization } : {} });
      const { status, headers } = response;
      return {
        status,
        text: await response.text(),
        challenge: headers.get('www-authenticate'),
        retryAfter: headers.get('retry-after'),
      };
    },
  };
}

/** Sends exactly these lines. The status is 0 if the connection is closed without a response. */
async function send(port: number, line: string, headers: readonly string[] = []): Promise<{ status: number }> {
  const client = new Connection(port);
  client.socket.write(`${[`${line} HTTP/1.1`, 'Host: other', ...headers].join('\r\n')}\r\n\r\n`, 'latin1');
  // The response to HEAD has no body, whose length it names.
  const status = line.startsWith('HEAD') ? client.status() : client.answer().then((answer) => answer.status);
  return { status: await status.catch(() => 0).finally(() => client.socket.destroy()) };
}

test('there are four of them', () => {
  expect(programs.sort()).toEqual(['express.mjs', 'fastify.mjs', 'fetch.mjs', 'hono.mjs']);
});

describe.each(programs)('%s', (name) => {
  const closed = () => opened.get(name)!.closed;
  const ask = (authorization?: string) => closed().ask(authorization);
  const newKey = async (more: object) => (await tollgate.ok('keys.createKey', { apiId, ...more })).key;

  test('a valid key passes, and the program gets its owner', async () => {
    const key = await newKey({ externalId: 'ada' });
    expect(await ask(`Bearer ${key}`)).toMatchObject({ status: 200, text: '{"hello":"ada"}', retryAfter: null });
  });

  test.each([undefined, 'Bearer made_up', 'Basic YTpi', 'Bearer'])(
    '401 with a challenge: %s',
    async (authorization) => {
      expect(await ask(authorization)).toMatchObject({ status: 401, challenge: 'Bearer' });
    },
  );

  test('no client makes a check fail: with what is long, doubled or odd', async () => {
    const key = await newKey({});
    for (const which of ['closed', 'open'] as const) {
      const { port, printed } = opened.get(name)![which];
      const before = printed();
      const bytes = ['\x01', '\t', '\v', '\r', '\x1f', '\x7f', '\x80', '\xa0', '\xff', '"', '\\'];
      for (const [lines, ...statuses] of [
        ...[500, 513, 5_000, 12_000].map((length) => [[`Authorization: Bearer ${'k'.repeat(length)}`], 401] as const),
        [[`Authorization: ${'k'.repeat(5_000)}`], 401],
        [[`Authorization: Bearer ${key}x`, `Authorization: Bearer ${key}`], 401],
        [[`Authorization: Bearer ${key}`, 'Authorization: Bearer made_up'], 200, 401],
        [[`Authorization: Bearer ${key}`, 'Connection: Authorization, close'], 200, 401],
        [[`Authorization: Bearer ${key}`, `X-Large: ${'l'.repeat(8_000)}`], 200],
        ...bytes.map((byte) => [[`Authorization: Bearer made_up${byte}x`], 400, 401] as const),
      ] as [string[], ...number[]][]) {
        const { status } = await send(port, 'GET /api/hello', lines);
        expect(statuses, `${which}: ${lines.join().slice(0, 60)}`).toContain(status);
      }
      expect(printed()).toBe(before);
    }
  });

  test('no spelling of a path and no tunnel passes by the check', async () => {
    const { port } = closed();
    const key = await newKey({});
    for (const target of [
      ...['/api/hello', '/API/hello', '//api/hello', '/api//hello', '/./api/hello', '/x/../api/hello', '/%61pi/hello'],
      ...[
        '/api/hello/',
        '/api%2fhello',
        '/api/hello%',
        '/api/hello%zz',
        '/%zz/../api/hello',
        '/api/hello;x',
        '/api;x/hello',
      ],
      ...[
        '/api\\hello',
        '/api/hello%00',
        '/%0aapi/hello',
        '/api/hello%20',
        '/api/hello?x=/y',
        'http://other/api/hello',
      ],
    ]) {
      for (const method of ['GET', 'HEAD', 'POST', 'OPTIONS'])
        expect([(await send(port, `${method} ${target}`)).status, target]).not.toEqual([200, target]);
    }
    for (const protocols of [
      ['h2c'],
      ['websocket'],
      ['h2c, websocket'],
      ['websocket', 'h2c'],
      ['h2c', 'websocket'],
      ['other'],
    ]) {
      const upgrades = protocols.map((protocol) => `Upgrade: ${protocol}`);
      const lines = ['Connection: Upgrade, HTTP2-Settings', ...upgrades, 'HTTP2-Settings: AAMAAABkAAQAoAAA'];
      expect((await send(port, 'GET /api/hello', lines)).status).toBe(401);
      expect((await send(port, 'GET /api/hello', [...lines, `Authorization: Bearer ${key}`])).status).toBe(200);
    }
    for (const target of ['other:80', '/api/hello'])
      expect((await send(port, `CONNECT ${target}`, [`Authorization: Bearer ${key}`])).status).not.toBe(200);
  });

  test('a body of 20 MB is checked as any request, and harms no later one', async () => {
    const body = Buffer.alloc(20_000_000, 'b');
    const key = await newKey({ externalId: 'ada' });
    for (const which of ['closed', 'open'] as const) {
      const { port, ask, printed } = opened.get(name)![which];
      const before = printed();
      const post = async (path: string, authorization?: string) => {
        const headers = authorization ? { authorization } : undefined;
        const sent = fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body, ...(headers && { headers }) });
        // A refusal may close the connection while the body is sent.
        return sent.then(async (response) => [response.status, await response.text()] as const).catch(() => [401, '']);
      };
      // Only the program without a framework has a route for POST, and Fastify checks only routes that it has.
      expect([401, 404]).toContain((await post('/api/hello'))[0]);
      expect([401, 404]).toContain((await post('/api/hello', 'Bearer made_up'))[0]);
      expect([200, 404]).toContain((await post('/api/hello', `Bearer ${key}`))[0]);
      expect(await ask(`Bearer ${key}`)).toMatchObject({ status: 200, text: '{"hello":"ada"}' });
      expect(await ask()).toMatchObject({ status: 401 });
      expect(printed()).toBe(before);
    }
  });

  test('in open mode a response has the headers that it has without it', async () => {
    const key = await newKey({ externalId: 'ada' });
    const answer = async (which: 'closed' | 'open', authorization: string) => {
      const url = `http://127.0.0.1:${opened.get(name)![which].port}/api/hello`;
      const { status, headers } = await fetch(url, { headers: { authorization } });
      return { status, headers: [...headers].filter(([name]) => name !== 'date') };
    };
    for (const authorization of [`Bearer ${key}`, 'Bearer made_up']) {
      const closedAnswer = await answer('closed', authorization);
      expect(await answer('open', authorization)).toEqual(closedAnswer);
      expect(closedAnswer.headers.map(([name]) => name)).not.toContain('retry-after');
    }
    const checked = await answer('open', `Bearer ${key}`);
    await relay.away(async () => {
      // The body has another name in it.
      const ofProgram = ({ headers }: typeof checked) =>
        headers.filter(([name]) => name !== 'etag' && name !== 'content-length');
      expect(ofProgram(await answer('open', `Bearer ${key}`))).toEqual(ofProgram(checked));
    });
  });

  test('403 until the plan of the customer has the permission', async () => {
    const needing = await startOne(name, { PERMISSIONS: 'docs.write' });
    onTestFinished(async () => void (await needing.stop()));
    const [free, pro, externalId] = ['free', 'pro', 'customer'].map((text) => `${text}.${name}`) as [
      string,
      string,
      string,
    ];
    await tollgate.ok('plans.createPlan', { planId: free });
    await tollgate.ok('plans.createPlan', { planId: pro, permissions: ['docs.write'] });
    await tollgate.ok('identities.createIdentity', { externalId, planId: free });
    const key = await newKey({ externalId });
    expect((await needing.ask(`Bearer ${key}`)).status).toBe(403);
    await tollgate.ok('identities.updateIdentity', { identity: externalId, planId: pro });
    expect((await needing.ask(`Bearer ${key}`)).status).toBe(200);
  });

  test('403 for a key that is disabled', async () => {
    expect(await ask(`Bearer ${await newKey({ enabled: false })}`)).toMatchObject({ status: 403, challenge: null });
  });

  test('429 with Retry-After if the limit is exceeded, and without it if the credits are used up', async () => {
    const key = await newKey({ ratelimits: [{ name: 'requests', limit: 1, duration: 3_600_000, autoApply: true }] });
    expect((await ask(`Bearer ${key}`)).status).toBe(200);
    const limited = await ask(`Bearer ${key}`);
    expect(limited.status).toBe(429);
    expect(Number(limited.retryAfter)).toBeGreaterThan(3_500);
    expect(Number(limited.retryAfter)).toBeLessThanOrEqual(3_601);
    expect(await ask(`Bearer ${await newKey({ credits: { remaining: 0 } })}`)).toMatchObject({
      status: 429,
      retryAfter: null,
    });
  });

  // The fourth passes on what the gateway check returns.
  test.skipIf(name === 'fetch.mjs')('429 without Retry-After if the cost is above the limit', async () => {
    const costing = await startOne(name, { LIMITS: '[{"name":"tokens","cost":5}]' });
    onTestFinished(async () => void (await costing.stop()));
    const keyOf = (limit: number) => newKey({ ratelimits: [{ name: 'tokens', limit, duration: 3_600_000 }] });
    expect(await costing.ask(`Bearer ${await keyOf(4)}`)).toMatchObject({ status: 429, retryAfter: null });
    const key = await keyOf(5);
    expect(await costing.ask(`Bearer ${key}`)).toMatchObject({ status: 200 });
    expect(Number((await costing.ask(`Bearer ${key}`)).retryAfter)).toBeGreaterThan(3_000);
  });

  test.each([
    ['TOLLGATE_URL', undefined],
    ['TOLLGATE_ROOT_KEY', ''],
  ])('does not start with %s=%s', async (setting, value) => {
    const set = { TOLLGATE_URL: tollgate.url, TOLLGATE_ROOT_KEY: tollgate.rootKey, PORT: '0' };
    const started = run(process.execPath, [`examples/middleware/${name}`], { env: { ...set, [setting]: value } });
    onTestFinished(async () => void (await started.stop()));
    // A program that listens is stopped, so that the test fails at once if it starts.
    started.child.stdout!.once('data', () => void started.stop());
    expect(await started.ended).toBe(1);
    expect(started.err).toMatch(new RegExp(`^Set .*${setting}.*\n$`));
    expect(started.out).toBe('');
  });

  test('failOpen: without Tollgate every request passes unchecked; with a refused root key none does', async () => {
    const { ask, refused } = opened.get(name)!.open;
    const key = await newKey({});
    await relay.away(async () => {
      expect(await ask(`Bearer ${key}`)).toMatchObject({ status: 200, text: '{"hello":"unchecked"}' });
      expect(await ask('Bearer made_up')).toMatchObject({ status: 200, text: '{"hello":"unchecked"}' });
    });
    await refused(async () => expect((await ask(`Bearer ${key}`)).status).toBe(503));
    expect((await ask('Bearer made_up')).status).toBe(401);
    expect((await ask(`Bearer ${'k'.repeat(7_000)}`)).status).not.toBe(200);
    expect((await ask(`Bearer ${key}`)).status).toBe(200);
  });

  test('503 without Tollgate or with a refused root key, and the key is not printed', async () => {
    const { rootKey, refused, printed } = closed();
    const key = await newKey({});
    for (const without of [relay.away, refused]) {
      const before = printed().length;
      await without(async () => {
        expect(await ask(`Bearer ${key}`)).toMatchObject({ status: 503, retryAfter: '1' });
        await vi.waitFor(() => expect(printed().slice(before)).toMatch(/^Tollgate: .*\n/m), {
          timeout: 5_000,
          interval: 10,
        });
      });
    }
    for (const secret of [key, rootKey]) expect(printed()).not.toContain(secret);
  });
});

describe('without Redis', () => {
  test.each([
    [503, 'closed'],
    [200, 'open'],
  ] as const)('%i from each program, %s, within about a second', async (status, which) => {
    const { key } = await tollgate.ok('keys.createKey', { apiId });
    onTestFinished(() => void tollgate.redis.child.kill('SIGCONT'));
    tollgate.redis.child.kill('SIGSTOP');
    const answers = await Promise.all(programs.map((name) => opened.get(name)![which].ask(`Bearer ${key}`)));
    const retryAfter = status === 503 ? '1' : null;
    expect(answers.map((answer) => [answer.status, answer.retryAfter])).toEqual(Array(4).fill([status, retryAfter]));
    tollgate.redis.child.kill('SIGCONT');
    await vi.waitFor(() => tollgate.ok('apis.getApi', { apiId }), { timeout: 5_000, interval: 50 });
  });
});
