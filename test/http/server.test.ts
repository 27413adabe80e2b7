// http/server.ts on a real socket: which requests uWebSockets.js passes on, and how the server handles them.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Handler, Request, Response } from '../../src/http/message.ts';
import { type ListenOptions, listen, type Server } from '../../src/http/server.ts';

const bodyBytesMax = 1_000;

let server: Server;
let answered: Request[];
let requests: number;
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server?.close();
});

async function serve(
  answer: Handler = async (request) => says(request.body.toString()),
  more: Partial<ListenOptions> = {},
) {
  answered = [];
  requests = 0;
  server = await listen({
    ...more,
    host: '127.0.0.1',
    port: 0,
    bodyBytesMax: more.bodyBytesMax ?? bodyBytesMax,
    newRequestId: () => `req_${++requests}`,
    handler: (request) => {
      answered.push(request);
      return answer(request);
    },
  });
}

const says = (body: string, status = 200): Response => ({ status, contentType: 'application/json', headers: [], body });

const post = (body: string | Buffer) =>
  fetch(`http://127.0.0.1:${server.port}/v2/x`, {
    method: 'POST',
    body: new Uint8Array(Buffer.from(body)),
    headers: { 'content-type': 'application/json' },
  });

const head = (...headers: string[]) => `POST /v2/x HTTP/1.1\r\n${['Host: tollgate', ...headers].join('\r\n')}\r\n\r\n`;

/** A connection that returns the received bytes. */
async function dial() {
  const socket = connect(server.port, '127.0.0.1').setNoDelay();
  sockets.push(socket);
  socket.on('error', () => {}); // A connection may be closed by a reset.
  let text = '';
  socket.on('data', (data) => {
    text += data.toString('latin1');
  });
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text)));
  await once(socket, 'connect');

  return {
    socket,
    /** Sends each part in a packet of its own. */
    async send(...parts: (string | Buffer)[]) {
      for (const part of parts) {
        await new Promise((resolve) => socket.write(part, resolve));
        for (let i = 0; i < 5; i++) await turn();
      }
    },
    /** The next complete response. */
    async answer() {
      for (;;) {
        const [, before, bytes] = /^([\s\S]*?content-length: (\d+)[\s\S]*?\r\n\r\n)/i.exec(text) ?? [];
        const end = before === undefined ? Number.POSITIVE_INFINITY : before.length + Number(bytes);
        if (text.length >= end) {
          const answer = text.slice(0, end);
          text = text.slice(end);
          return answer;
        }
        await once(socket, 'data');
      }
    },
    /** Everything received, once the server has closed the connection. */
    closed,
  };
}

/** A response that the test sends later. */
function held() {
  let release = (_response: Response) => {};
  const answer: Handler = () =>
    new Promise((resolve) => {
      release = resolve;
    });
  return { answer, release: (response: Response) => release(response) };
}

const untilRequest = (n: number) => vi.waitUntil(() => requests >= n, { interval: 1, timeout: 4_000 });
const untilAnswering = (n: number) => vi.waitUntil(() => answered.length >= n, { interval: 1, timeout: 4_000 });

test('passes on method, path, headers and body, and writes the response', async () => {
  await serve(async () => ({ ...says('{"a":1}', 405), headers: [['Allow', 'POST']] }));
  const client = await dial();
  await client.send(
    'PUT /v2/%78?a=1 HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer k\r\nContent-Type: text/plain\r\nAccept: a\r\nACCEPT: b\r\nContent-Length: 2\r\n\r\nhi',
  );
  expect(await client.answer()).toMatch(
    /^HTTP\/1\.1 405 Method Not Allowed\r\nContent-Type: application\/json\r\nKeep-Alive: timeout=7\r\nX-Request-Id: req_1\r\nAllow: POST\r\n[\s\S]*Content-Length: 7\r\n\r\n\{"a":1\}$/,
  );
  expect(answered).toEqual([
    {
      method: 'PUT',
      path: '/v2/%78',
      hasQuery: true,
      authorization: 'Bearer k',
      contentType: 'text/plain',
      accept: 'a, b',
      requestId: 'req_1',
      body: Buffer.from('hi'),
      peer: expect.anything(),
    },
  ]);
});

