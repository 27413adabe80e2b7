// Attacks on a gateway by a client with a valid key. None may reach more than the key allows, hide who it is, or cost
// less.

import { once } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { testIf } from '../support/testIf.ts';
import { Connection } from './connection.ts';
import type { Context, GatewayExample } from './gateway.ts';
import { documents, harmless, isDocuments, twoWays } from './spellings.ts';

/** Headers that a request to the API has after its check. */
const identification = ['code', 'key-id', 'api-id', 'external-id', 'hold-id', 'meta-plan'].map(
  (name) => `x-tollgate-${name}`,
);

/** An address in every header from which a gateway may take that of the client. */
export const forgedAddress = (address: string) => [
  ...['X-Real-IP', 'x_real_ip', 'X-Real_IP', 'X.Real.IP', 'True-Client-IP', 'CF-Connecting-IP'].map(
    (name) => `${name}: ${address}`,
  ),
  ...['X-Forwarded-For', 'x_forwarded_for', 'X-Original-Forwarded-For'].map((name) => `${name}: ${address}`),
  `X-Forwarded-For: ${address}, ${address}`,
  `Forwarded: for=${address}`,
];

/** What a client sends into a tunnel. */
const unchecked = 'GET /documents HTTP/1.1\r\nHost: api.example\r\n\r\n';

const upgrades = [
  ['h2c'],
  ['H2C'],
  ['h2c, websocket'],
  ['websocket, h2c'],
  ['websocket', 'h2c'],
  ['h2c', 'websocket'],
  ['TLS/1.0'],
  ['other'],
  ['other', 'websocket'],
  ['websocket/13'],
  ['websocket h2c'],
];

