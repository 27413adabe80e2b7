/**
 * The embedded Redis, which Tollgate starts when REDIS_URL is empty: one redis-server (or valkey-server) on a Unix
 * socket in the data directory, with the append-only file on. It listens on no port. It has a process group of its own,
 * so that Ctrl-C in a terminal reaches only Tollgate, which stops it after the last response.
 *
 * One process at a time owns a data directory. If the owner is killed, its redis-server continues to run: the next
 * owner shuts it down cleanly and starts its own.
 */
import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { allEndedMs } from '../domain/leaseTerms.ts';
import { markComplete, takeComplete } from './complete.ts';

const replyWaitMs = 2_000;
const startWaitMs = 10_000;
const shutdownWaitMs = 30_000;
const pollMs = 20;
const restartDelayMs = { first: 100, max: 5_000 };
/** If Redis ends after this time, the delays begin again. */
const steadyAfterMs = 60_000;
/** 7.0 is the first version with hash-max-listpack-value, 7.2 the first with WAITAOF. */
const minVersion = { usual: '7.0', durable: '7.2' };
/** The shortest limit of all systems is 104 bytes, including the final zero. */
const socketPathBytesMax = 103;

export interface EmbeddedRedis {
  url: string;
  /** Whether it began with every write of the Redis before it, and is still the same process. */
  isComplete(): boolean;
  /** Stops Redis, waits until it has written everything and ended, and releases the data directory. */
  stop(): Promise<void>;
}

interface EmbeddedOptions {
  dataDir: string;
  /** The server program; by default the first of redis-server and valkey-server on the PATH that is new enough. */
  binary?: string;
  /** Redis writes to the disk before every reply, and has WAITAOF. */
  durable?: boolean;
  /** Receives messages for the operator: an orphan, a long load, an unexpected end, a restart. */
  onEvent?: (message: string) => void;
  /** A monotonic clock in milliseconds. Tests replace it. */
  monotonicMs?: () => number;
}

/**
 * Rejects when another process owns the data directory, whose pid is `owner` of the error, and when no suitable Redis
 * is installed.
 */
export async function startEmbedded({ dataDir, binary, ...options }: EmbeddedOptions): Promise<EmbeddedRedis> {
  const { durable = false, onEvent = () => {}, monotonicMs = () => performance.now() } = options;
  const program = findProgram(binary ? [binary] : ['redis-server', 'valkey-server'], durable);
  let paths: Paths;
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    paths = pathsOf(dataDir);
    makePrivate(paths.dir);
    makePrivate(paths.socketDir);
  } catch (cause) {
    throw new Error(`TOLLGATE_DATA_DIR cannot be used: ${(cause as Error).message}`, { cause });
  }

  const release = await own(paths.socketDir, dataDir);
  try {
    await shutDownOrphan(paths.socket, onEvent);
    const redis = await keepRunning({ program, paths, durable, onEvent, monotonicMs });
    const { isComplete } = redis;
    return { url: urlOf(paths.socket), isComplete, stop: () => redis.stop().finally(release) };
  } catch (error) {
    await release();
    throw fullDiskError(error as NodeJS.ErrnoException, dataDir);
  }
}

function fullDiskError(error: NodeJS.ErrnoException, dataDir: string): Error {
  if (!['ENOSPC', 'EDQUOT'].includes(error.code!)) return error;
  const problem = `The disk with TOLLGATE_DATA_DIR (${dataDir}) is full. Free space on it, and start Tollgate again.`;
  return new Error(problem, { cause: error });
}

/** Whether an embedded Redis was ever started in a data directory, or a backup was restored into it. */
export const hasData = (dataDir: string): boolean => existsSync(join(dataDir, 'redis'));

/**
 * The URL of the embedded Redis of a data directory if it runs, for programs other than the server, such as the CLI.
 */
export async function embeddedUrlIfRunning(dataDir: string): Promise<string | undefined> {
  if (!existsSync(dataDir)) return undefined;
  const { socketDir, socket } = pathsOf(dataDir);
  if (!existsSync(socket)) return undefined;
  makePrivate(socketDir);
  return isServing(reply(await ask(socket, 'PING'))) ? urlOf(socket) : undefined;
}

