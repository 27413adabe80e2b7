// A proxy between a server and Redis, which loses and delays what they send.

import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll } from 'vitest';
import { testRedisUrl } from '../../support/redisUrl.ts';

/** How to connect to the Redis of a URL, and its database. */
function targetOf(url: string) {
  const { protocol, pathname, hostname, port, searchParams } = new URL(url);
  return protocol === 'unix:'
    ? { open: () => createConnection(pathname), database: searchParams.get('db') ?? '0' }
    : { open: () => createConnection(Number(port), hostname), database: pathname.slice(1) || '0' };
}

/** Writes to a socket after a delay, which may get shorter. */
function inOrder(socket: Socket) {
  const waiting: { bytes: Buffer; dueAt: number }[] = [];
  const write = () => {
    while (waiting.length > 0 && waiting[0]!.dueAt <= performance.now()) socket.write(waiting.shift()!.bytes);
    if (waiting.length > 0) setTimeout(write, Math.max(1, waiting[0]!.dueAt - performance.now()));
  };
  return (bytes: Buffer, delayMs: number) => {
    if (delayMs === 0 && waiting.length === 0) return void socket.write(bytes);
    if (waiting.push({ bytes, dueAt: performance.now() + delayMs }) === 1) write();
  };
}

/** Call it at the top level of a test file. What is sent arrives in order. */
export function redisProxy(near = testRedisUrl) {
  let server: Server;
  const clients = new Set<Socket>();
  const all = new Set<Socket>();
  const proxy = {
    url: () => `redis://127.0.0.1:${(server.address() as { port: number }).port}/${targetOf(near()).database}`,
    /** Passes on no answer: it closes the connection instead. */
    losesAnswers: false,
    /** Answers that were lost. */
    lost: 0,
    /** Redis's ends of the connections that subscribed. */
    subscriptions: new Set<Socket>(),
    /** Loses the messages of channels. */
    losesMessages: false,
    /** How much later answers arrive, and requests. */
    delayMs: 0,
    delayRequestsMs: 0,
    /** Keeps requests to Redis, in `delayed`. */
    delays: false,
    delayed: [] as (() => void)[],
    /** Sends what was delayed. */
    release() {
      proxy.delays = false;
      for (const send of proxy.delayed.splice(0)) send();
    },
    /** Closes the connections of the server. What it sent before may still arrive. */
    disconnect() {
      for (const client of clients) client.destroy();
    },
  };

  beforeAll(async () => {
    server = createServer((client) => {
      const redis = targetOf(near()).open();
      let isSubscribed = false;
      clients.add(client);
      for (const socket of [client, redis]) {
        all.add(socket);
        socket.on('error', () => {});
      }
      const request = inOrder(redis);
      const answer = inOrder(client);
      client.on('data', (bytes) => {
        isSubscribed ||= bytes.includes('subscribe');
        if (isSubscribed) proxy.subscriptions.add(redis);
        if (proxy.delays) proxy.delayed.push(() => void redis.write(bytes));
        else request(bytes, proxy.delayRequestsMs);
      });
      redis.on('data', (bytes) => {
        if (proxy.losesMessages && isSubscribed && bytes.includes('message')) return;
        if (!proxy.losesAnswers) return answer(bytes, proxy.delayMs);
        proxy.lost++;
        client.destroy();
      });
      client.on('close', () => clients.delete(client));
      redis.on('close', () => client.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => {
    for (const socket of all) socket.destroy();
    server.close();
  });
  return proxy;
}