export function describeAttacks(example: GatewayExample, context: Context) {
  const { closed, open, newKey, ask, reached, tollgate } = context;
  const modes = example.open ? [false, true] : [false];
  const portOf = (isOpen: boolean) => (isOpen ? open()! : closed()).port;

  test.each(modes)('no spelling of a path passes by its permission (open: %s)', async (isOpen) => {
    const { key } = await newKey();
    const answers: [path: string, status: number][] = [];
    for (const path of [...documents, ...twoWays]) {
      // Some are refused by closing the connection.
      const answer = await ask(path, { key, open: isOpen }).catch(() => ({ status: 0 }));
      answers.push([path, answer.status]);
    }
    expect(reached.map(({ url }) => url).filter(isDocuments)).toEqual([]);
    expect(answers.filter(([path, status]) => documents.includes(path) && status === 200)).toEqual([]);
    if (example.refusesEscapes) return;
    for (const path of harmless) expect([path, (await ask(path, { key, open: isOpen })).status]).toEqual([path, 200]);
  });

  test('`Connection` removes no header that the gateway sets, and no other that decides', async () => {
    const { key, keyId } = await newKey({ externalId: 'ada', meta: { plan: 'pro' }, credits: { remaining: 100_000 } });
    const named = new Set(context.text.match(/\bx-tollgate-[a-z-]*[a-z]/gi)?.map((name) => name.toLowerCase()));
    const names = [
      ...named,
      ...identification,
      'Authorization',
      'Host',
      'Content-Length',
      'Transfer-Encoding',
      'Upgrade',
    ];
    const passed = {
      'x-tollgate-code': 'VALID',
      'x-tollgate-key-id': keyId,
      'x-tollgate-external-id': 'ada',
      ...(example.hold && { 'x-tollgate-hold-id': expect.stringContaining(keyId.replace('key_', 'hold_')) }),
    };
    let charged = 0;
    for (const name of names) {
      for (const lines of [
        [`Connection: ${name}`],
        [`connection: close,\t${name.toUpperCase()} ,x`],
        ['Connection: keep-alive', `Connection: ${name}`],
        [`Connection: ${name}, upgrade`, 'Upgrade: websocket'],
      ]) {
        reached.length = 0;
        const refused = await ask('/documents', { key, headers: lines });
        expect([[400, 401, 403], lines, reached]).toEqual([expect.arrayContaining([refused.status]), lines, []]);
        // It may take away its own key.
        const { status } = await ask('/x', { key, headers: lines, port: context.extended().port });
        expect([200, 101, 400, 401, 403], lines.join()).toContain(status);
        if (reached.length === 0) continue;
        charged += context.extendedCost;
        expect(reached[0]!.headers, lines.join()).toMatchObject({ ...passed, 'x-tollgate-meta-plan': 'pro' });
      }
    }
    const { credits } = await tollgate().ok('keys.getKey', { keyId });
    expect(charged).toBeGreaterThan(0);
    expect(credits!.remaining).toBe(100_000 - charged);
  });

  test('headers of the client with Tollgate’s names reach neither Tollgate nor the API', async () => {
    const { key, keyId } = await newKey({ credits: { remaining: 1000 } });
    const short = ['Root-Key', 'Permissions', 'Cost', 'Limits', 'Hold', 'Code', 'Key-Id', 'Api-Id', 'External-Id'];
    short.push('Hold-Id', 'Meta-Plan');
    // nginx without Lua cannot remove headers by the beginning of their names.
    if (!example.removesOnlyNamed) short.push('Meta-Other', 'Meta-Plan-x');
    const forged = short.flatMap((each) => [
      `X-Tollgate-${each}: forged`,
      `x-tollgate-${each.toLowerCase()}: forged`,
      `X_Tollgate_${each.replaceAll('-', '_')}: forged`,
      `X-Tollgate_${each.replaceAll('-', '_')}: forged`,
      `X.Tollgate.${each.replaceAll('-', '.')}: forged`,
    ]);
    for (const path of ['X-Original-URL', 'X-Rewrite-URL']) forged.push(`${path}: /documents/forged`);
    for (const isOpen of modes) {
      for (const headers of [forged, ...forged.map((line) => [line])]) {
        const { status } = await ask('/', { key, headers, open: isOpen });
        // Envoy and others may refuse headers that are duplicate or have underscores.
        expect([200, 400]).toContain(status);
      }
    }
    expect(reached.length).toBeGreaterThan(short.length);
    expect(JSON.stringify(reached)).not.toContain('forged');
    expect(new Set(reached.map(({ headers }) => headers['x-tollgate-key-id']))).toEqual(new Set([keyId]));
    expect((await ask('/', { key: 'made_up', headers: forged })).status).not.toBe(200);
    const { credits } = await tollgate().ok('keys.getKey', { keyId });
    expect(credits!.remaining).toBe(1000 - reached.length);
  });

  test('no header of a client changes its address', async () => {
    const [allowed, other] = ['127.0.0.1', '127.0.0.2'];
    const { key } = await newKey({ allowedIps: [allowed] });
    const { port } = context.extended();
    const isAlwaysSent = example.address === undefined;
    const named = 'Connection: X-Real-IP, X-Forwarded-For';
    for (const address of [allowed, other]) {
      const forged = forgedAddress(address);
      for (const headers of [[], [named], forged, [...forged, named], ...forged.map((line) => [line, line])]) {
        const statusOf = async (from: string, at: number) => (await ask('/', { key, headers, from, port: at })).status;
        // Envoy refuses a `Connection` that names other headers.
        const own = await statusOf(allowed, port);
        expect(headers.includes(named) ? [200, 400] : [200], headers.join()).toContain(own);
        expect([await statusOf(other, port), headers]).toEqual([own === 400 ? 400 : 403, headers]);
        // Without the line the check gets no address, and so no such key passes.
        const asWritten = await statusOf(allowed, portOf(false));
        expect([asWritten, headers]).toEqual([isAlwaysSent ? own : own === 400 ? 400 : 403, headers]);
      }
    }
  });

  test('no tunnel opens: no protocol but WebSocket is changed to, and CONNECT is refused', async () => {
    const { key } = await newKey();
    const forged = { 'x-tollgate-key-id': 'forged', 'x-tollgate-code': 'VALID' };
    for (const protocols of upgrades) {
      for (const connection of ['Connection: Upgrade, HTTP2-Settings', 'X-No-Connection: 1']) {
        const headers = [
          connection,
          ...protocols.map((each) => `Upgrade: ${each}`),
          'HTTP2-Settings: AAMAAABkAAQAoAAA',
        ];
        const client = new Connection(portOf(false));
        onTestFinished(() => void client.socket.destroy());
        const { status, headers: received } = await ask('/', { key, headers, on: client });
        expect([200, 101, 400, 401, 403], headers.join()).toContain(status);
        if (status !== 101 || received.get('upgrade') === 'websocket') continue;
        // The attack: further requests in the tunnel, which nobody checks.
        await throughHttp2(client.socket, forged);
      }
    }
    for (const [target, host] of [
      ['api.example:80', 'api.example:80'],
      ['api.example:80', 'api.example'],
      ['/', 'api.example'],
      ['/documents', 'api.example'],
      ['*', 'api.example'],
    ] as const) {
      for (const options of [{}, { body: unchecked }, { body: unchecked, chunked: true }]) {
        const client = new Connection(portOf(false));
        const sent = ask(target, { key, method: 'CONNECT', host, on: client, ...options });
        const { status } = await sent.catch(() => ({ status: 0 }));
        if (status === 200) client.socket.write(unchecked);
        await delay(status === 200 ? 50 : 0);
        client.socket.destroy();
        expect([status, target]).not.toEqual([200, target]);
      }
    }
    const passed = reached.filter(({ method, url, headers }) => {
      const { upgrade = 'websocket' } = headers;
      return isDocuments(url) || !['GET', 'UPGRADE'].includes(method) || !/^websocket$/i.test(upgrade);
    });
    expect(passed).toEqual([]);
  });

  testIf(example.http2 !== undefined)('HTTP/2: CONNECT is refused, with and without a protocol', async () => {
    const { key } = await newKey();
    for (const protocol of [undefined, 'h2c', 'other']) {
      const client = connectHttp2(`http://127.0.0.1:${context.http2Port()}`).on('error', () => {});
      await Promise.race([once(client, 'remoteSettings'), once(client, 'close')]);
      const authority = { ':method': 'CONNECT', ':authority': 'api.example:80', authorization: `Bearer ${key}` };
      const extended = { ':protocol': protocol, ':scheme': 'http', ':path': '/' };
      const canExtend = client.remoteSettings.enableConnectProtocol === true;
      if (protocol === undefined || canExtend) {
        const stream = client.request({ ...authority, ...(protocol && extended) }, { endStream: false });
        stream.on('error', () => {}).on('response', () => stream.write(unchecked));
        await Promise.race([once(stream, 'response'), once(stream, 'close')]);
        await delay(50);
      }
      client.destroy();
    }
    // Without the upgrade it is a request like any other.
    expect(reached.filter(({ method, headers }) => method !== 'GET' || headers.upgrade !== undefined)).toEqual([]);
  });

  testIf(example.http2 !== undefined)('HTTP/2: no spelling of a path passes by its permission', async () => {
    const { key } = await newKey();
    const passed: string[] = [];
    for (const path of [...documents, ...twoWays, 'documents', '*', '']) {
      // Some are refused by closing the connection.
      const client = connectHttp2(`http://127.0.0.1:${context.http2Port()}`).on('error', () => {});
      const stream = client.request({ ':path': path, authorization: `Bearer ${key}` }).on('error', () => {});
      const answered = once(stream, 'response').catch(() => []);
      const [headers] = await Promise.race([answered, once(stream, 'close').then(() => [])]);
      if (headers?.[':status'] === 200 && !twoWays.includes(path)) passed.push(path);
      client.destroy();
    }
    expect([passed, reached.map(({ url }) => url).filter(isDocuments)]).toEqual([[], []]);
    expect(reached.every(({ headers }) => headers['x-tollgate-code'] === 'VALID')).toBe(true);
  });

  describe.each(modes)('no client makes a check fail (open: %s)', (isOpen) => {
    test('with what is long, or many', async () => {
      const lines = (count: number, line: string) => Array.from({ length: count }, (_, index) => `X-${index}: ${line}`);
      for (const length of [3_000, 5_000, 8_000, 20_000, 50_000]) {
        const long = 'k'.repeat(length);
        for (const [what, options] of [
          ['key', { key: long }],
          ['scheme', { headers: [`Authorization: ${long}`] }],
          ['bytes', { headers: [`Authorization: Bearer ${'\xff'.repeat(length)}`] }],
          ['key in parts', { headers: Array(length / 500).fill(`Authorization: Bearer ${'k'.repeat(500)}`) }],
          ['host', { host: long }],
          ['header', { headers: [`X-Large: ${long}`] }],
          ['headers', { headers: lines(length / 100, 'x'.repeat(90)) }],
        ] as const) {
          // A gateway may close the connection on a large head.
          const { status } = await ask('/', { ...options, open: isOpen }).catch(() => ({ status: 400 }));
          if (what === 'key in parts' && example.joinsNoKeys) continue;
          const allowed = ['key', 'scheme', 'bytes'].includes(what) && length <= 8_000 ? [401] : [400, 401, 414, 431];
          // It passes the host to the check, which Tollgate may close.
          if (what === 'host' && example.longUrl) allowed.push(500);
          expect([what, length, allowed]).toEqual([what, length, expect.arrayContaining([status])]);
        }
      }
      expect(reached).toEqual([]);
    });

    test('with what is doubled, odd or malformed', async () => {
      const { key } = await newKey();
      for (const [options, ...statuses] of [
        [{}, 401],
        [{ key: 'made_up' }, 401],
        [{ key: 'k'.repeat(600) }, 401],
        [{ headers: [`Authorization: Bearer ${key}`, `Authorization: Bearer ${key}`] }, 400, 401],
        [{ headers: [`Authorization: Bearer ${key}`, 'Authorization: Bearer made_up'] }, 400, 401],
        [{ headers: [`Authorization: Bearer ${key}\t`] }, 200],
        [{ key, headers: ['Content-Type: text/plain', 'Content-Type: text/html'] }, 200, 400],
        [{ headers: ['Authorization: Bearer ä', `Cookie: ${'c'.repeat(6_000)}`] }, 400, 401],
        [{ headers: ['Authorization: Bearer {env.HOME}$host%[src]'] }, 400, 401],
        [{ headers: ['Expect: 100-continue', 'Content-Length: 0'] }, 401],
        [{ method: 'PROPFIND' }, 401, 405, 501],
        [{ method: 'POST', body: 'b'.repeat(100_000) }, 401],
      ] as [Parameters<typeof ask>[1], ...number[]][]) {
        reached.length = 0;
        const { status } = await ask('/', { ...options, open: isOpen });
        expect(statuses, JSON.stringify(options).slice(0, 80)).toContain(status);
        if (status !== 200) expect(reached).toEqual([]);
      }
    });

    test('and refused keys stay refused', async () => {
      const { key, keyId } = await newKey();
      await tollgate().ok('keys.updateKey', { keyId, enabled: false });
      expect((await ask('/', { key, open: isOpen })).status).toBe(403);
      expect((await ask('/documents', { key: (await newKey()).key, open: isOpen })).status).toBe(403);
      expect(reached).toEqual([]);
    });
  });

  test('requests of one packet are checked one by one', async () => {
    const { key } = await newKey();
    const client = new Connection(portOf(false));
    onTestFinished(() => void client.socket.destroy());
    const head = (path: string) => `GET ${path} HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer ${key}\r\n\r\n`;
    client.socket.write(head('/a') + head('/documents') + head('/b'));
    const statuses = [await client.answer(), await client.answer(), await client.answer()].map(({ status }) => status);
    expect([statuses, reached.map(({ url }) => url)]).toEqual([
      [200, 403, 200],
      ['/a', '/b'],
    ]);
  });

  test('what follows a refused upgrade in one packet is checked too', async () => {
    const { key } = await newKey();
    const upgrade =
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
    const head = (path: string, by: string) =>
      `GET ${path} HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer ${by}\r\n`;
    for (const by of ['made_up', key]) {
      const client = new Connection(portOf(false));
      onTestFinished(() => void client.socket.destroy());
      client.socket.write(
        `${head('/documents', by)}${upgrade}\r\n${head('/documents/next', by)}\r\n${head('/last', 'made_up')}\r\n`,
      );
      expect([401, 403]).toContain((await client.answer()).status);
      // The gateway may close the connection, or answer the others.
      await Promise.race([once(client.socket, 'close'), delay(300)]);
    }
    expect(reached).toEqual([]);
  });

  test('values that a gateway could take for its own variables are passed as they are', async () => {
    const plan = '{env.HOME} {http.request.host} $host %[src] $(PATH)';
    const { key } = await newKey({ meta: { plan } });
    expect((await ask('/', { key })).status).toBe(200);
    expect(decodeURIComponent(String(reached[0]!.headers['x-tollgate-meta-plan']))).toBe(plan);
  });
}

/** Sends a request over HTTP/2 on a connection whose protocol was changed; no answer is as good as a refusal. */
async function throughHttp2(socket: Socket, headers: IncomingHttpHeaders) {
  socket.removeAllListeners('data');
  const client = connectHttp2('http://api.example', { createConnection: () => socket }).on('error', () => {});
  const stream = client.request({ ...headers, ':path': '/documents' }).on('error', () => {});
  await Promise.race([once(stream, 'response'), once(stream, 'close'), delay(500)]);
  client.destroy();
}
