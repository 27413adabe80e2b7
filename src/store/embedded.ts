/**
 * The Redis that Tollgate runs itself when it is given none: one redis-server (or valkey-server) on a Unix socket below
 * the data directory, with the append-only file on. It listens on no port. It has a process group of its own, so that
 * Ctrl-C in a terminal reaches only us, and we stop it after the last answer.
 *
 * One process at a time owns a data directory. An owner that is killed leaves its redis-server running: the next owner
 * shuts that one down cleanly and starts its own.
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

const replyWaitMs = 2_000;
const startWaitMs = 10_000;
const shutdownWaitMs = 30_000;
const pollMs = 20;
const restartDelayMs = { first: 100, max: 5_000 };
/** A Redis that has run this long and ends is a new trouble, not the old one: the delays begin again. */
const steadyAfterMs = 60_000;
/** 7.0 is the first with hash-max-listpack-value, 7.2 the first with WAITAOF. */
const oldest = { usual: '7.0', durable: '7.2' };
/** A socket address holds 104 bytes where it holds the fewest, one of them the final zero. */
const socketPathBytesMax = 103;

export interface EmbeddedRedis {
  url: string;
  /** Ends Redis, waits until it has written everything and is gone, and gives up the data directory. */
  stop(): Promise<void>;
}

export interface EmbeddedOptions {
  dataDir: string;
  /** The server program; without it, the first of redis-server and valkey-server on the PATH that is new enough. */
  binary?: string;
  /** Writes to the disk before every answer, and can say that it did. */
  durable?: boolean;
  /** Told, in a sentence, what an operator should know of: an orphan, a long load, an unexpected end, a restart. */
  onEvent?: (message: string) => void;
}

/** Refuses when another process owns the data directory, and when there is no Redis to run. */
export async function startEmbedded({
  dataDir,
  binary,
  durable = false,
  onEvent = () => {},
}: EmbeddedOptions): Promise<EmbeddedRedis> {
  const program = findProgram(binary ? [binary] : ['redis-server', 'valkey-server'], durable);
  let place: Place;
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    place = placeOf(dataDir);
    makePrivate(place.dir);
    makePrivate(place.socketDir);
  } catch (cause) {
    throw new Error(`TOLLGATE_DATA_DIR cannot be used: ${(cause as Error).message}`, { cause });
  }

  const release = await own(place.socketDir, dataDir);
  try {
    await shutDownOrphan(place.socket, onEvent);
    const redis = await keepRunning({ program, place, durable, onEvent });
    return { url: urlOf(place.socket), stop: () => redis.stop().finally(release) };
  } catch (error) {
    await release();
    throw error;
  }
}

/** Where the Redis of a data directory is reached, if it runs. For those who come beside the server, as the CLI does. */
export async function embeddedUrlIfRunning(dataDir: string): Promise<string | undefined> {
  if (!existsSync(dataDir)) return undefined;
  const { socketDir, socket } = placeOf(dataDir);
  if (!existsSync(socket)) return undefined;
  makePrivate(socketDir);
  return reply(await ask(socket, 'PING')).startsWith('+PONG') ? urlOf(socket) : undefined;
}

const urlOf = (socket: string) => `unix:${socket}`;

function findProgram(names: string[], durable: boolean): string {
  const needed = durable ? oldest.durable : oldest.usual;
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

interface Place {
  /** Holds the append-only file, the configuration and the log. */
  dir: string;
  /** Holds the sockets: `dir`, or a directory below /tmp when the path of `dir` is too long for a socket's address. */
  socketDir: string;
  socket: string;
}

function placeOf(dataDir: string): Place {
  const dir = join(realpathSync(dataDir), 'redis');
  const hash = createHash('sha256').update(dir).digest('hex').slice(0, 12);
  const longestName = newOwnerName();
  const socketDir = [dir, join(realpathSync(tmpdir()), `tollgate-${hash}`)].find(
    (path) => Buffer.byteLength(join(path, longestName)) <= socketPathBytesMax,
  );
  if (!socketDir) throw new Error(`The path of ${dir} is too long for a Unix socket, and so is that of ${tmpdir()}.`);
  return { dir, socketDir, socket: join(socketDir, 'redis.sock') };
}

/** Makes a directory that nobody else may enter. Below /tmp, another user may have taken the name: that is refused. */
function makePrivate(path: string) {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== process.getuid?.()) {
    throw new Error(`${path} must be a directory that belongs to the user who runs Tollgate.`);
  }
  chmodSync(path, 0o700);
}