test.each(['GET', 'HEAD'])(
  '%s: Keep-Alive is in the responses after which the connection stays open',
  async (method) => {
    await serve();
    const client = await dial();
    for (let i = 0; i < 2; i++) {
      await client.send(`${method} / HTTP/1.1\r\nHost: t\r\n\r\n`);
      expect(await client.answer()).toMatch(/^Keep-Alive: timeout=7\r$/m);
    }
    await client.send(`${method} / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`);
    expect(await client.closed).not.toMatch(/keep-alive/i);
  },
);

test('headers beyond the limit: 431 in the envelope, and the connection is closed, also before the body has arrived', async () => {
  await serve(undefined, { headersBytesMax: 1_000 });
  const client = await dial();
  await client.send(`${head('Content-Length: 2', `Cookie: ${'c'.repeat(900)}`)}{}`);
  expect(await client.answer()).toMatch(/ 200 OK/);
  await client.send(head('Content-Length: 2', `Cookie: ${'c'.repeat(1_000)}`));
  const [top, body] = (await client.closed).split('\r\n\r\n');
  expect(top).toMatch(/^HTTP\/1\.1 431 /);
  expect(JSON.parse(body!).error).toMatchObject({ status: 431, type: '/errors/headers_too_large' });
  expect(answered).toHaveLength(1);
});

test('absent headers, body and query are empty', async () => {
  await serve();
  const client = await dial();
  await client.send('GET / HTTP/1.1\r\nHost: t\r\n\r\n');
  await client.answer();
  expect(answered).toEqual([
    {
      method: 'GET',
      path: '/',
      hasQuery: false,
      authorization: '',
      contentType: '',
      accept: '',
      requestId: 'req_1',
      body: Buffer.alloc(0),
      peer: expect.anything(),
    },
  ]);
});

test('headers of one request are not in the next', async () => {
  await serve();
  const client = await dial();
  await client.send(
    head(
      'Authorization: Bearer k',
      'Content-Type: a',
      'Accept: a',
      'Accept-Encoding: gzip',
      'If-None-Match: *',
      'Content-Length: 0',
    ),
  );
  await client.answer();
  await client.send('GET / HTTP/1.1\r\nHost: t\r\n\r\n');
  await client.answer();
  expect(answered[0]).toMatchObject({ acceptEncoding: 'gzip', ifNoneMatch: '*' });
  expect(answered[1]).toMatchObject({
    ...{ authorization: '', contentType: '', accept: '' },
    ...{ acceptEncoding: undefined, ifNoneMatch: undefined },
  });
});

test('HEAD gets the headers only, and the connection stays open', async () => {
  await serve(async () => says('{"a":"ż"}'));
  const client = await dial();
  await client.send(
    'HEAD /v2/x HTTP/1.1\r\nHost: t\r\n\r\n',
    'GET /v2/y HTTP/1.1\r\nHost: t\r\n\r\n',
    'OPTIONS /v2/z HTTP/1.1\r\nHost: t\r\n\r\n',
  );
  await untilAnswering(3);
  await post('by now the third is answered too');
  client.socket.end();
  const answers = (await client.closed).split(/(?=HTTP\/1\.1)/);
  expect(answers[0]).toMatch(/Content-Length: 10\r\n[\s\S]*\r\n\r\n$/);
  expect(answers[0]!.match(/content-length/gi)).toHaveLength(1);
  expect(answers[1]).toMatch(/"\}$/);
  expect(answered.map(({ method }) => method)).toEqual(['HEAD', 'GET', 'OPTIONS', 'POST']);
});

test('HEAD with a body that is too large is closed too', async () => {
  await serve(async () => says('{"a":1}', 404));
  const client = await dial();
  await client.send('HEAD /v2/x HTTP/1.1\r\nHost: t\r\nContent-Length: 9999\r\n\r\n');
  expect(await client.closed).toMatch(/^HTTP\/1\.1 404 [\s\S]*Connection: close[\s\S]*\r\n\r\n$/i);
});

test('a body split over packets arrives complete', async () => {
  await serve();
  const client = await dial();
  await client.send(head('Content-Length: 9'), 'abc', 'def', 'ghi');
  expect(await client.answer()).toMatch(/\r\n\r\nabcdefghi$/);
});

test('a chunked body arrives complete, also if it is longer than the initial buffer', async () => {
  await serve();
  const client = await dial();
  await client.send(
    head('Transfer-Encoding: Chunked'),
    '1\r\na\r\n',
    '2\r\nbc\r\n3\r\ndef\r\n',
    `64\r\n${'g'.repeat(100)}\r\n`,
    '1\r\nh\r\n',
    '0\r\n\r\n',
  );
  expect((await client.answer()).split('\r\n\r\n')[1]).toBe(`abcdef${'g'.repeat(100)}h`);
});

test('a body is bytes: NUL, invalid UTF-8 and the next request do not change it', async () => {
  await serve();
  const client = await dial();
  const bytes = Buffer.from([0, 255, 0xc3, 0x28, 13, 10]);
  await client.send(Buffer.concat([Buffer.from(head('Content-Length: 6')), bytes]));
  await client.answer();
  await client.send(Buffer.concat([Buffer.from(head('Content-Length: 6')), Buffer.alloc(6, 'x')]));
  await client.answer();
  expect(answered[0]!.body).toEqual(bytes);
});

test('Content-Length counts bytes, not characters', async () => {
  await serve();
  const client = await dial();
  const text = 'żółć 🔑';
  await client.send(head(`Content-Length: ${Buffer.byteLength(text)}`) + text);
  const answer = await client.answer();
  expect(answer).toContain(`Content-Length: ${Buffer.byteLength(text)}\r\n`);
  expect(Buffer.from(answer.split('\r\n\r\n')[1]!, 'latin1').toString()).toBe(text);
});

test('Expect: 100-continue gets 100 Continue', async () => {
  await serve();
  const client = await dial();
  await client.send(head('Expect: 100-continue', 'Content-Length: 2'), 'hi');
  expect(await client.answer()).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nhi$/);
});

