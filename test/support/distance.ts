// A Redis at a distance: a proxy that delays requests and replies, in order.

import { createConnection, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll } from 'vitest';
import { testRedisUrl } from './redisUrl.ts';

/** How to connect to the Redis of a URL, and its database. */
function targetOf(url: string) {
  const { protocol, pathname, hostname, port, searchParams } = new URL(url);
  return protocol === 'unix:'
    ? { open: () => createConnection(pathname), database: searchParams.get('db') ?? '0' }
    : { open: () => createConnection(Number(port), hostname), database: pathname.slice(1) || '0' };
}

/**
 * Call it at the top level of a test file. What is sent arrives after half of `roundTripMs`, and never before what was
 * sent earlier.
 */
export function farRedis(near = testRedisUrl) {
  const sockets = new Set<Socket>();
  const proxy = { url: '', roundTripMs: 0 };

  function forward(from: Socket, to: Socket) {
    const waiting: { bytes: Buffer; dueAt: number }[] = [];
    function send() {
      const now = performance.now();
      while (waiting.length > 0 && waiting[0]!.dueAt <= now) to.write(waiting.shift()!.bytes);
      if (waiting.length > 0) setTimeout(send, Math.max(1, waiting[0]!.dueAt - now));
    }
    from.on('data', (bytes) => {
      waiting.push({ bytes, dueAt: performance.now() + proxy.roundTripMs / 2 });
      if (waiting.length === 1) setTimeout(send, proxy.roundTripMs / 2);
    });
    from.on('error', () => {});
    from.on('close', () => to.destroy());
    sockets.add(from);
  }

  const server = createServer((client) => {
    const redis = targetOf(near()).open();
    forward(client, redis);
    forward(redis, client);
  });
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    proxy.url = `redis://127.0.0.1:${port}/${targetOf(near()).database}`;
  });
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return proxy;
}
