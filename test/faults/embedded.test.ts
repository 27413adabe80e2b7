// The embedded Redis and its data are accessible to no other user of the machine, even if the operator's umask allows
// all.

import { spawnSync } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { embeddedUrlIfRunning } from '../../src/redis/embedded.ts';
import { type Alone, build, endAll, startAlone } from '../support/processes.ts';
import { report } from './report.ts';

let server: Alone;
let redis: RedisClient | undefined;

beforeAll(build, 120_000);
afterEach(async () => {
  redis?.disconnect();
  await endAll();
});

async function start() {
  server = await startAlone({}, { umask: '000' });
  // The test's temporary directory is accessible to others, so that it does not protect the files by itself.
  chmodSync(dirname(server.dataDir), 0o777);
  const socket = (await embeddedUrlIfRunning(server.dataDir))!.slice('unix:'.length);
  redis = await connect(`unix:${socket}`, { commandTimeoutMs: 10_000 });
  const pid = Number(/process_id:(\d+)/.exec(await redis.info('server'))![1]);
  return { socket, pid };
}

/** Where a process listens or is bound: TCP and UDP addresses as the kernel writes them, and paths of Unix sockets. */
function boundOf(pid: number) {
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return []; // Closed meanwhile.
      }
    }),
  );
  const rows = (table: string) =>
    readFileSync(`/proc/net/${table}`, 'utf8')
      .trim()
      .split('\n')
      .slice(1)
      .map((line) => line.trim().split(/\s+/));
  const listening = '0A';
  return {
    tcp: ['tcp', 'tcp6'].flatMap((table) =>
      rows(table)
        .filter((row) => row[3] === listening && inodes.has(row[9]!))
        .map((row) => row[1]!),
    ),
    udp: ['udp', 'udp6'].flatMap((table) => rows(table).filter((row) => inodes.has(row[9]!))),
    unix: rows('unix')
      .filter((row) => inodes.has(row[6]!) && row[3] === '00010000')
      .map((row) => row[7]!),
  };
}

const everythingBelow = (dir: string) => [
  dir,
  ...readdirSync(dir, { recursive: true, encoding: 'utf8' }).map((path) => join(dir, path)),
];
const openToOthers = (dir: string) => everythingBelow(dir).filter((path) => (statSync(path).mode & 0o077) !== 0);

const asNobody = (program: string, ...args: string[]) =>
  spawnSync(program, args, { uid: 65_534, gid: 65_534, encoding: 'utf8', cwd: '/' });

test.skipIf(process.platform !== 'linux')('it listens on one Unix socket, which only its owner can reach', async () => {
  const { socket, pid } = await start();

  expect(boundOf(pid)).toEqual({ tcp: [], udp: [], unix: [socket] });
  // The check sees listening sockets: that of the server, where it was configured, and no other.
  const port = server.port.toString(16).toUpperCase().padStart(4, '0');
  expect(boundOf(server.child.pid!).tcp).toEqual([`0100007F:${port}`]);

  const request = {
    method: 'POST',
    headers: { authorization: `Bearer ${server.rootKey}`, 'content-type': 'application/json' },
  };
  await fetch(`http://127.0.0.1:${server.port}/v2/apis.createApi`, { ...request, body: '{"name":"written"}' });
  await redis!.call('BGREWRITEAOF');
  await vi.waitFor(async () => expect(await redis!.info('persistence')).toMatch(/aof_rewrite_in_progress:0/), {
    timeout: 10_000,
  });
  await redis!.call('SAVE');
  const all = everythingBelow(server.dataDir);
  expect(all.filter((path) => /\.(aof|rdb|conf|log|sock|manifest)$/.test(path)).length).toBeGreaterThanOrEqual(6);
  expect(openToOthers(server.dataDir)).toEqual([]);

  let tried = 0;
  if (process.getuid?.() === 0) {
    // Another user can enter the temporary directory, and nothing in it.
    expect(asNobody('ls', dirname(server.dataDir)).status).toBe(0);
    for (const path of all) {
      expect(asNobody('cat', path).stderr).toMatch(/Permission denied/);
      tried++;
    }
    expect(
      asNobody('redis-cli', '-s', socket, 'PING').stderr + asNobody('redis-cli', '-s', socket, 'PING').stdout,
    ).toMatch(/Permission denied/);
  }
  report({
    order: '12.3',
    fault: 'another user of the machine, and the network, at the embedded Redis (umask 000)',
    expected: 'it listens on no port; its socket and files are the owner’s alone',
    measured: `no TCP or UDP socket, one Unix socket; ${all.length} files and directories without a right for others; ${tried} attempts by another user refused`,
  });
});