test.each(['one piece', 'two pieces', 'chunks'])('a body of exactly the limit passes, in %s', async (form) => {
  await serve();
  const client = await dial();
  const half = 'x'.repeat(bodyBytesMax / 2);
  if (form === 'one piece') await client.send(head(`Content-Length: ${bodyBytesMax}`) + half + half);
  if (form === 'two pieces') await client.send(head(`Content-Length: ${bodyBytesMax}`), half, half);
  if (form === 'chunks')
    await client.send(head('Transfer-Encoding: chunked'), `1f4\r\n${half}\r\n`, `1f4\r\n${half}\r\n0\r\n\r\n`);
  expect((await client.answer()).split('\r\n\r\n')[1]).toBe(half + half);
});

test.each([
  ['announced', head(`Content-Length: ${bodyBytesMax + 1}`), ''],
  ['sent in one piece', head(`Content-Length: ${bodyBytesMax + 1}`) + 'x'.repeat(bodyBytesMax + 1), ''],
  ['in chunks', head('Transfer-Encoding: chunked'), `3e8\r\n${'x'.repeat(bodyBytesMax)}\r\n1\r\nx\r\n1\r\ny\r\n`],
  ['announced beyond all bounds', head('Content-Length: 999999999999999'), ''],
])('one byte more is too large, and the connection is closed: %s', async (_, start, rest) => {
  await serve(async (request) => says('too large', request.body === 'too_large' ? 413 : 200));
  const client = await dial();
  await client.send(start, ...(rest === '' ? [] : [rest]));
  expect(await client.closed).toMatch(/^HTTP\/1\.1 413 [\s\S]*Connection: close[\s\S]*\r\n\r\ntoo large$/i);
  expect(answered).toMatchObject([{ body: 'too_large' }]);
});

test('fetch gets the response to a body far too large', async () => {
  await serve(async () => says('no such path', 404));
  const answer = await post(Buffer.alloc(8_000_000));
  expect([answer.status, await answer.text()]).toEqual([404, 'no such path']);
});

test('a body that is too large is not read further while the response is pending', async () => {
  const { answer, release } = held();
  await serve(answer);
  const client = await dial();
  await client.send(head('Transfer-Encoding: chunked'), `7d0\r\n${'x'.repeat(2_000)}\r\n`);
  await untilAnswering(1);
  // More than the kernel buffers for a connection. A server that continued to read would have read it within a hundred
  // turns.
  let swallowed = false;
  client.socket.write(`4000000\r\n${'x'.repeat(0x4000000)}\r\n`, () => {
    swallowed = true;
  });
  for (let i = 0; i < 3_000; i++) await turn();
  expect(swallowed).toBe(false);
  release(says('', 413));
  await client.closed;
});