/**
 * Runs what makes files that nobody else may read, whatever the operator's umask: they lie in a private directory, and
 * stay private wherever they are moved.
 */
function privately<Made>(make: () => Made): Made {
  const umask = process.umask(0o077);
  try {
    return make();
  } finally {
    process.umask(umask);
  }
}

const newOwnerName = () => `owner-${randomBytes(4).toString('hex')}`;

/**
 * Makes this process the owner of a directory; answers with the function that gives it up. An owner is a process that
 * listens on a socket `owner-…`: the system closes it however the process ends, and no pid can be taken for another's.
 * Each announces itself first and looks for others second, so of two that come at once at least one sees the other and
 * withdraws. Names are never used twice, so what a dead owner left can be removed without a race.
 */
async function own(socketDir: string, dataDir: string): Promise<() => Promise<void>> {
  let rival: string | undefined;
  for (let attempt = 0; attempt < 5; attempt++) {
    const name = newOwnerName();
    const server = createServer((socket) => socket.on('error', () => {}).end(`${process.pid}`)).unref();
    privately(() => server.listen(join(socketDir, name)));
    await once(server, 'listening');
    const release = () => new Promise<void>((resolve) => server.close(() => resolve()));

    rival = await findOwner(socketDir, name);
    // Our own socket is gone when a rival looked at it in the instant between bind and listen. That rival owns now.
    if (rival === undefined && existsSync(join(socketDir, name))) return release;
    await release();
    await delay(100 + Math.random() * 200);
  }
  throw new Error(
    `The data directory ${dataDir} is in use by another Tollgate (process ${rival || 'unknown'}). ` +
      'Stop that one, or give this one a TOLLGATE_DATA_DIR of its own.',
  );
}

/** The pid of another living owner, empty when it does not say. */
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
  onEvent('The redis-server of an earlier Tollgate that was killed still runs. Shutting it down.');
  // NOSAVE is about the RDB file, which is off; the append-only file is always written. It also ends a running script.
  const answer = await ask(socket, 'SHUTDOWN NOSAVE', shutdownWaitMs);
  if (answer === 'absent' || answer === 'closed') return;
  throw new Error(
    `The redis-server of an earlier Tollgate still runs on ${socket} and does not shut down` +
      `${answer === 'silent' ? '' : `: ${answer.reply.trim()}`}. Stop that process first.`,
  );
}

interface Running {
  program: string;
  place: Place;
  durable: boolean;
  onEvent: (message: string) => void;
}

/** Starts Redis, and starts it again whenever it ends before `stop`. */
async function keepRunning({ program, place, durable, onEvent }: Running) {
  const stopping = new AbortController();
  let child = launch(program, place, durable);
  // However we come to exit: Redis then ends by itself, and the next start has no orphan to deal with.
  const end = () => child.kill('SIGTERM');
  process.once('exit', end);
  await untilReady(child, place, onEvent);
  const supervision = supervise();

  async function supervise() {
    let delayMs = restartDelayMs.first;
    /** Why the last launch failed, if it did: `child` is then still the one that ended before. */
    let failure: string | undefined;
    for (;;) {
      const startedAt = performance.now();
      await ended(child);
      if (performance.now() - startedAt > steadyAfterMs) delayMs = restartDelayMs.first;
      if (!stopping.signal.aborted) {
        const trouble = failure ?? `redis-server ended unexpectedly (${howEnded(child)}).`;
        onEvent(`${trouble} Starting it again in ${delayMs} ms.`);
        await delay(delayMs, undefined, { signal: stopping.signal }).catch(() => {});
      }
      if (stopping.signal.aborted) return;
      delayMs = Math.min(delayMs * 2, restartDelayMs.max);
      try {
        child = launch(program, place, durable);
        failure = undefined;
      } catch (error) {
        // No file descriptor, no room, no memory: troubles that pass, and that Tollgate must outlive.
        failure = `redis-server could not be run (${(error as Error).message}).`;
        continue;
      }
      await untilReady(child, place, onEvent).then(
        () => onEvent('redis-server runs again.'),
        (error: Error) => stopping.signal.aborted || onEvent(error.message),
      );
    }
  }

  return {
    async stop() {
      stopping.abort();
      child.ref();
      end();
      await supervision;
      process.off('exit', end);
    },
  };
}

