// Connections that send no proper requests: silent, one byte a second, closed early, or cut off by the network without
// notice. Other callers are served as before, and the server gets its memory and descriptors back.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Answered } from '../support/client.ts';
import { report } from './report.ts';
import { atRate, percentile, type Rig, startRig } from './rig.ts';

/** The server's timeout for a connection that sends nothing; uWebSockets.js checks every four seconds. */
const idleMs = 12_000;
const slackMs = 6_000;

let rig: Rig;
let key: string;
let sockets: Socket[];

beforeEach(async () => {
  rig = await startRig();
  const { apiId } = await rig.ok('apis.createApi', { name: 'connections' });
  ({ key } = await rig.ok('keys.createKey', { apiId }));
  await usual(); // Warm.
  sockets = [];
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await rig.stop();
});

/** Opens so many connections, a few at a time, because the kernel's queue of new connections is short. */
async function dial(count: number): Promise<Socket[]> {
  const dialled: Socket[] = [];
  while (dialled.length < count) {
    const some = Array.from({ length: Math.min(200, count - dialled.length) }, () => connect(rig.port, '127.0.0.1'));
    for (const socket of some) socket.on('error', () => {});
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    dialled.push(...some);
  }
  sockets.push(...dialled);
  return dialled;
}

const verify = () => rig.send('keys.verifyKey', JSON.stringify({ key }));

/** Latency for a caller that sends fifty requests a second. */
async function usual(): Promise<number[]> {
  const answers: Answered[] = await atRate(50, 3, verify);
  expect([...new Set(answers.map(({ status }) => status))]).toEqual([200]);
  return answers.map(({ tookMs }) => tookMs);
}

/** Served as before, with some tolerance for other load of the machine. */
function expectServed(before: number[], during: number[]) {
  expect(percentile(during, 50)).toBeLessThan(percentile(before, 50) + 250);
  expect(percentile(during, 99)).toBeLessThan(percentile(before, 99) + 1500);
}

const ms = (value: number) => `${value.toFixed(1)} ms`;
const p99 = (before: number[], during: number[]) =>
  `p99 of others ${ms(percentile(before, 99))} before, ${ms(percentile(during, 99))} meanwhile`;

const untilClosed = (all: Socket[], withinMs: number) =>
  vi.waitFor(() => expect(all.filter(({ closed }) => !closed)).toHaveLength(0), { timeout: withinMs, interval: 100 });
const untilDescriptors = (count: number, withinMs: number) =>
  vi.waitFor(() => expect(rig.server.descriptors()).toBeLessThanOrEqual(count + 20), {
    timeout: withinMs,
    interval: 100,
  });

test('10 000 connections that send nothing', async () => {
  const idle = 10_000;
  const before = await usual();
  const [descriptors, memoryMb] = [rig.server.descriptors(), rig.server.memoryMb()];
  const all = await dial(idle);
  expect(rig.server.descriptors()).toBeGreaterThan(idle);
  const during = await usual();
  const fullMb = rig.server.memoryMb();
  await untilClosed(all, idleMs + slackMs);
  await untilDescriptors(descriptors, 5_000);

  expectServed(before, during);
  expect(fullMb - memoryMb).toBeLessThan(100);
  report({
    order: '10.2',
    fault: `${idle} connections that send nothing`,
    expected: 'others are served as before; they are closed after 8 to 12 s and their memory and descriptors are freed',
    measured: `${p99(before, during)}; ${(((fullMb - memoryMb) * 1024) / idle).toFixed(1)} KB each; closed and ${rig.server.descriptors()} descriptors left of ${idle + descriptors}`,
  });
});