describe('the memory for bodies that arrive in several parts', () => {
  const longest = 64 * 1024;
  const arrivingBytesMax = 4 * longest;
  const rootKeys = ['abcdefghijkmnopq', 'ABCDEFGHJKLMNPQR'].map((workspace) => `root_${workspace}_1`);
  const from = (rootKey: string, length: number) =>
    head(`Authorization: Bearer ${rootKey}`, `Content-Length: ${length}`);
  const says401 = says('', 401);

  /** Responds 503 to a body without room, 401 to an unknown root key, and else with the length of the body. */
  const answer: Handler = async ({ body, authorization }) => {
    if (!Buffer.isBuffer(body)) return says(body, body === 'no_room' ? 503 : 413);
    return rootKeys.includes(authorization.slice('Bearer '.length)) ? says(`${body.length}`) : says401;
  };
  const accepted = new Set<string>();
  const workspaceOf = (authorization: string) => (accepted.has(authorization) ? authorization : undefined);
  const start = () => {
    accepted.clear();
    return serve(answer, { bodyBytesMax: longest, arrivingBytesMax, workspaceOf });
  };

  /** A connection that has sent half of a long body, and so uses memory. */
  async function half(rootKey: string) {
    const client = await dial();
    const before = requests;
    await client.send(from(rootKey, longest), 'x'.repeat(longest / 2));
    await untilRequest(before + 1);
    return client;
  }
  /** Sends a body in two parts. Returns the status. */
  async function statusOf(rootKey: string, length: number) {
    const client = await dial();
    await client.send(from(rootKey, length), 'x'.repeat(length - 1));
    await client.send('x');
    return Number((await client.answer()).split(' ')[1]);
  }
  const isRefused = (client: Awaited<ReturnType<typeof dial>>) =>
    Promise.race([client.closed.then((text) => text.startsWith('HTTP/1.1 503 ')), turn().then(() => false)]);

  test('is bounded in total: a body without room is refused, and short bodies pass', async () => {
    await start();
    const clients = [];
    for (let made = 0; made < 20; made++) clients.push(await half('unknown'));
    await statusOf(rootKeys[0]!, 10);
    const refused = await Promise.all(clients.map(isRefused));
    // Half of the memory is two such bodies, as each buffer has the full length.
    expect(refused.filter((is) => !is)).toHaveLength(2);
    expect(await statusOf('unknown', 4_000)).toBe(401);
    expect(await statusOf('unknown', longest)).toBe(503);
  });

  test('is freed when a body is complete, refused, or its sender disconnects', async () => {
    await start();
    for (let round = 0; round < 10; round++) {
      expect(await statusOf('unknown', longest)).toBe(401);
      const clients = [await half('unknown'), await half('unknown'), await half('unknown')];
      expect(await statusOf('unknown', longest)).toBe(503);
      for (const { socket } of clients) socket.destroy();
      await Promise.all(clients.map(({ closed }) => closed));
      await vi.waitFor(async () => expect(await statusOf('unknown', longest)).toBe(401));
    }
  });

  test('cannot be taken by callers without a root key from those with one, nor by one workspace from another', async () => {
    await start();
    for (const rootKey of rootKeys) accepted.add(`Bearer ${rootKey}`);
    for (let made = 0; made < 8; made++) await half('unknown');
    expect(await statusOf('unknown', longest)).toBe(503);
    expect(await statusOf(rootKeys[0]!, longest)).toBe(200);

    // The second may use half of what the first leaves, which is half of a body here.
    const held = [await half(rootKeys[0]!), await half(rootKeys[0]!)];
    expect(await statusOf(rootKeys[0]!, longest)).toBe(503);
    expect(await statusOf(rootKeys[1]!, longest / 2)).toBe(200);
    for (const { socket } of held) socket.destroy();
    expect(await statusOf('unknown', longest)).toBe(503);
  });

  test('is used for bytes that have arrived, not for the announced length', async () => {
    await start();
    for (let made = 0; made < 50; made++) {
      const client = await dial();
      await client.send(from('unknown', longest), 'x');
    }
    expect(await statusOf('unknown', longest)).toBe(401);
  });
});

