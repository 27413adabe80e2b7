// Programs as processes whose output tests read and which they stop: mainly the built server, and Redis.

import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { cliFile, mainFile } from './packed.ts';
import { isLong } from './testIf.ts';
import { valkey9 } from './valkey.ts';

/** A busy machine may take long to start a process. */
const patienceMs = 60_000;

/**
 * Compiles changed files. Call it once per test file, before the first process, so that no test waits for the build.
 */
export { buildPacked as build, cliFile, mainFile } from './packed.ts';

const toEnd: (() => unknown)[] = [];

/** Registers a function for `endAll`, which calls the last registered first. */
export const atEnd = (end: () => unknown): void => void toEnd.push(end);

/** For afterEach: stops the started processes, the last first, and removes their files. */
export async function endAll(): Promise<void> {
  while (toEnd.length > 0) await toEnd.pop()!();
}

export function temporaryDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export interface Program {
  child: ChildProcess;
  /** What it has written so far to standard output and to standard error. */
  out: string;
  err: string;
  /** Both together. */
  printed(): string;
  /** Resolves with the match of a pattern in its standard output; rejects with its output if it ends before. */
  prints(pattern: RegExp): Promise<RegExpExecArray>;
  hasEnded(): boolean;
  /** Resolves when it has ended and its output is complete: with its exit code, or null if a signal ended it. */
  ended: Promise<number | null>;
  /** Sends it a signal, if it has not ended, and resolves like `ended`. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Its standard input is empty unless `stdio` is given. */
export function run(command: string, args: readonly string[], options: SpawnOptions = {}): Program {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  let isOver = false;
  const ended = new Promise<number | null>((resolve) => {
    child.once('close', (code) => {
      isOver = true;
      resolve(code);
    });
  });
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
  const program: Program = {
    child,
    out: '',
    err: '',
    printed: () => program.out + program.err,
    async prints(pattern) {
      const giveUpAt = performance.now() + patienceMs;
      for (;;) {
        const found = pattern.exec(program.out);
        if (found) return found;
        if (isOver) throw new Error(program.printed() || `${command} ended with exit code ${child.exitCode}.`);
        if (performance.now() > giveUpAt) throw new Error(`${command} does not print ${pattern}: ${program.printed()}`);
        await delay(10);
      }
    },
    hasEnded,
    ended,
    stop(signal = 'SIGTERM') {
      // A detached process leads a group. As with Ctrl-C in a terminal, npm and the server below it both get the
      // signal.
      if (!hasEnded()) process.kill(options.detached ? -child.pid! : child.pid!, signal);
      return ended;
    },
  };
  child.stdout?.setEncoding('utf8').on('data', (text) => (program.out += text));
  child.stderr?.setEncoding('utf8').on('data', (text) => (program.err += text));
  return program;
}

/** Of this process's environment it has only the PATH. The port is any free one unless given. */
export const serverEnv = (settings: Record<string, string>) => ({ PATH: process.env.PATH, PORT: '0', ...settings });

/** The built server with these settings. */
export const runServer = (settings: Record<string, string>, words: readonly string[] = [mainFile]): Program =>
  run(process.execPath, words, { env: serverEnv(settings) });

/** The address that a program prints when it listens. */
export const addressOf = async (program: Program): Promise<string> =>
  (await program.prints(/listens on (https?:\S+)\n/))[1]!;

export const portOf = async (program: Program): Promise<number> =>
  Number((await program.prints(/listens on http:\/\/127\.0\.0\.1:(\d+)\n/))[1]);

/** The first root key, which a server prints when its store was empty. */
export const firstRootKeyOf = async (server: Program): Promise<string> =>
  (await server.prints(/printed only once: (root_\w+)\n/))[1]!;

export interface Server extends Program {
  /** Its address, `http://127.0.0.1:1234`. */
  url: string;
  port: number;
  /** The address of its metrics, if they have a port of their own. */
  metricsUrl: string | undefined;
  /** The root key that it prints when its store was empty. */
  firstRootKey(): Promise<string>;
}

/** The built server with these settings; resolves when it listens. */
export async function startServer(settings: Record<string, string>): Promise<Server> {
  const server = runServer(settings);
  atEnd(() => server.stop());
  const url = await addressOf(server);
  const metricsUrl = settings.METRICS_PORT ? (await server.prints(/^Metrics: (http\S+)\n/m))[1] : undefined;
  const firstRootKey = () => firstRootKeyOf(server);
  return Object.assign(server, { url, port: Number(new URL(url).port), metricsUrl, firstRootKey });
}

/** A server for tests of faults: it logs errors only and has a long timeout for Redis, unless `settings` has others. */
export const startTollgate = (settings: Record<string, string>) =>
  startServer({ LOG_LEVEL: 'error', REDIS_TIMEOUT_MS: '5000', ...settings });

export type Alone = Awaited<ReturnType<typeof startAlone>>;

/** The built server as operators run it, on an embedded Redis in a new directory; `umask` in octal, as in a shell. */
export async function startAlone(settings: Record<string, string> = {}, { umask }: { umask?: string } = {}) {
  const dataDir = join(temporaryDir(), 'data');
  const env = serverEnv({ TOLLGATE_DATA_DIR: dataDir, ...settings });
  const server = umask
    ? run('sh', ['-c', `umask ${umask}; exec "$0" ${mainFile}`, process.execPath], { env })
    : run(process.execPath, [mainFile], { env });
  atEnd(() => server.stop());
  const url = await addressOf(server);
  return Object.assign(server, {
    url,
    port: Number(new URL(url).port),
    rootKey: await firstRootKeyOf(server),
    dataDir,
    /** Resident memory, in bytes. */
    memory: () => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))![1]),
    /** Runs the command line on the same Redis. Returns its output. */
    cli(...args: string[]): string {
      const words = [cliFile, ...args];
      const { stdout, stderr, status } = spawnSync(process.execPath, words, { env, encoding: 'utf8' });
      if (status !== 0) throw new Error(`tollgate ${args.join(' ')}: ${stderr}`);
      return stdout;
    },
  });
}

