// Starts the measured processes, reads their use of the processor and of memory, and stops them at the end, also after
// errors.
import { execFileSync, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { embeddedUrlIfRunning, startEmbedded } from '../../dist/redis/embedded.js';
import { within } from './network.mjs';

export const root = fileURLToPath(new URL('../..', import.meta.url));
/** The folder of the build that startTollgate starts, and the Node.js that runs it. */
export const program = { root, node: process.execPath };

const toStop = [];
/** Registers a function that runs at the end, the last registered first. */
export const atEnd = (stop) => toStop.unshift(stop);

/** Runs a bench. Stops everything that it started, also on Ctrl-C. */
export async function run(measure) {
  const stopAll = async () => {
    for (const stop of toStop.splice(0)) await Promise.resolve(stop()).catch((error) => console.error(error.message));
  };
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stopAll().then(() => process.exit(130)));
  try {
    await measure();
  } catch (error) {
    // The message of the bench's own errors is sufficient. Any other error is a bug, and is printed with its stack.
    console.error(error.constructor === Error ? `bench: ${error.message}` : error);
    process.exitCode = 1;
  }
  await stopAll();
}

export function temporaryDir() {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/**
 * A Redis configured as Tollgate's own: Unix socket, append-only file, fsync every second. `startMs` is the time until
 * it replied, which includes loading the file of `dataDir`.
 */
export async function startRedis(dataDir = temporaryDir()) {
  const startedAt = performance.now();
  const embedded = await startEmbedded({ dataDir, onEvent: (message) => console.error(message) });
  const startMs = performance.now() - startedAt;
  let stopping;
  const stopProcess = () => (stopping ??= embedded.stop());
  atEnd(stopProcess);
  const redis = await openRedis(embedded.url);
  const stop = () => {
    redis.client.disconnect();
    return stopProcess();
  };
  return { ...redis, startMs, stop };
}

async function openRedis(url) {
  const socket = url.slice('unix:'.length);
  const client = new Redis({ path: socket });
  atEnd(() => client.disconnect());
  const pid = Number(/process_id:(\d+)/.exec(await client.info('server'))[1]);
  return { url, socket, client, pid };
}

/** Returns a function that returns the number of a field of INFO. */
export async function infoOf({ client }) {
  const info = await client.info();
  return (field) => Number(new RegExp(`^${field}:(\\d+)`, 'm').exec(info)?.[1] ?? Number.NaN);
}

/** Waits until Redis rewrites no append-only file, and looks each `pauseMs`. Returns its INFO then. */
export async function untilNoRewrite(redis, pauseMs) {
  for (;;) {
    const info = await infoOf(redis);
    if (info('aof_rewrite_in_progress') + info('aof_rewrite_scheduled') === 0) return info;
    await delay(pauseMs);
  }
}

/** Starts a file of bench/targets/, which sends its port and ends with this process. */
export async function startTarget(file, env) {
  const path = fileURLToPath(new URL(`../targets/${file}`, import.meta.url));
  const child = fork(path, { env: { ...process.env, NODE_ENV: 'production', ...env } });
  atEnd(() => end(child));
  const message = await Promise.race([once(child, 'message'), once(child, 'exit')]);
  if (!message[0]?.port) throw new Error(`${file} did not start`);
  return { url: `http://127.0.0.1:${message[0].port}`, pid: child.pid };
}

/**
 * Starts the real server, with its own Redis unless one is given. `rootKey` is defined when the server created the
 * first one. `network` is the name of a network namespace.
 */
export async function startTollgate({ redis, env, network } = {}) {
  const dataDir = redis ? '' : temporaryDir();
  const settings = { PORT: '0', HOST: '127.0.0.1', LOG_LEVEL: 'warn', REDIS_URL: redis?.url ?? '' };
  const [command, ...words] = [...(network ? within(network) : []), program.node, join(program.root, 'dist/main.js')];
  const child = spawn(command, words, {
    env: { ...process.env, NODE_ENV: 'production', ...settings, TOLLGATE_DATA_DIR: dataDir, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  atEnd(() => end(child));
  const server = { pid: child.pid, url: undefined, rootKey: undefined, redis, stop: () => end(child) };
  const lines = createInterface({ input: child.stdout });
  for await (const line of lines) {
    server.url ??= /listens on (\S+)/.exec(line)?.[1];
    server.rootKey ??= /root_\w+/.exec(line)?.[0];
    if (server.url && (server.rootKey || redis)) break;
  }
  if (!server.url) throw new Error('Tollgate did not start');
  child.stdout.resume();
  server.redis ??= await openRedis(await embeddedUrlIfRunning(dataDir));
  return server;
}

async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await exit;
}

const isLinux = process.platform === 'linux';
const ticksPerSecond = isLinux ? Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' })) : 0;

/** The fields after the name in /proc/<pid>/stat: state, parent, … */
function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/** A process and its descendants except `except`: the workers of a server count, its Redis does not. */
export function treeOf(pid, except) {
  if (!isLinux) return [pid];
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => [Number(name), Number(statOf(name)?.[1])]);
  const tree = [pid];
  for (const member of tree) {
    for (const [child, parent] of parents) if (parent === member && child !== except) tree.push(child);
  }
  return tree;
}

/** Processor seconds of processes, with all their threads; NaN where there is no /proc. */
export function cpuSecondsOf(pids) {
  if (!isLinux) return Number.NaN;
  const ticks = pids.map(statOf).map((stat) => (stat ? Number(stat[11]) + Number(stat[12]) : 0));
  return ticks.reduce((sum, each) => sum + each, 0) / ticksPerSecond;
}

/** Resident bytes of processes. */
export function residentBytesOf(pids) {
  const kibibytes = pids.map((pid) => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]));
  return kibibytes.reduce((sum, each) => sum + each, 0) * 1024;
}

/** Processor seconds of the bench and of its finished load generators. */
function ownCpuSeconds() {
  const stat = statOf(process.pid);
  return [11, 12, 13, 14].reduce((sum, field) => sum + Number(stat[field]), 0) / ticksPerSecond;
}

/** Busy processor seconds of the whole machine. */
function machineCpuSeconds() {
  const [user, nice, system, , , irq, softirq] = readFileSync('/proc/stat', 'utf8').split('\n')[0].match(/\d+/g);
  return [user, nice, system, irq, softirq].reduce((sum, each) => sum + Number(each), 0) / ticksPerSecond;
}

/**
 * Runs `work` and returns its cost: processor seconds of the server and of Redis, and the cores that unrelated
 * processes used meanwhile. More than a tenth of a core is a disturbance.
 */
export async function costOf({ pid, redis }, work) {
  const server = treeOf(pid, redis?.pid);
  const read = () => [
    cpuSecondsOf(server),
    redis ? cpuSecondsOf([redis.pid]) : 0,
    isLinux ? ownCpuSeconds() : 0,
    isLinux ? machineCpuSeconds() : 0,
    performance.now() / 1000,
  ];
  const before = read();
  const result = await work();
  const [serverCpu, redisCpu, own, machine, seconds] = read().map((after, index) => after - before[index]);
  return { ...result, serverCpu, redisCpu, othersCores: Math.max(0, machine - own - serverCpu - redisCpu) / seconds };
}