const ambiguous = [
  ['two lengths', 'Content-Length: 2\r\nContent-Length: 3'],
  ['the same length twice', 'Content-Length: 2\r\nContent-Length: 2'],
  ['an empty length', 'Content-Length:'],
  ['two authorizations', 'Authorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: 2'],
  ['an empty authorization and another', 'Authorization:\r\nAuthorization: Bearer b\r\nContent-Length: 2'],
  ['two content types', 'Content-Type: a\r\nContent-Type: b\r\nContent-Length: 2'],
  ['two encodings', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked'],
  ['chunks and an empty length', 'Transfer-Encoding: chunked\r\nContent-Length:'],
  ['an encoding we do not speak', 'Transfer-Encoding: gzip, chunked'],
  ['identity encoding', 'Transfer-Encoding: identity'],
  ['an empty encoding with a length', 'Transfer-Encoding:\r\nContent-Length: 2'],
] as const;

test.each(ambiguous)('400 in the envelope, and the connection closed: %s', async (_, headers) => {
  await serve();
  const client = await dial();
  await client.send(head('Accept: application/problem+json', headers));
  const [top, body] = (await client.closed).split('\r\n\r\n');
  expect(top).toMatch(
    /^HTTP\/1\.1 400 Bad Request\r\nContent-Type: application\/problem\+json\r\nX-Request-Id: req_1\r\n[\s\S]*Connection: close/i,
  );
  expect(JSON.parse(body!)).toMatchObject({
    meta: { requestId: 'req_1' },
    error: { status: 400, type: '/errors/malformed_request' },
  });
  expect(answered).toEqual([]);
});

test.each(ambiguous)('a request after an ambiguous one is never served: %s', async (_, headers) => {
  await serve();
  const client = await dial();
  await client.send(`${head(headers)}hiGET /hidden HTTP/1.1\r\nHost: t\r\n\r\n`);
  expect(await client.closed).not.toMatch(/200 OK/);
  expect(answered).toEqual([]);
});

test.each([
  [
    'Transfer-Encoding with Content-Length',
    `${head('Transfer-Encoding: chunked', 'Content-Length: 2')}2\r\nhi\r\n0\r\n\r\n`,
    400,
  ],
  ['a list of lengths', head('Content-Length: 2, 2'), 400],
  ['a negative length', head('Content-Length: -2'), 400],
  ['a length with a sign', head('Content-Length: +2'), 400],
  ['a hexadecimal length', head('Content-Length: 0x2'), 400],
  ['a length past all integers', head('Content-Length: 99999999999999999999'), 400],
  ['no Host', 'POST /v2/x HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi', 400],
  ['NUL in a header', head('Authorization: Bearer \0'), 400],
  ['NUL in the path', 'GET /\0 HTTP/1.1\r\nHost: t\r\n\r\n', 505],
  ['bytes that are not HTTP', Buffer.from([0x16, 3, 1, 2, 0, 1, 13, 10, 13, 10]), 505],
  ['HTTP/1.0', 'POST /v2/x HTTP/1.0\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi', 505],
  ['headers too long', head(`X-Long: ${'x'.repeat(5_000)}`), 431],
  ['too many headers', head(...Array.from({ length: 120 }, (_, i) => `X-${i}: x`)), 431],
])('uWebSockets.js itself refuses and closes: %s', async (_, bytes, status) => {
  await serve();
  const client = await dial();
  await client.send(bytes);
  expect(await client.closed).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(answered).toEqual([]);
  expect(await (await post('still here')).text()).toBe('still here');
});

test('a request whose body was cut off gets no response, and does not count as in flight', async () => {
  await serve();
  const client = await dial();
  await client.send(head('Content-Length: 10'), 'abc');
  await untilRequest(1);
  client.socket.destroy();
  await server.close();
  expect(answered).toEqual([]);
});

test('a broken chunk abandons the request', async () => {
  await serve();
  const client = await dial();
  await client.send(head('Transfer-Encoding: chunked'), 'zz\r\n');
  expect(await client.closed).toMatch(/^HTTP\/1\.1 400 /);
  expect(answered).toEqual([]);
});

test('a caller that disconnects before the response does no harm', async () => {
  const { answer, release } = held();
  await serve(async (request) => (request.path === '/slow' ? answer(request) : says('ok')));
  const client = await dial();
  await client.send('GET /slow HTTP/1.1\r\nHost: t\r\n\r\n');
  await untilAnswering(1);
  client.socket.destroy();
  await post('the server has seen the other one leave by the time it answers this');
  release(says('to nobody'));
  expect(await (await post('')).text()).toBe('ok');
});

describe('a long static response', () => {
  const body = randomBytes(6 * 1024 ** 2).toString('base64');
  const bytes = Buffer.from(body);
  const long: Response = { ...says(body), bytes };
  const request = 'GET / HTTP/1.1\r\nHost: t\r\n\r\n';

  /** A connection that has sent a request and does not read the response. */
  async function ask() {
    const socket = connect(server.port, '127.0.0.1').on('error', () => {});
    sockets.push(socket);
    socket.pause().write(request);
    await once(socket, 'connect');
    return socket;
  }

  test('arrives complete, also if it is read slowly, and the connection stays open', async () => {
    await serve(async ({ path }) => (path === '/' ? long : says('short')));
    expect(Buffer.from(await (await fetch(`http://127.0.0.1:${server.port}/`)).arrayBuffer()).equals(bytes)).toBe(true);
    const client = await ask();
    await untilAnswering(2);
    const parts: Buffer[] = [];
    let read = 0;
    for await (const part of client as AsyncIterable<Buffer>) {
      if (read < bytes.length / 2) await turn();
      read += parts.push(part) && part.length;
      if (read > bytes.length) break;
    }
    const answer = Buffer.concat(parts);
    const head = answer.subarray(0, answer.indexOf('\r\n\r\n') + 4);
    expect(head.toString()).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*Content-Length: 8388608\r\n/i);
    expect(answer.subarray(head.length).equals(bytes)).toBe(true);

    const again = await dial();
    await again.send(request);
    expect((await again.answer()).length).toBeGreaterThan(bytes.length);
    await again.send('POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n');
    expect(await again.answer()).toMatch(/short$/);
  });

  test('is not copied: many clients that do not read it cost no memory', async () => {
    await serve(async () => long);
    await ask();
    await untilAnswering(1);
    const before = process.memoryUsage.rss();
    for (let index = 0; index < 40; index++) await ask();
    await untilAnswering(41);
    const bodies = (process.memoryUsage.rss() - before) / bytes.length;
    expect(bodies).toBeLessThan(10);
  });

  test('delays close() until it is read or its reader disconnects', async () => {
    await serve(async () => long);
    const client = await ask();
    await untilAnswering(1);
    let closed = false;
    const closing = server.close().then(() => {
      closed = true;
    });
    for (let i = 0; i < 20; i++) await turn();
    expect(closed).toBe(false);
    client.destroy();
    await closing;
  });

  test('is not sent to HEAD, and is the last thing after a request that is too large', async () => {
    await serve(async () => long);
    const client = await dial();
    await client.send('HEAD / HTTP/1.1\r\nHost: t\r\n\r\n');
    await untilAnswering(1);
    await client.send(`POST / HTTP/1.1\r\nHost: t\r\nContent-Length: ${bodyBytesMax + 1}\r\n\r\n`);
    const [, first, second] = (await client.closed).split('HTTP/1.1 200 OK\r\n');
    expect(first).toMatch(/Content-Length: 8388608\r\n[^{}]{0,200}\r\n\r\n$/i);
    expect(second!.endsWith(body)).toBe(true);
  });
});

