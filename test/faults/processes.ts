// What the fault programs kill: a redis-server with files to come back from, the built server as operators run it, and
// clients on real connections that say what became of a request.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { vi } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import type { InputOf, OutputOf } from '../support/harness.ts';
import { firstRootKeyOf, portOf, run, runRedis, runServer, serverEnv } from '../support/processes.ts';

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
  const files = fsync === 'off' ? ['--appendonly', 'no'] : ['--appendonly', 'yes', '--appendfsync', fsync];
  const redis = await runRedis(dir, [...files, '--enable-debug-command', 'yes'], { program, env });
  const admin = new Redis({ path: redis.socket, retryStrategy: () => 20 });
  admin.on('error', () => {});
  toEnd.push(async () => {
    admin.disconnect();
    await redis.stop('SIGKILL');
  });
  await vi.waitFor(() => admin.ping(), waiting); // While it loads, it says so.
  return Object.assign(redis, { admin });
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

export type TollgateProcess = Awaited<ReturnType<typeof startTollgate>>;

/** The built server, patient with Redis unless told otherwise, with an embedded Redis in `TOLLGATE_DATA_DIR` or on `REDIS_URL`. */
export async function startTollgate(settings: Record<string, string>) {
  const server = runServer({ LOG_LEVEL: 'error', REDIS_TIMEOUT_MS: '5000', ...settings });
  toEnd.push(() => server.stop());
  return Object.assign(server, { port: await portOf(server), firstRootKey: () => firstRootKeyOf(server) });
}

export type Alone = Awaited<ReturnType<typeof startAlone>>;

/** The built server as operators run it, on an embedded Redis in a directory of its own; `umask` as a shell takes it. */
export async function startAlone(settings: Record<string, string> = {}, { umask }: { umask?: string } = {}) {
  const dataDir = join(temporaryDir(), 'data');
  const env = serverEnv({ TOLLGATE_DATA_DIR: dataDir, ...settings });
  const server = umask
    ? run('sh', ['-c', `umask ${umask}; exec "$0" dist/main.js`, process.execPath], { env })
    : run(process.execPath, ['dist/main.js'], { env });
  toEnd.push(() => server.stop());
  return Object.assign(server, {
    port: await portOf(server),
    rootKey: await firstRootKeyOf(server),
    dataDir,
    /** Resident memory, in bytes. */
    memory: () => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))![1]),
    /** The command line beside the server: what it prints. */
    cli(...args: string[]): string {
      const words = ['dist/cli/index.js', ...args];
      const { stdout, stderr, status } = spawnSync(process.execPath, words, { env, encoding: 'utf8' });
      if (status !== 0) throw new Error(`tollgate ${args.join(' ')}: ${stderr}`);
      return stdout;
    },
  });
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