/**
 * Whether this is the reply to PING of a Redis that serves. One that cannot write to its disk replies with that error.
 */
const isServing = (reply: string) => /^(\+|-(?!LOADING))/.test(reply);

const urlOf = (socket: string) => `unix:${socket}`;

function findProgram(names: string[], durable: boolean): string {
  const needed = durable ? minVersion.durable : minVersion.usual;
  const tooOld: string[] = [];
  for (const name of names) {
    const { stdout } = spawnSync(name, ['--version'], { encoding: 'utf8' });
    const version = / v=(\d+\.[\d.]+)/.exec(stdout ?? '')?.[1];
    if (version && version.localeCompare(needed, 'en', { numeric: true }) >= 0) return name;
    if (version) tooOld.push(` ${name} here is ${version}.`);
  }
  throw new Error(
    `Tollgate needs ${names.join(' or ')} ${needed} or later on the PATH${durable ? ' for TOLLGATE_DURABLE=1' : ''}.${tooOld.join('')} ` +
      'Install one, or set REDIS_URL to a Redis that runs elsewhere.',
  );
}

interface Paths {
  /** Directory of the append-only file, the configuration and the log. */
  dir: string;
  /** Directory of the sockets: `dir`, or one in /tmp if the path of `dir` is too long for a socket's address. */
  socketDir: string;
  socket: string;
}

function pathsOf(dataDir: string): Paths {
  const dir = join(realpathSync(dataDir), 'redis');
  const hash = createHash('sha256').update(dir).digest('hex').slice(0, 12);
  const longestName = newOwnerName();
  const socketDir = [dir, join(realpathSync(tmpdir()), `tollgate-${hash}`)].find(
    (path) => Buffer.byteLength(join(path, longestName)) <= socketPathBytesMax,
  );
  if (!socketDir) throw new Error(`The path of ${dir} is too long for a Unix socket, and so is that of ${tmpdir()}.`);
  return { dir, socketDir, socket: join(socketDir, 'redis.sock') };
}

/** Creates a directory that no other user may enter. Throws if it belongs to another user, as it may in /tmp. */
function makePrivate(path: string) {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== process.getuid?.()) {
    throw new Error(`${path} must be a directory that belongs to the user who runs Tollgate.`);
  }
  chmodSync(path, 0o700);
}

/**
 * Calls a function whose new files no other user may read, independent of the operator's umask. Their directory is
 * private too, but they may be moved.
 */
function withPrivateUmask<Result>(create: () => Result): Result {
  const umask = process.umask(0o077);
  try {
    return create();
  } finally {
    process.umask(umask);
  }
}

const newOwnerName = () => `owner-${randomBytes(4).toString('hex')}`;

/**
 * Makes this process the owner of a directory. Returns the function that releases it. An owner is a process that
 * listens on a socket `owner-…`. The system closes it when the process ends for any reason, and unlike a pid it cannot
 * belong to another process. Each process first listens and then looks for others, so that of two at the same time at
 * least one finds the other and withdraws. Names are never reused, so that the socket of an ended owner can be removed
 * without a race.
 */
async function own(socketDir: string, dataDir: string): Promise<() => Promise<void>> {
  let rival: string | undefined;
  for (let attempt = 0; attempt < 5; attempt++) {
    const name = newOwnerName();
    const server = createServer((socket) => socket.on('error', () => {}).end(`${process.pid}`)).unref();
    withPrivateUmask(() => server.listen(join(socketDir, name)));
    await once(server, 'listening');
    const release = () => new Promise<void>((resolve) => server.close(() => resolve()));

    rival = await findOwner(socketDir, name);
    // A rival that connects between our bind and listen removes our socket. Then it is the owner.
    if (rival === undefined && existsSync(join(socketDir, name))) return release;
    await release();
    await delay(100 + Math.random() * 200);
  }
  const error = new Error(
    `The data directory ${dataDir} is in use by another Tollgate (process ${rival || 'unknown'}). ` +
      'Stop that one, or give this one a TOLLGATE_DATA_DIR of its own.',
  );
  throw Object.assign(error, { owner: rival || 'unknown' });
}

