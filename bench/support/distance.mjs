// A Redis that is some milliseconds away: a proxy between two Unix sockets, which forwards requests after a delay and
// replies at once. It runs in a thread of the bench, so that its processor time counts neither for the server nor for
// Redis.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { parentPort, Worker, workerData } from 'node:worker_threads';
import { atEnd, temporaryDir } from './processes.mjs';

/** How often requests that wait are looked at: Node's timers take whole milliseconds. */
const pollMs = 0.05;

/** Returns a Redis whose round trips take `roundTripMs` longer than those of `redis`. */
export async function farAway(redis, roundTripMs) {
  const socket = join(temporaryDir(), 'far.sock');
  const worker = new Worker(new URL(import.meta.url), { workerData: { socket, near: redis.socket, roundTripMs } });
  atEnd(() => worker.terminate());
  await once(worker, 'message');
  return { ...redis, url: `unix:${socket}` };
}

function serve({ socket, near, roundTripMs }) {
  const waiting = [];
  const sleeping = new Int32Array(new SharedArrayBuffer(4));

  function forward() {
    const now = performance.now();
    while (waiting[0]?.dueAt <= now) {
      const { redis, chunk } = waiting.shift();
      redis.write(chunk);
    }
    if (waiting.length === 0) return;
    const left = waiting[0].dueAt - now;
    if (left > 3) return void setTimeout(forward, left - 2);
    Atomics.wait(sleeping, 0, 0, pollMs);
    setImmediate(forward);
  }

  const proxy = createServer((client) => {
    const redis = connect(near);
    redis.pipe(client);
    client.on('data', (chunk) => {
      waiting.push({ redis, chunk, dueAt: performance.now() + roundTripMs });
      if (waiting.length === 1) setImmediate(forward);
    });
    for (const [one, other] of [
      [client, redis],
      [redis, client],
    ]) {
      // A connection that is lost is the other side's to report.
      one.on('error', () => {});
      one.on('close', () => other.destroy());
    }
  });
  proxy.listen(socket, () => parentPort.postMessage('listening'));
}

if (workerData?.roundTripMs) serve(workerData);
