// Responses without an end, on real sockets.

import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Response } from '../../src/http/message.ts';
import { listen, type Server } from '../../src/http/server.ts';
import type { StreamSink } from '../../src/operation.ts';
import { withinMs } from '../support/unit.ts';

class Stream {
  sink: StreamSink | undefined;
  stops: (string | undefined)[] = [];

  start(sink: StreamSink) {
    this.sink = sink;
    sink.write('first');
  }

  stop(reason?: string) {
    this.stops.push(reason);
    if (reason === undefined) return;
    this.sink!.write(reason);
    this.sink!.end();
  }
}

let server: Server;
let stream: Stream;
let answered: Promise<void> = Promise.resolve();

beforeAll(async () => {
  server = await open();
});
afterAll(() => server.close());

const open = () =>
  listen({
    host: '127.0.0.1',
    port: 0,
    bodyBytesMax: 1000,
    newRequestId: () => 'req_1',
    handler: async (): Promise<Response> => {
      await answered;
      stream = new Stream();
      return {
        status: 200,
        contentType: 'text/event-stream',
        headers: [['Cache-Control', 'no-store']],
        body: '',
        stream,
      };
    },
  });

const request = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}';

/** A connection that has sent a request, and what it received. */
async function ask(of = server, text = request) {
  const socket = connect(of.port, '127.0.0.1');
  const received = { text: '' };
  socket.on('data', (part) => {
    received.text += part;
  });
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(text);
  return { socket, received };
}

test('sends the headers and each part as it is written, in chunks, and its end', async () => {
  const { socket, received } = await ask();
  await expect.poll(() => received.text).toContain('first');
  expect(received.text).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(received.text).toContain('Content-Type: text/event-stream\r\n');
  expect(received.text).toContain('Cache-Control: no-store\r\n');
  expect(received.text).toContain('X-Request-Id: req_1\r\n');
  expect(received.text).toContain('Transfer-Encoding: chunked\r\n');
  stream.sink!.write('second');
  await expect.poll(() => received.text).toContain('6\r\nsecond');
  stream.sink!.end();
  await expect.poll(() => received.text).toMatch(/\r\n0\r\n\r\n$/);
  expect(received.text).toContain('Connection: close\r\n');
  socket.destroy();
  expect(stream.stops).toEqual([undefined]);
  // After the end nothing is written.
  stream.sink!.write('late');
  stream.sink!.end();
});

test('is stopped when the client leaves, also before it began', async () => {
  const { socket, received } = await ask();
  await expect.poll(() => received.text).toContain('first');
  socket.destroy();
  await expect.poll(() => stream.stops).toEqual([undefined]);
  stream.sink!.write('late');

  let answer = () => {};
  answered = new Promise((resolve) => {
    answer = resolve;
  });
  const early = await ask();
  await delay(20);
  early.socket.destroy();
  await delay(20);
  answer();
  answered = Promise.resolve();
  await expect.poll(() => stream.stops).toEqual([undefined]);
  expect(stream.sink).toBeUndefined();
});

test('of a request with Transfer-Encoding is sent too', async () => {
  const { socket, received } = await ask(
    server,
    'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
  );
  await expect.poll(() => received.text).toContain('first');
  stream.sink!.end();
  await expect.poll(() => received.text).toMatch(/\r\n0\r\n\r\n$/);
  socket.destroy();
});

test('a reader that takes nothing is dropped, and the writer is never delayed', async () => {
  const { socket, received } = await ask();
  await expect.poll(() => received.text).toContain('first');
  const { sink, stops } = stream;
  socket.pause();
  let longest = 0;
  // The kernel takes some megabytes.
  for (let written = 0; stops.length === 0 && written < 4000; written++) {
    const before = performance.now();
    sink!.write('x'.repeat(16_384));
    longest = Math.max(longest, performance.now() - before);
    await delay(0);
  }
  expect(stops).toEqual([undefined]);
  expect(longest).toBeLessThan(withinMs(100));
  socket.destroy();
});

test('a server that drains ends its streams, old and new', async () => {
  const own = await open();
  const { socket, received } = await ask(own);
  await expect.poll(() => received.text).toContain('first');
  own.drain();
  await expect.poll(() => received.text).toMatch(/shutting_down\r\n0\r\n\r\n$/);
  expect(stream.stops).toEqual(['shutting_down', undefined]);
  const later = await ask(own);
  await expect.poll(() => later.received.text).toMatch(/shutting_down\r\n0\r\n\r\n$/);
  const closed = [socket, later.socket].map((each) => once(each, 'close'));
  await own.close();
  await Promise.all(closed);
});
