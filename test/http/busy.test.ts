// More requests in one turn of the event loop than it has room for (src/http/turns.ts), on real sockets.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Handler, Request, Response } from '../../src/http/message.ts';
import { type ListenOptions, listen, type Server } from '../../src/http/server.ts';

/** The short requests that a turn handles at once. */
const requestsMax = 512;
const bodyBytesMax = 100_000;

let server: Server;
let handled: Request[];
/** How many requests were handled when the first turn ended. */
let inFirstTurn: number;
let sockets: Socket[];

const says = (body: string): Response => ({ status: 200, contentType: 'text/plain', headers: [], body });

async function serve(answer: Handler = ({ path }) => says(path), more: Partial<ListenOptions> = {}) {
  server = await listen({
    host: '127.0.0.1',
    port: 0,
    bodyBytesMax,
    newRequestId: () => 'req_1',
    ...more,
    handler: (request) => {
      if (handled.length === 0) setImmediate(() => (inFirstTurn = handled.length));
      handled.push(request);
      return answer(request);
    },
  });
}

beforeEach(() => {
  handled = [];
  sockets = [];
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await server.close();
});

/** Opens connections that do not send anything yet. */
async function dial(count: number): Promise<Socket[]> {
  const dialled: Socket[] = [];
  while (dialled.length < count) {
    const some = Array.from({ length: Math.min(100, count - dialled.length) }, () =>
      connect(server.port, '127.0.0.1').on('error', () => {}),
    );
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    dialled.push(...some);
  }
  sockets.push(...dialled);
  return dialled;
}

/** Everything that a connection receives until its response is complete, or it is closed. */
function received(socket: Socket): Promise<string> {
  let text = '';
  return new Promise((resolve) => {
    const end = () => {
      socket.off('data', read).off('close', end);
      resolve(text);
    };
    const read = (data: Buffer) => {
      text += data.toString('latin1');
      const [, head, length] = /^([\s\S]*?content-length: (\d+)[\s\S]*?\r\n\r\n)/i.exec(text) ?? [];
      if (head !== undefined && text.length >= head.length + Number(length)) end();
    };
    socket.on('data', read).once('close', end);
  });
}

const get = (path: string, ...headers: string[]) =>
  `GET ${path} HTTP/1.1\r\n${['Host: t', ...headers].join('\r\n')}\r\n\r\n`;
const post = (path: string, length: number) => `POST ${path} HTTP/1.1\r\nHost: t\r\nContent-Length: ${length}\r\n\r\n`;

/** Sends a request on each connection at once. Returns the bodies of the responses, in this order. */
function sendAll(connections: readonly Socket[], requestOf: (index: number) => string): Promise<string[]> {
  const texts = connections.map(received);
  for (const [index, socket] of connections.entries()) socket.write(requestOf(index));
  return Promise.all(texts).then((all) => all.map((text) => text.split('\r\n\r\n')[1] ?? ''));
}

test.each([
  ['at once', ({ path }: Request) => says(path)],
  ['by a promise', async ({ path }: Request) => says(path)],
])('a turn handles 512 requests that are answered %s, and later turns the others', async (_how, answer) => {
  await serve(answer);
  const connections = await dial(1100);
  for (const round of [1, 2]) {
    handled = [];
    const bodies = await sendAll(connections, (index) => get(`/${round}/${index}`));
    expect(bodies).toEqual(connections.map((_, index) => `/${round}/${index}`));
    expect(inFirstTurn).toBeGreaterThanOrEqual(requestsMax / 2);
    expect(inFirstTurn).toBeLessThanOrEqual(requestsMax);
    expect(handled.length).toBe(connections.length);
  }
});

test('a long body counts as several requests, and is complete', async () => {
  await serve(({ body }) => says(`${body.length}`));
  const connections = await dial(200);
  const bodies = await sendAll(connections, () => `${post('/', 16_384)}${'x'.repeat(16_384)}`);
  expect(bodies).toEqual(connections.map(() => '16384'));
  // 16 KB are parsed in the time of 8 requests more.
  expect(inFirstTurn).toBeLessThanOrEqual(Math.ceil(requestsMax / 9));
});

test('a long response counts as several requests', async () => {
  const long = says('x'.repeat(1024 * 1024));
  await serve(() => long);
  const connections = await dial(100);
  await sendAll(connections, () => get('/'));
  expect(inFirstTurn).toBeLessThanOrEqual(Math.ceil(requestsMax / 17));
});

test('callers take turns: one with few requests does not wait for all of another', async () => {
  await serve(undefined, { workspaceOf: (authorization) => authorization || undefined });
  const connections = await dial(2000);
  await sendAll(connections, (index) => get('/', `Authorization: ${index < 1990 ? 'many' : 'few'}`));
  const few = handled.flatMap(({ authorization }, place) => (authorization === 'few' ? [place] : []));
  expect(few).toHaveLength(10);
  // Those of `few` arrived last.
  expect(few.at(-1)!).toBeLessThan(requestsMax + 30);
});