/** The file of a socket exists shortly before its process listens. */
async function reaches(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** A redis-server on a socket in `dir`, which it does not remove, with these arguments; resolves when it listens. */
export async function runRedis(
  dir: string,
  words: readonly string[] = [],
  { program = 'redis-server', env = {} as Record<string, string> } = {},
) {
  const socket = join(dir, 'redis.sock');
  rmSync(socket, { force: true });
  const place = ['--port', '0', '--unixsocket', socket, '--dir', dir];
  const redis = run(program, [...place, '--save', '', ...words], { env: { ...process.env, ...env } });
  while (!(await reaches(socket))) {
    if (redis.hasEnded()) throw new Error(`${program} ended with exit code ${await redis.ended}: ${redis.printed()}`);
    await delay(5);
  }
  return Object.assign(redis, { socket, url: `unix:${socket}` });
}

/**
 * redis-server or valkey-server on the PATH, the first that has WAITAOF; else, in npm run test:faults, the Valkey of
 * Debian's unstable; undefined without one.
 */
export function findNewRedis(): string | undefined {
  const found = ['redis-server', 'valkey-server'].find((name) => {
    const version = / v=(\d+\.\d+)/.exec(spawnSync(name, ['--version'], { encoding: 'utf8' }).stdout ?? '')?.[1];
    return version !== undefined && Number(version) >= 7.2;
  });
  if (found || !isLong) return found;
  const valkey = valkey9();
  return 'program' in valkey ? valkey.program : undefined;
}

export interface RedisOptions {
  /** The program; `redis-server` by default. */
  program?: string;
  /** The setting appendfsync, or `off` for no append-only file. */
  fsync?: 'always' | 'everysec' | 'no' | 'off';
  env?: Record<string, string>;
}

export type RedisProcess = Awaited<ReturnType<typeof startRedis>>;

/** A Redis on a socket in `dir`, which it does not remove. */
export async function startRedis(
  dir: string,
  { program = 'redis-server', fsync = 'everysec', env }: RedisOptions = {},
) {
  const files = fsync === 'off' ? ['--appendonly', 'no'] : ['--appendonly', 'yes', '--appendfsync', fsync];
  const redis = await runRedis(dir, [...files, '--enable-debug-command', 'yes'], { program, env });
  const admin = new Redis({ path: redis.socket, retryStrategy: () => 20 });
  admin.on('error', () => {});
  atEnd(async () => {
    admin.disconnect();
    await redis.stop('SIGKILL');
  });
  const isLoaded = () =>
    admin.ping().then(
      () => true,
      () => false,
    );
  while (!(await isLoaded())) await delay(10); // It refuses commands while it loads its data.
  return Object.assign(redis, { admin });
}

/** A redis-server in a directory of its own, that can be killed and started again on the same socket. */
export async function openRedisProcess(program?: string) {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const start = () => runRedis(dir, ['--appendonly', 'yes'], { program });
  let redis = await start();
  return {
    url: redis.url,
    socket: redis.socket,
    async start() {
      redis = await start();
    },
    signal: (signal: NodeJS.Signals) => redis.child.kill(signal),
    kill: () => redis.stop('SIGKILL'),
    async close() {
      await redis.stop('SIGKILL');
      rmSync(dir, { recursive: true });
    },
  };
}