test('1 000 senders of a byte a second, in the head and in the body', async () => {
  const before = await usual();
  const [descriptors, memoryMb] = [rig.server.descriptors(), rig.server.memoryMb()];
  const all = await dial(1_000);
  const startedAt = performance.now();
  const head = `POST /v2/keys.verifyKey HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${rig.rootKey}\r\nContent-Type: application/json\r\n`;
  const heads = [head, `${head}Content-Length: 1000000\r\n\r\n`, `${head}Transfer-Encoding: chunked\r\n\r\n`];
  const drips = ['x', 'x', '1\r\nx\r\n'];
  // Spread over each second: all at once would be a burst for this process, which also measures.
  const turns = 50;
  let turn = 0;
  const dripping = setInterval(() => {
    for (let index = turn % turns; index < all.length; index += turns) {
      const socket = all[index]!;
      if (!socket.closed) socket.write((turn < turns ? heads : drips)[index % 3]!);
    }
    turn++;
  }, 1000 / turns);
  try {
    const during = await usual();
    const fullMb = rig.server.memoryMb();
    await untilClosed(all, idleMs + slackMs);
    const tookS = (performance.now() - startedAt) / 1000;
    await untilDescriptors(descriptors, 5_000);
    expectServed(before, during);
    // Memory grows with the bytes received, not with the announced length.
    expect(fullMb - memoryMb).toBeLessThan(100);
    report({
      order: '10.3',
      fault: '1 000 senders of a byte a second: a third in the head, in a body of announced length, in chunks',
      expected: 'others are served as before; closed after 8 to 12 s, although they send steadily',
      measured: `${p99(before, during)}; ${(fullMb - memoryMb).toFixed(0)} MB for all; the last one closed after ${tookS.toFixed(0)} s`,
    });
  } finally {
    clearInterval(dripping);
  }
});

test('clients that disconnect: before a request, within it, and before the response', async () => {
  const request = JSON.stringify({ key });
  const head = `POST /v2/keys.verifyKey HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${rig.rootKey}\r\nContent-Type: application/json\r\nContent-Length: ${request.length}\r\n\r\n`;
  const parts = ['', head.slice(0, 50), head, `${head}${request.slice(0, 5)}`, head + request];
  const before = await usual();
  const [descriptors, memoryMb] = [rig.server.descriptors(), rig.server.memoryMb()];
  const vanished = 5_000;
  // At a limited rate, because this process also measures how other callers are served.
  async function vanish() {
    for (let made = 0; made < vanished; made += 100) {
      const some = await dial(100);
      for (const [index, socket] of some.entries()) {
        const part = parts[index % parts.length]!;
        if (part) socket.write(part);
        // Closed by a FIN or a RST.
        setImmediate(() => (index % 2 === 0 ? socket.destroy() : socket.resetAndDestroy()));
      }
      await delay(60);
    }
  }
  const [during] = await Promise.all([usual(), vanish()]);
  await untilDescriptors(descriptors, idleMs + slackMs);
  expectServed(before, during);
  expect(rig.server.memoryMb() - memoryMb).toBeLessThan(60);
  report({
    order: '10.4',
    fault: `${vanished} clients that connect and disconnect, at five points of a request, with FIN and with RST`,
    expected: 'others are served as before; descriptors and memory come back',
    measured: `${p99(before, during)}; descriptors ${descriptors} before, ${rig.server.descriptors()} after; memory ${memoryMb.toFixed(0)} and ${rig.server.memoryMb().toFixed(0)} MB`,
  });
});

test('half-open connections: the client sends nothing more, and neither reads nor closes', async () => {
  const request = JSON.stringify({ key });
  const head = `POST /v2/keys.verifyKey HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${rig.rootKey}\r\nContent-Type: application/json\r\nContent-Length: ${request.length}\r\n\r\n`;
  const before = await usual();
  const descriptors = rig.server.descriptors();
  const all = await dial(1_000);
  const startedAt = performance.now();
  for (const [index, socket] of all.entries()) {
    socket.pause();
    socket.write([head + request, head, head.slice(0, 20)][index % 3]!);
    // Half of them have shut down their own side, as a proxy may do; the others are silent.
    if (index % 2 === 0) socket.end();
  }
  const during = await usual();
  await untilDescriptors(descriptors, idleMs + slackMs);
  const tookS = (performance.now() - startedAt) / 1000;
  expectServed(before, during);
  report({
    order: '10.4',
    fault:
      '1 000 half-open connections, before, within and after a request, of which half have shut down their own side',
    expected: 'others are served as before; descriptors come back',
    measured: `${p99(before, during)}; all descriptors back after ${tookS.toFixed(0)} s`,
  });
});