describe('the last request of a connection', () => {
  const body = 'b'.repeat(8 * 1024 ** 2);
  const chunked = head('Transfer-Encoding: chunked');
  const next = 'GET /next HTTP/1.1\r\nHost: t\r\n\r\n';
  const untilClosed = (socket: Socket) => new Promise((resolve) => socket.resume().once('close', resolve));

  // While a response is in memory because its reader is slow, uWebSockets.js would serve the next request.
  test.each([
    ['in chunks, a long answer', [`${chunked}0\r\n\r\n`], {}],
    ['in chunks, a long answer that is always the same', [`${chunked}0\r\n\r\n`], { bytes: Buffer.from(body) }],
    ['too large, a long answer', [`${head('Content-Length: 1001')}x`, 'x'.repeat(1000)], {}],
    ['in chunks, behind a long answer', ['GET /first HTTP/1.1\r\nHost: t\r\n\r\n', `${chunked}0\r\n\r\n`], {}],
    [
      'in chunks, HEAD behind a long answer',
      ['GET /first HTTP/1.1\r\nHost: t\r\n\r\n', `HEAD${chunked.slice(4)}0\r\n\r\n`],
      {},
    ],
  ])('is followed by none, also while its response is read slowly: %s', async (_what, parts, more) => {
    const isSecond = parts[0]!.includes('/first');
    const long = isSecond ? '/first' : '/v2/x';
    await serve(async ({ path }) => (path === long ? { ...says(body), ...more } : says('short')));
    const socket = connect(server.port, '127.0.0.1').on('error', () => {});
    sockets.push(socket);
    socket.pause();
    await once(socket, 'connect');
    for (const [index, part] of parts.entries()) {
      socket.write(part);
      await untilRequest(isSecond ? index + 1 : 1);
    }
    await untilAnswering(isSecond ? 2 : 1);
    socket.write(next);
    // The server would have read the next request before it responds on another connection.
    for (let index = 0; index < 5; index++) await fetch(`http://127.0.0.1:${server.port}/other`);
    await untilClosed(socket);
    expect(answered.map(({ path }) => path).filter((path) => path === '/next')).toEqual([]);
  });

  test.each([1, 2, 16_000, 20_000, body.length])('gets its whole response of %s bytes', async (length) => {
    await serve(async () => says(body.slice(0, length)));
    const client = await dial();
    await client.send(chunked, '0\r\n\r\n');
    const [top, text] = (await client.closed).split('\r\n\r\n');
    expect(top).toMatch(/^connection: close$/im);
    expect(top!.match(/^content-length: (\d+)\r?$/im)![1]).toBe(`${length}`);
    expect(text).toBe(body.slice(0, length));
  });

  test('gets a response without a body, and HEAD the length of one', async () => {
    await serve(async ({ method }) => says(method === 'HEAD' ? '{}' : ''));
    for (const method of ['POST', 'HEAD']) {
      const client = await dial();
      await client.send(`${method}${chunked.slice(4)}`, '0\r\n\r\n');
      const expected = method === 'HEAD' ? 2 : 0;
      expect(await client.closed).toMatch(
        new RegExp(`^connection: close\r$[\\s\\S]*^content-length: ${expected}\r\n\r\n$`, 'im'),
      );
    }
  });

  test('is not in flight after its response, or when its caller has disconnected', async () => {
    const { answer, release } = held();
    await serve(async (request) => (request.path === '/v2/x' ? answer(request) : says('ok')));
    const client = await dial();
    await client.send(chunked, '0\r\n\r\n');
    await untilAnswering(1);
    client.socket.destroy();
    await fetch(`http://127.0.0.1:${server.port}/other`);
    release(says('to nobody'));
    await server.close();
  });
});

