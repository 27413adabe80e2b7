// What the fault programs kill: a redis-server with files to come back from, the built server as operators run it, and
// clients on real connections that say what became of a request.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { vi } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import type { InputOf, OutputOf } from '../support/harness.ts';

/** A machine that does other things as well may take long to start a process. */
const waiting = { timeout: 60_000, interval: 10 };

const toEnd: (() => unknown)[] = [];

/** For afterEach: ends what was started, the last first, and removes its files. */
export async function endAll(): Promise<void> {
  while (toEnd.length > 0) await toEnd.pop()!();
}

export function temporaryDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-faults-'));
  toEnd.push(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export const hasEnded = (child: ChildProcess) => child.exitCode !== null || child.signalCode !== null;

export async function kill(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  if (hasEnded(child)) return;
  const ended = once(child, 'exit');
  child.kill(signal);
  await ended;
}

/** The first redis-server or valkey-server on the PATH that knows WAITAOF, if any. */
export const newRedis = ['redis-server', 'valkey-server'].find((name) => {
  const version = / v=(\d+\.\d+)/.exec(spawnSync(name, ['--version'], { encoding: 'utf8' }).stdout ?? '')?.[1];
  return version !== undefined && Number(version) >= 7.2;
});

export interface RedisOptions {
  /** The program; `redis-server` unless named. */
  program?: string;
  /** appendfsync, or no append-only file at all. */
  fsync?: 'always' | 'everysec' | 'no' | 'off';
  env?: Record<string, string>;
}

export type RedisProcess = Awaited<ReturnType<typeof startRedis>>;

/** A Redis on a socket in a directory that outlives it. */
export async function startRedis(
  dir: string,
  { program = 'redis-server', fsync = 'everysec', env }: RedisOptions = {},
) {
  const socket = join(dir, 'redis.sock');
  rmSync(socket, { force: true });
  const files = fsync === 'off' ? ['--appendonly', 'no'] : ['--appendonly', 'yes', '--appendfsync', fsync];
  const child = spawn(
    program,
    ['--port', '0', '--unixsocket', socket, '--dir', dir, ...files, '--save', '', '--enable-debug-command', 'yes'],
    {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  const admin = new Redis({ path: socket, lazyConnect: true, retryStrategy: () => 20 });
  admin.on('error', () => {});
  toEnd.push(async () => {
    admin.disconnect();
    await kill(child);
  });
  while (!existsSync(socket)) {
    if (hasEnded(child)) throw new Error(`${program} ended with exit code ${child.exitCode}.`);
    await delay(5);
  }
  await admin.connect().catch(() => {});
  await vi.waitFor(() => admin.ping(), waiting); // While it loads, it says so.
  return { child, url: `unix:${socket}`, admin };
}

/** Whether there is a C compiler, for what is preloaded into a Redis. */
export const compiles = spawnSync('cc', ['--version']).status === 0;

/** Compiles `<name>.c` to a library in `dir`. */
export function preload(name: 'fsync' | 'clock', dir: string): string | undefined {
  if (!compiles) return undefined;
  const library = join(dir, `${name}.so`);
  const source = `test/faults/${name}.c`;
  const { status, stderr } = spawnSync('cc', ['-O1', '-shared', '-fPIC', '-o', library, source, '-ldl'], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return library;
}

/**
 * What a Redis has on its disk, as against what it has written: the loss of power that a kill is not. `env` goes to the Redis;
 * `losePower`, once it is killed, takes from its append-only file what had not reached the disk, and answers how many bytes
 * that was. Undefined where there is no C compiler.
 */
export function watchDisk(dir: string) {
  const library = preload('fsync', dir);
  const log = join(dir, 'fsync.log');
  if (!library) return undefined;
  return {
    env: { LD_PRELOAD: library, FSYNC_LOG: log },
    losePower(): number {
      const file = incrementalFile(dir);
      const lines = readFileSync(log, 'utf8').split('\n');
      const synced = Math.max(
        0,
        ...lines.filter((line) => line.endsWith(file)).map((line) => Number.parseInt(line, 10)),
      );
      const lost = readFileSync(file).length - synced;
      truncateSync(file, synced);
      return lost;
    },
  };
}

/** The append-only file that a Redis is writing to. */
export function incrementalFile(dir: string): string {
  const names = readdirSync(join(dir, 'appendonlydir')).filter((name) => name.endsWith('.incr.aof'));
  return join(dir, 'appendonlydir', names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1)!);
}

/** The build is not for a test that waits. */
export const buildServer = (): void => void spawnSync(process.execPath, ['bin/tollgate.mjs', '--help']);

export type TollgateProcess = Awaited<ReturnType<typeof startTollgate>>;

/** The built server, patient with Redis unless told otherwise, with an embedded Redis in `TOLLGATE_DATA_DIR` or on `REDIS_URL`. */
export async function startTollgate(settings: Record<string, string>) {
  const env = { PATH: process.env.PATH, PORT: '0', LOG_LEVEL: 'error', REDIS_TIMEOUT_MS: '5000', ...settings };
  const child = spawn(process.execPath, ['dist/main.js'], { env });
  let out = '';
  let err = '';
  child.stdout.on('data', (bytes) => (out += bytes));
  child.stderr.on('data', (bytes) => (err += bytes));
  toEnd.push(() => kill(child, 'SIGTERM'));
  await vi.waitFor(() => {
    if (hasEnded(child)) return;
    if (!/listens on /.test(out)) throw new Error('not yet');
  }, waiting);
  if (hasEnded(child)) throw new Error(err || `The server ended with exit code ${child.exitCode}.`);
  const port = Number(/listens on http:\/\/127\.0\.0\.1:(\d+)\n/.exec(out)![1]);
  return {
    child,
    port,
    /** Empty unless the store was: then once it is printed. */
    firstRootKey: () =>
      vi.waitFor(() => {
        const key = /shown once: (root_\w+)\n/.exec(out)?.[1];
        if (!key) throw new Error('no root key yet');
        return key;
      }, waiting),
    err: () => err,
  };
}

/** What became of a request. Status 0: the connection ended without an answer. */
export interface Answered<Data> {
  status: number;
  data: Data;
  code: string | undefined;
  tookMs: number;
}

export type Call = <Name extends OperationName>(
  name: Name,
  input: InputOf<Name>,
) => Promise<Answered<OutputOf<Name>>> & { cursor?: string };

/** A caller with connections of its own, kept open. `port` may be another from call to call. */
export function caller(port: () => number, rootKey: string) {
  const agent = new Agent({ keepAlive: true });
  toEnd.push(() => agent.destroy());
  return function call<Name extends OperationName>(
    name: Name,
    input: InputOf<Name>,
    as = rootKey,
  ): Promise<Answered<OutputOf<Name>> & { pagination: { hasMore: boolean; cursor?: string } }> {
    const startedAt = performance.now();
    return new Promise((resolve) => {
      const ended = (status: number, json?: { data?: unknown; error?: { type: string }; pagination?: unknown }) =>
        resolve({
          status,
          data: json?.data as OutputOf<Name>,
          code: json?.error?.type.split('/').at(-1),
          pagination: json?.pagination as { hasMore: boolean },
          tookMs: performance.now() - startedAt,
        });
      const headers = { authorization: `Bearer ${as}`, 'content-type': 'application/json' };
      const sent = request({ agent, port: port(), host: '127.0.0.1', method: 'POST', path: `/v2/${name}`, headers });
      sent.on('error', () => ended(0));
      sent.on('response', (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('end', () => ended(response.statusCode!, JSON.parse(Buffer.concat(chunks).toString())));
        response.on('error', () => ended(0));
        response.on('aborted', () => ended(0));
      });
      sent.end(JSON.stringify(input));
    });
  };
}