test('a request that waits is not handled if its caller disconnects, and is not in flight then', async () => {
  const connections: Socket[] = [];
  await serve(({ path }) => {
    // At the end of this turn, in which all requests arrive.
    if (handled.length === 1) setImmediate(() => connections.forEach((socket) => void socket.resetAndDestroy()));
    return says(path);
  });
  connections.push(...(await dial(1500)));
  for (const socket of connections) socket.write(get('/'));
  await vi.waitUntil(() => handled.length > 0, { interval: 0 });
  await server.close();
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  // Those of this turn, and those that its end handled.
  expect(handled.length).toBeLessThanOrEqual(2 * requestsMax);
});

test('requests that wait are handled before the server closes, and their connections are closed', async () => {
  await serve();
  const connections = await dial(1500);
  const answers = connections.map(received);
  for (const socket of connections) socket.write(get('/late'));
  await vi.waitUntil(() => handled.length > 0, { interval: 0 });
  await server.close();
  const texts = await Promise.all(answers);
  expect(handled.length).toBe(connections.length);
  expect(texts.filter((text) => text.endsWith('/late'))).toHaveLength(connections.length);
  expect(texts.filter((text) => /connection: close/i.test(text)).length).toBeGreaterThan(0);
});

test('a body goes on arriving after a turn had no room for one of its parts', async () => {
  await serve(({ body }) => says(body.toString()));
  const [busy, parted] = [await dial(700), await dial(300)];
  const all = sendAll(busy, () => get('/'));
  const answers = parted.map(received);
  for (const socket of parted) socket.write(`${post('/', 6)}abc`);
  for (let turn = 0; turn < 20; turn++) await nextTurn();
  for (const socket of parted) socket.write('def');
  for (const text of await Promise.all(answers)) expect(text).toMatch(/\r\n\r\nabcdef$/);
  await all;
});

test('bodies that wait share the memory for arriving bodies', async () => {
  // Room for nine of them: a holder may have as much as it leaves free.
  const arrivingBytesMax = 18 * 60_000;
  await serve(({ body }) => says(Buffer.isBuffer(body) ? `${body.length}` : body), { arrivingBytesMax });
  const [busy, long] = [await dial(600), await dial(60)];
  const all = sendAll(busy, () => get('/'));
  const bodies = await sendAll(long, () => `${post('/', 60_000)}${'x'.repeat(60_000)}`);
  expect(new Set(bodies)).toEqual(new Set(['60000', 'no_room']));
  await all;
  // It is free again.
  for (let round = 0; round < 3; round++) {
    const connections = await dial(8);
    const again = await sendAll(connections, () => `${post('/', 60_000)}${'x'.repeat(60_000)}`);
    expect(again).toEqual(connections.map(() => '60000'));
  }
});

test('a path may have longer bodies, which need their memory until they are handled', async () => {
  const long = 400_000;
  let end = () => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  await serve(
    async ({ path, body }) => {
      if (path === '/long' && Buffer.isBuffer(body)) await ended;
      return says(Buffer.isBuffer(body) ? `${body.length}` : body);
    },
    { bodyBytesMaxOf: (path) => (path === '/long' ? 500_000 : bodyBytesMax), arrivingBytesMax: 2 * long },
  );
  const [first, second, third, fourth] = await dial(4);
  const sent = (path: string, length: number) => `${post(path, length)}${'x'.repeat(length)}`;
  expect(await sendAll([third!], () => sent('/short', bodyBytesMax + 1))).toEqual(['too_large']);
  const answer = sendAll([first!], () => sent('/long', long));
  await vi.waitUntil(() => handled.length === 2, { interval: 1 });
  // A holder may have as much as it leaves free, which is what the first one still has.
  expect(await sendAll([second!], () => sent('/long', long))).toEqual(['no_room']);
  end();
  expect(await answer).toEqual([`${long}`]);
  expect(await sendAll([fourth!], () => sent('/long', long))).toEqual([`${long}`]);
  expect(await sendAll(await dial(1), () => sent('/long', 500_001))).toEqual(['too_large']);
});

test('pipelined requests do not hold up a turn: the connection ends behind those that it handles', async () => {
  await serve();
  const [socket] = (await dial(1)) as [Socket];
  const ended = new Promise((resolve) => socket.resume().once('close', resolve));
  socket.write(get('/').repeat(5000));
  await ended;
  expect(handled.length).toBeGreaterThanOrEqual(requestsMax / 2);
  expect(handled.length).toBeLessThanOrEqual(requestsMax + 1);
});

test('a long constant response arrives complete at slow readers, while turns are full of other requests', async () => {
  const body = 'abcdefgh'.repeat(1024 * 1024);
  const long = { ...says(body), bytes: Buffer.from(body) };
  await serve(({ path }) => (path === '/long' ? long : says(path)));
  const [busy, slow] = [await dial(700), await dial(3)];
  for (const socket of slow) socket.pause();
  let isComplete = false;
  const answers = sendAll(slow, () => get('/long')).finally(() => (isComplete = true));
  while (handled.length < slow.length) await nextTurn();
  for (const socket of slow) socket.resume();
  while (!isComplete) await sendAll(busy, () => get('/'));
  for (const text of await answers) expect(text === body).toBe(true);
});
