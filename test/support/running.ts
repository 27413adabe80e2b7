// A Redis and servers as processes of their own, for tests that take things away from them.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

spawnSync(process.execPath, ['bin/tollgate.mjs', '--help']); // Builds what has changed.

export interface RunningServer {
  child: ChildProcess;
  out: string;
  err: string;
  /** Where it serves, `http://127.0.0.1:1234`. */
  url: string;
  /** Where its metrics are, if on a port of their own. */
  metricsUrl: string | undefined;
}

/** Ends a process, if it has not ended, and answers its exit code. */
export async function endOf(child: ChildProcess, signal?: NodeJS.Signals): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const exit = once(child, 'exit');
  if (signal) child.kill(signal);
  await exit;
  return child.exitCode;
}

/** The file of a socket is there a moment before anybody listens on it. */
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

/** A redis-server in a directory of its own, that can be killed and started again on the same socket. */
export async function openRedisProcess() {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const socket = join(dir, 'redis.sock');
  let child: ChildProcess;
  async function start() {
    rmSync(socket, { force: true });
    const settings = `--port 0 --unixsocket ${socket} --dir ${dir} --appendonly yes`.split(' ');
    child = spawn('redis-server', [...settings, '--save', ''], { stdio: 'ignore' });
    while (!(await reaches(socket))) await delay(5);
  }
  await start();
  return {
    url: `unix:${socket}`,
    socket,
    start,
    signal: (signal: NodeJS.Signals) => child.kill(signal),
    kill: () => endOf(child, 'SIGKILL'),
    async close() {
      await endOf(child, 'SIGKILL');
      rmSync(dir, { recursive: true });
    },
  };
}

/** The built server with these settings; resolves when it listens. Its port is any free one unless it is named. */
export async function startServer(env: Record<string, string>): Promise<RunningServer> {
  const child = spawn(process.execPath, ['dist/main.js'], { env: { PATH: process.env.PATH, PORT: '0', ...env } });
  const server: RunningServer = { child, out: '', err: '', url: '', metricsUrl: undefined };
  child.stdout.on('data', (bytes) => (server.out += bytes));
  child.stderr.on('data', (bytes) => (server.err += bytes));
  const said = env.METRICS_PORT ? /metrics are at .*\n/ : /listens on .*\n/;
  while (!said.test(server.out)) {
    if (child.exitCode !== null) throw new Error(`The server ended with exit code ${child.exitCode}: ${server.err}`);
    await delay(10);
  }
  server.url = /listens on (\S+)/.exec(server.out)![1]!;
  server.metricsUrl = /metrics are at (\S+)/.exec(server.out)?.[1];
  return server;
}

export interface Series {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Prometheus's text, read strictly: a line that is not of its format is an error. */
export function readMetrics(text: string): { series: Series[]; types: Map<string, string> } {
  const series: Series[] = [];
  const types = new Map<string, string>();
  for (const line of text.split('\n')) {
    const type = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line);
    if (type) types.set(type[1]!, type[2]!);
    if (line === '' || line.startsWith('#')) continue;
    const match = /^([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="[^"\\\n]*",?)*)\})? (\S+)$/i.exec(line);
    if (!match || Number.isNaN(Number(match[3]))) throw new Error(`not a line of metrics: ${line}`);
    const labels = [...(match[2] ?? '').matchAll(/([a-z_]+)="([^"]*)"/gi)].map(([, name, value]) => [name!, value!]);
    series.push({ name: match[1]!, labels: Object.fromEntries(labels), value: Number(match[3]) });
  }
  return { series, types };
}
