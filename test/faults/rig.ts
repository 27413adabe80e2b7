// A redis-server and the built server as processes, requests to them, and their use of memory and processor.

import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { openStore } from '../../src/store.ts';
import { openClient } from '../support/client.ts';
import { testSettings } from '../support/harness.ts';
import { build, firstRootKeyOf, mainFile, portOf, run, runRedis, serverEnv } from '../support/processes.ts';

export type Rig = Awaited<ReturnType<typeof startRig>>;

/** `redis`: further arguments of redis-server. `env`: settings of the server. */
export async function startRig({ redis: redisArgs = [] as string[], env = {} as Record<string, string> } = {}) {
  build();
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-rig-'));
  const redis = await runRedis(dir, ['--appendonly', 'no', '--hash-max-listpack-value', '16384', ...redisArgs]);
  const { url } = redis;
  const admin = new Redis({ path: redis.socket });

  // Its standard error is that of this process, so that errors are visible.
  const server = run(process.execPath, [mainFile], {
    env: serverEnv({ LOG_LEVEL: 'silent', REDIS_URL: url, ...env }),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const port = await portOf(server);
  const rootKey = await firstRootKeyOf(server);
  const client = openClient(`http://127.0.0.1:${port}`, rootKey);

  const openBeside = () => openStore({ ...testSettings, url, commandTimeoutMs: 60_000 });

  /** Creates another workspace. Returns a root key of it with the grant `*`. */
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
    url,
    admin,
    server: processOf(server.child),
    redis: processOf(redis.child),
    send: client.send,
    call: client.call,
    ok: client.ok,
    createWorkspace,
    async stop() {
      client.close();
      await server.stop('SIGKILL');
      admin.disconnect();
      await redis.stop('SIGKILL');
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

/** A percentile: `of` percent of the values do not exceed it. */
export function percentile(values: readonly number[], of: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil((of / 100) * sorted.length) - 1)] ?? Number.NaN;
}

/** Starts calls at a constant rate without waiting for earlier ones (an open loop). Resolves when all have ended. */
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