/** The pid of another owner that runs; '' if it does not send it. */
async function findOwner(socketDir: string, ownName: string): Promise<string | undefined> {
  for (const name of readdirSync(socketDir)) {
    if (!name.startsWith('owner-') || name === ownName) continue;
    const answer = await ask(join(socketDir, name));
    if (answer !== 'absent') return reply(answer);
    rmSync(join(socketDir, name), { force: true });
  }
  return undefined;
}

async function shutDownOrphan(socket: string, onEvent: (message: string) => void) {
  if ((await ask(socket, 'PING')) === 'absent') return;
  onEvent('The redis-server of an earlier Tollgate that was killed is still running. Shutting it down.');
  // NOSAVE concerns the RDB file, which is off; the append-only file is always written. It also ends a running script.
  const answer = await ask(socket, 'SHUTDOWN NOSAVE', shutdownWaitMs);
  if (answer === 'absent' || answer === 'closed') return;
  throw new Error(
    `The redis-server of an earlier Tollgate is still running on ${socket} and does not shut down` +
      `${answer === 'silent' ? '' : `: ${answer.reply.trim()}`}. Stop that process first.`,
  );
}

interface Running {
  program: string;
  paths: Paths;
  durable: boolean;
  onEvent: (message: string) => void;
  monotonicMs: () => number;
}

/** Starts Redis, and starts it again whenever it ends before `stop`. */
async function keepRunning({ program, paths, durable, onEvent, monotonicMs }: Running) {
  const stopping = new AbortController();
  let isComplete = takeComplete(paths.dir);
  let launchedAt = monotonicMs();
  let child = launch(program, paths, durable);
  // Also ends Redis if this process exits without `stop`, so that the next start finds no orphan.
  const end = () => child.kill('SIGTERM');
  process.once('exit', end);
  await untilReady(child, paths, onEvent);
  const supervision = supervise();

  async function supervise() {
    let delayMs = restartDelayMs.first;
    /** Why the last launch failed; then `child` is still the process before it. */
    let failure: string | undefined;
    for (;;) {
      const startedAt = performance.now();
      await ended(child);
      if (performance.now() - startedAt > steadyAfterMs) delayMs = restartDelayMs.first;
      if (!stopping.signal.aborted) {
        const reason = failure ?? `redis-server ended unexpectedly (${howEnded(child)}).`;
        onEvent(`${reason} Starting it again in ${delayMs} ms.`);
        await delay(delayMs, undefined, { signal: stopping.signal }).catch(() => {});
      }
      if (stopping.signal.aborted) return;
      delayMs = Math.min(delayMs * 2, restartDelayMs.max);
      isComplete = false;
      launchedAt = monotonicMs();
      try {
        child = launch(program, paths, durable);
        failure = undefined;
      } catch (error) {
        // No file descriptor, disk space or memory: temporary errors, after which Tollgate tries again.
        failure = `redis-server could not be run (${(error as Error).message}).`;
        continue;
      }
      await untilReady(child, paths, onEvent).then(
        () => onEvent('redis-server is running again.'),
        (error: Error) => stopping.signal.aborted || onEvent(error.message),
      );
    }
  }

  return {
    isComplete: () => isComplete,

    async stop() {
      stopping.abort();
      child.ref();
      const persistence = reply(await ask(paths.socket, 'INFO persistence'));
      const forgetsNothing = isComplete || monotonicMs() - launchedAt >= allEndedMs;
      end();
      await supervision;
      process.off('exit', end);
      // The exit code is 0 even if Redis could not write, for example to a full disk.
      const hasWritten = child.exitCode === 0 && persistence.includes('aof_last_write_status:ok');
      if (hasWritten && forgetsNothing) markComplete(paths.dir);
    },
  };
}

