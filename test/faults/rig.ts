// A redis-server and the built server as processes of their own, requests to them from outside, and what both cost.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import type { OperationName } from '../../src/operations/index.ts';
import { cliActor } from '../../src/store/rootKeys.ts';
import { openStore } from '../../src/store/store.ts';
import { type InputOf, type OutputOf, testSettings } from '../support/harness.ts';

export interface Answered {
  status: number;
  body: string;
  tookMs: number;
}

export type Rig = Awaited<ReturnType<typeof startRig>>;

/** Settings of Redis beyond those it needs, as arguments, and of the server, as variables. */
export async function startRig({ redis: redisArgs = [] as string[], env = {} as Record<string, string> } = {}) {
  spawnSync(process.execPath, ['bin/tollgate.mjs', '--help']); // Builds what has changed.
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-rig-'));
  const socket = join(dir, 'redis.sock');
  const settings = `--port 0 --unixsocket ${socket} --dir ${dir} --appendonly no --hash-max-listpack-value 16384`;
  const redis = spawn('redis-server', [...settings.split(' '), '--save', '', ...redisArgs], { stdio: 'ignore' });
  while (!existsSync(socket)) await delay(5);
  const admin = new Redis({ path: socket });

  const server = spawn(process.execPath, ['dist/main.js'], {
    env: { PATH: process.env.PATH, PORT: '0', LOG_LEVEL: 'silent', REDIS_URL: `unix:${socket}`, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let out = '';
  server.stdout.on('data', (bytes) => {
    out += bytes;
  });
  while (!/first root key.*\n/.test(out)) {
    if (server.exitCode !== null) throw new Error(`The server ended with exit code ${server.exitCode}.`);
    await delay(10);
  }
  const port = Number(/listens on \S+:(\d+)\n/.exec(out)![1]);
  const rootKey = /root_\w+/.exec(out)![0];
  // Idle connections are left before the server closes them, which would meet a request on its way.
  const agent = new Agent({ keepAlive: true, timeout: 5_000 });

  /** One request; the time counts from the call to the last byte. */
  function send(operation: OperationName, body: string | Buffer, as = rootKey, using = agent): Promise<Answered> {
    const startedAt = performance.now();
    return new Promise((resolve) => {
      const headers = {
        authorization: `Bearer ${as}`,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      };
      request(
        { host: '127.0.0.1', port, method: 'POST', path: `/v2/${operation}`, headers, agent: using },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk) => chunks.push(chunk));
          response.on('error', (error) =>
            resolve({ status: 0, body: String(error), tookMs: performance.now() - startedAt }),
          );
          response.on('end', () =>
            resolve({
              status: response.statusCode!,
              body: Buffer.concat(chunks).toString(),
              tookMs: performance.now() - startedAt,
            }),
          );
        },
      )
        // No answer at all is an answer that no promise allows.
        .on('error', (error) => resolve({ status: 0, body: String(error), tookMs: performance.now() - startedAt }))
        .end(body);
    });
  }

  /** The data of a call that must succeed. */
  async function ok<Name extends OperationName>(
    name: Name,
    input: InputOf<Name>,
    as = rootKey,
  ): Promise<OutputOf<Name>> {
    const { status, body } = await send(name, JSON.stringify(input), as);
    if (status !== 200) throw new Error(`${name}: ${status} ${body.slice(0, 300)}`);
    return JSON.parse(body).data;
  }

  const openBeside = () => openStore({ ...testSettings, url: `unix:${socket}`, commandTimeoutMs: 60_000 });

  /** Another workspace's root key, which may do everything there. */
  async function createWorkspace(): Promise<string> {
    const store = await openBeside();
    const { workspaceId } = await store.workspaces.create('another');
    const { key, start } = createRootKeyString(workspaceId);
    await store.rootKeys.create(workspaceId, { digest: digestOf(key), start, permissions: ['*'] }, cliActor);
    await store.close();
    return key;
  }

  return {
    dir,
    port,
    rootKey,
    url: `unix:${socket}`,
    admin,
    server: processOf(server),
    redis: processOf(redis),
    send,
    ok,
    createWorkspace,
    async stop() {
      agent.destroy();
      server.kill('SIGKILL');
      if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
      admin.disconnect();
      redis.kill('SIGKILL');
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

function processOf(child: ChildProcess) {
  const { pid } = child;
  return {
    pid: pid!,
    alive: () => child.exitCode === null && child.signalCode === null,
    /** Memory in MB. */
    memoryMb: () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024,
    /** Open file descriptors. */
    descriptors: () => readdirSync(`/proc/${pid}/fd`).length,
    /** Processor time used so far, in microseconds, of all threads. */
    cpuUs: () =>
      readdirSync(`/proc/${pid}/task`).reduce(
        (sum, thread) =>
          sum + Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1000,
        0,
      ),
  };
}

/** The value that so many of a hundred do not exceed. */
export function percentile(values: readonly number[], of: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil((of / 100) * sorted.length) - 1)] ?? Number.NaN;
}

/** Starts something so many times a second, whatever becomes of it: an open loop. Resolves when all of it has ended. */
export async function atRate<Result>(
  perSecond: number,
  seconds: number,
  start: () => Promise<Result>,
): Promise<Result[]> {
  const results: Promise<Result>[] = [];
  const startedAt = performance.now();
  for (let elapsed = 0; elapsed < seconds * 1000; elapsed = performance.now() - startedAt) {
    while (results.length < (perSecond * elapsed) / 1000) results.push(start());
    await delay(2);
  }
  return Promise.all(results);
}