// Tollgate cannot prevent this, as the headers after it are invisible. nginx, HAProxy and Caddy refuse such a line.
test('uWebSockets.js ignores all headers after one without a name', async () => {
  await serve();
  const client = await dial();
  await client.send('POST /v2/x HTTP/1.1\r\nHost: t\r\n: x\r\nAuthorization: Bearer a\r\n\r\n');
  await client.answer();
  expect(answered[0]!.authorization).toBe('');
});

test.each([
  ['a blank before the colon', 'Transfer-Encoding : chunked'],
  ['a continued line', 'X: a\r\n Transfer-Encoding: chunked'],
  ['a continued value', 'Content-Length:\r\n 31'],
  ['no colon', 'Transfer-Encoding chunked'],
  ['a line feed alone', 'X: a\nTransfer-Encoding: chunked'],
  ['a control character in a name', 'Transfer-Encoding\x7f: chunked'],
  ['a control character in a value', 'Transfer-Encoding: chunked\x0b'],
  ['two hosts', 'Host: other'],
])('400, and nothing after it is served: %s', async (_, line) => {
  await serve();
  const client = await dial();
  await client.send(`${head(line)}GET /hidden HTTP/1.1\r\nHost: t\r\n\r\n`);
  expect(await client.closed).toMatch(/^HTTP\/1\.1 400 /);
  expect(answered).toEqual([]);
});

test.each([
  ['an absolute target', 'GET http://t/v2/x HTTP/1.1'],
  ['an authority', 'CONNECT t:80 HTTP/1.1'],
  ['a star', 'OPTIONS * HTTP/1.1'],
  ['HTTP/2 without TLS', 'PRI * HTTP/2.0'],
  ['two blanks', 'GET  /v2/x HTTP/1.1'],
  ['a tab', 'GET\t/v2/x\tHTTP/1.1'],
])('505, and nothing after it is served: %s', async (_, line) => {
  await serve();
  const client = await dial();
  await client.send(`${line}\r\nHost: t\r\n\r\nGET /hidden HTTP/1.1\r\nHost: t\r\n\r\n`);
  expect(await client.closed).toMatch(/^HTTP\/1\.1 505 /);
  expect(answered).toEqual([]);
});

test('a request to upgrade gets the usual response', async () => {
  await serve();
  for (const upgrade of [
    'websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13',
    'h2c',
  ]) {
    const client = await dial();
    await client.send(`GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n\r\n`);
    expect(await client.answer()).toMatch(/^HTTP\/1\.1 200 /);
  }
});