function launch(program: string, { dir, socket }: Paths, durable: boolean): ChildProcess {
  const configFile = join(dir, 'redis.conf');
  const config = configOf(dir, socket, durable);
  // On a full disk an unchanged file is still there.
  if (!existsSync(configFile) || readFileSync(configFile, 'utf8') !== config)
    writeFileSync(configFile, config, { mode: 0o600 });
  const log = openSync(logOf(dir), 'a', 0o600);
  const options: SpawnOptions = { cwd: dir, detached: true, stdio: ['ignore', log, log] };
  try {
    const child = withPrivateUmask(() => spawn(program, [configFile], options));
    // An error without a listener would end this process. `ended` and `untilReady` detect it by the missing pid.
    child.on('error', () => {}).unref();
    return child;
  } finally {
    closeSync(log);
  }
}

const logOf = (dir: string) => join(dir, 'redis.log');

const configOf = (dir: string, socket: string, durable: boolean) => `# Written by Tollgate at every start.
port 0
unixsocket ${JSON.stringify(socket)}
unixsocketperm 700
dir ${JSON.stringify(dir)}
daemonize no
logfile ""

appendonly yes
appendfsync ${durable ? 'always' : 'everysec'}
save ""
# With the times of changes, the file can be cut at one of them: docs/backup.md.
aof-timestamp-enabled yes
# An evicted record would be a key that no longer exists, or a limit that admits too much.
maxmemory-policy noeviction

# Records and windows keep the compact encodings.
hash-max-listpack-entries 128
hash-max-listpack-value 16384
zset-max-listpack-value 64

# Large records are freed by another thread: in the main one, a hash of a million fields takes 0.8 s.
lazyfree-lazy-expire yes
lazyfree-lazy-server-del yes
lazyfree-lazy-user-del yes
`;

/** Waits until Redis replies; loading its data may take any time. If it does not start, ends it and rejects. */
async function untilReady(child: ChildProcess, { dir, socket }: Paths, onEvent: (message: string) => void) {
  let loading = false;
  for (const startedAt = performance.now(); ; await delay(pollMs)) {
    if (hasEnded(child)) throw new Error(`redis-server did not start (${howEnded(child)}). ${lastLines(logOf(dir))}`);
    const answer = reply(await ask(socket, 'PING'));
    if (isServing(answer)) return;
    if (answer.startsWith('-LOADING')) {
      if (!loading) onEvent('redis-server is loading its data.');
      loading = true;
    } else if (!loading && performance.now() - startedAt > startWaitMs) {
      child.kill('SIGKILL');
      await ended(child);
      throw new Error(`redis-server did not reply within ${startWaitMs} ms of its start. ${lastLines(logOf(dir))}`);
    }
  }
}

/** A child without a pid could not be started. */
const hasEnded = (child: ChildProcess) =>
  child.pid === undefined || child.exitCode !== null || child.signalCode !== null;

const ended = (child: ChildProcess) => (hasEnded(child) ? Promise.resolve() : once(child, 'exit'));

const howEnded = (child: ChildProcess) =>
  child.pid === undefined ? 'it could not be run' : (child.signalCode ?? `exit code ${child.exitCode}`);

const lastLines = (file: string) =>
  `The last lines of ${file}:\n${readFileSync(file, 'utf8').trimEnd().split('\n').slice(-8).join('\n')}`;

/**
 * Result of a connection: no process listens, it was closed without a reply, no reply in time, or the first bytes of a
 * reply.
 */
type SocketReply = 'absent' | 'closed' | 'silent' | { reply: string };

const reply = (answer: SocketReply) => (typeof answer === 'string' ? '' : answer.reply);

/** Connects to a socket, sends a line if there is one, and waits for the first bytes of a reply. */
function ask(socketPath: string, line?: string, waitMs = replyWaitMs): Promise<SocketReply> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    const timer = setTimeout(() => finish('silent'), waitMs);
    const finish = (answer: SocketReply) => {
      clearTimeout(timer);
      resolve(answer);
      socket.destroy();
    };
    socket.on('connect', () => line && socket.write(`${line}\r\n`));
    socket.on('data', (bytes) => finish({ reply: bytes.toString() }));
    socket.on('close', () => finish('closed'));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // Only these two errors mean that no process listens. After any other error, the 'close' event decides.
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') finish('absent');
    });
  });
}