function launch(program: string, { dir, socket }: Place, durable: boolean): ChildProcess {
  const configFile = join(dir, 'redis.conf');
  writeFileSync(configFile, configOf(dir, socket, durable), { mode: 0o600 });
  const log = openSync(logOf(dir), 'a', 0o600);
  const options: SpawnOptions = { cwd: dir, detached: true, stdio: ['ignore', log, log] };
  try {
    const child = privately(() => spawn(program, [configFile], options));
    // Without a listener an error would end the process; `ended` and `untilReady` see it by the missing pid.
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
# A record that was pushed out would be a key that is gone or a limit that forgets.
maxmemory-policy noeviction

# Records and windows stay in the compact encodings.
hash-max-listpack-entries 128
hash-max-listpack-value 16384
zset-max-listpack-value 64

# Large records are freed by another thread: in the main one, a hash of a million fields takes 0.8 s.
lazyfree-lazy-expire yes
lazyfree-lazy-server-del yes
lazyfree-lazy-user-del yes
`;

/** Throws, with the process ended, when Redis does not come up. Loading may take as long as it needs. */
async function untilReady(child: ChildProcess, { dir, socket }: Place, onEvent: (message: string) => void) {
  let loading = false;
  for (const startedAt = performance.now(); ; await delay(pollMs)) {
    if (hasEnded(child)) throw new Error(`redis-server did not start (${howEnded(child)}). ${lastLines(logOf(dir))}`);
    const answer = reply(await ask(socket, 'PING'));
    if (answer.startsWith('+PONG')) return;
    if (answer.startsWith('-LOADING')) {
      if (!loading) onEvent('redis-server is loading its data.');
      loading = true;
    } else if (!loading && performance.now() - startedAt > startWaitMs) {
      child.kill('SIGKILL');
      await ended(child);
      throw new Error(`redis-server did not answer within ${startWaitMs} ms of its start. ${lastLines(logOf(dir))}`);
    }
  }
}

/** A child without a pid never ran. */
const hasEnded = (child: ChildProcess) =>
  child.pid === undefined || child.exitCode !== null || child.signalCode !== null;

const ended = (child: ChildProcess) => (hasEnded(child) ? Promise.resolve() : once(child, 'exit'));

const howEnded = (child: ChildProcess) =>
  child.pid === undefined ? 'it could not be run' : (child.signalCode ?? `exit code ${child.exitCode}`);

const lastLines = (file: string) =>
  `The last lines of ${file}:\n${readFileSync(file, 'utf8').trimEnd().split('\n').slice(-8).join('\n')}`;

/** What became of a connection: nobody listens there, it was closed without a word, nothing came in time, or a reply. */
type Answer = 'absent' | 'closed' | 'silent' | { reply: string };

const reply = (answer: Answer) => (typeof answer === 'string' ? '' : answer.reply);

/** Connects to a socket, says one line and waits for the first words back. Too little for a Redis client. */
function ask(socketPath: string, line?: string, waitMs = replyWaitMs): Promise<Answer> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    const timer = setTimeout(() => settle('silent'), waitMs);
    const settle = (answer: Answer) => {
      clearTimeout(timer);
      resolve(answer);
      socket.destroy();
    };
    socket.on('connect', () => line && socket.write(`${line}\r\n`));
    socket.on('data', (bytes) => settle({ reply: bytes.toString() }));
    socket.on('close', () => settle('closed'));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // Only these two say that no process listens. After any other error there may be one: the close that follows counts.
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') settle('absent');
    });
  });
}