test('a connection serves one request after another', async () => {
  await serve();
  const client = await dial();
  for (const body of ['one', 'two', 'three']) {
    await client.send(head(`Content-Length: ${body.length}`) + body);
    const answer = await client.answer();
    expect(answer).toMatch(new RegExp(`\r\n\r\n${body}$`));
    expect(answer).not.toMatch(/connection: close/i);
  }
});

test('two hundred concurrent requests each get their own response', async () => {
  await serve(async (request) => {
    await turn();
    return says(`${request.requestId} ${request.body}`);
  });
  const bodies = Array.from({ length: 200 }, (_, i) => `body ${i} ${'x'.repeat(i)}`);
  const answers = await Promise.all(bodies.map(post));
  for (const [i, answer] of answers.entries()) {
    expect(await answer.text()).toBe(`${answer.headers.get('x-request-id')} ${bodies[i]}`);
  }
  expect(new Set(answers.map((answer) => answer.headers.get('x-request-id'))).size).toBe(200);
});

test.each([
  ['rejects', () => Promise.reject(new Error('secret'))],
  [
    'throws',
    () => {
      throw new Error('secret');
    },
  ],
])('500 in the envelope when answer() %s', async (_, answer) => {
  const log = vi.spyOn(console, 'error').mockImplementation(() => {});
  await serve(answer);
  const response = await post('{}');
  expect(response.status).toBe(500);
  const body = await response.text();
  expect(JSON.parse(body)).toMatchObject({
    meta: { requestId: 'req_1' },
    error: { status: 500, type: '/errors/internal' },
  });
  expect(body).not.toContain('secret');
  expect(String(log.mock.calls)).toContain('secret');
  log.mockRestore();
});

test('close() refuses new connections, waits for the requests in flight, sends them Connection: close, and closes idle connections', async () => {
  const { answer, release } = held();
  await serve(async (request) => (request.path === '/slow' ? answer(request) : says('ok')));
  const idle = await dial();
  await idle.send('GET / HTTP/1.1\r\nHost: t\r\n\r\n');
  expect(await idle.answer()).toMatch(/ok$/);
  const busy = await dial();
  await busy.send('GET /slow HTTP/1.1\r\nHost: t\r\n\r\n');
  await untilAnswering(2);

  let closed = false;
  const closing = server.close().then(() => {
    closed = true;
  });
  await expect(dial()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(closed).toBe(false);

  release(says('finished'));
  await closing;
  expect(await busy.closed).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*Connection: close[\s\S]*finished$/i);
  expect(await idle.closed).toBe('');
});

test('close() also waits for a response whose caller has disconnected', async () => {
  const { answer, release } = held();
  await serve(async (request) => (request.path === '/slow' ? answer(request) : says('ok')));
  const client = await dial();
  await client.send('GET /slow HTTP/1.1\r\nHost: t\r\n\r\n');
  await untilAnswering(1);
  client.socket.destroy();
  await post('the server has seen the other one leave by the time it answers this');

  let closed = false;
  const closing = server.close().then(() => {
    closed = true;
  });
  for (let i = 0; i < 5; i++) await turn();
  expect(closed).toBe(false);
  release(says('to nobody'));
  await closing;
});

test('close() called twice closes once', async () => {
  await serve();
  expect(server.close()).toBe(server.close());
});

test('a port in use is refused unless it is shared', async () => {
  await serve();
  const at = { host: '127.0.0.1', bodyBytesMax, newRequestId: () => 'req_1', handler: async () => says('') };
  await expect(listen({ ...at, port: server.port })).rejects.toThrow(
    `Cannot listen on 127.0.0.1 port ${server.port}: `,
  );

  const stranger = createServer().listen(0, '127.0.0.1');
  await once(stranger, 'listening');
  const { port } = stranger.address() as { port: number };
  await expect(listen({ ...at, port })).rejects.toThrow('Cannot listen');
  stranger.close();
  await once(stranger, 'close');

  const alone = await listen({ ...at, port });
  await expect(listen({ ...at, port })).rejects.toThrow('Cannot listen');
  await alone.close();

  const first = await listen({ ...at, port, sharePort: true });
  const second = await listen({ ...at, port, sharePort: true });
  expect([first.port, second.port]).toEqual([port, port]);
  await Promise.all([first.close(), second.close()]);
});
