// Several Redis processes on free ports of 127.0.0.1, as a Cluster, or as master and replica with Sentinels. All files
// are in one temporary directory, which `stop` removes.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';

export interface RedisNode {
  port: number;
  process: ChildProcess;
  /** A connection to cause faults; it reconnects without end. */
  admin: Redis;
  /** Starts it again after its end, on the same files. */
  restart(): void;
}

/** A master otherwise waits five seconds for more replicas that want its data. */
const quickSync = ['--repl-diskless-sync-delay', '0'];

/** A port that was free when this resolved. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Calls `isSo` again and again until it returns true; rejects after `withinMs`. */
export async function until(what: string, withinMs: number, isSo: () => Promise<boolean>): Promise<void> {
  const startedAt = performance.now();
  while (!(await isSo().catch(() => false))) {
    if (performance.now() - startedAt > withinMs) throw new Error(`Not within ${withinMs} ms: ${what}.`);
    await delay(10);
  }
}

/**
 * Resolves when `replicas` replicas have the writes of the master. Redis reports a replica as online up to a second
 * before it sends the first write. A replica that is promoted within that time is empty.
 */
function replicated({ admin }: RedisNode, replicas: number): Promise<void> {
  return until('writes reach the replicas', 20_000, async () => {
    // A write that needs no slot and leaves no data.
    await admin.call('FUNCTION', 'FLUSH');
    return (await admin.wait(replicas, 1000)) === replicas;
  });
}

/** Starts Redis processes for a test. `stop` stops all of them. `program` starts a Redis, or a Valkey. */
export function redisNodes(program = 'redis-server') {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-nodes-'));
  const nodes: RedisNode[] = [];

  /** The program with these arguments. It tries another port if its port has been taken meanwhile. */
  async function startNode(
    configuration: (port: number) => Promise<string[]> | string[] = () => [],
    connection: (port: number) => RedisOptions = (port) => ({ port }),
  ): Promise<RedisNode> {
    for (let attempt = 0; attempt < 5; attempt++) {
      const port = await freePort();
      const home = mkdtempSync(join(dir, 'node-'));
      const words = ['--bind', '127.0.0.1', '--dir', home, '--save', '', ...(await configuration(port))];
      // A Sentinel writes to its configuration, so it needs one in a file.
      const file = join(home, 'node.conf');
      writeFileSync(file, '');
      const run = () => spawn(program, [file, '--port', String(port), ...words], { stdio: 'ignore' });
      const admin = new Redis({ ...connection(port), retryStrategy: () => 20, maxRetriesPerRequest: null });
      admin.on('error', () => {});
      const node: RedisNode = {
        port,
        process: run(),
        admin,
        restart() {
          node.process = run();
        },
      };
      nodes.push(node);
      await until(`${program} answers`, 10_000, async () => node.process.exitCode !== null || admin.status === 'ready');
      if (node.process.exitCode === null) return node;
      admin.disconnect();
    }
    throw new Error(`${program} does not start.`);
  }

  /** A Cluster of three masters, each with `replicasEach` replicas. `replicas` are in the order of their masters. */
  async function startCluster({ replicasEach = 0, nodeTimeoutMs = 2000, configuration = [] as string[] } = {}) {
    const count = 3 * (1 + replicasEach);
    const started = await Promise.all(
      Array.from({ length: count }, () =>
        startNode(async () => [
          '--cluster-enabled',
          'yes',
          '--cluster-node-timeout',
          String(nodeTimeoutMs),
          // The default is the port + 10000, which may be above 65535.
          '--cluster-port',
          String(await freePort()),
          ...quickSync,
          ...configuration,
        ]),
      ),
    );
    const masters = started.slice(0, 3);
    const replicas = started.slice(3);
    const bounds = [0, 5461, 10_923, 16_384];
    for (const [index, { admin }] of masters.entries()) {
      await admin.cluster('SET-CONFIG-EPOCH', index + 1);
      await admin.call('CLUSTER', 'ADDSLOTSRANGE', bounds[index]!, bounds[index + 1]! - 1);
    }
    for (const { port, admin } of started.slice(1)) {
      const busPort = (await admin.config('GET', 'cluster-port')) as string[];
      await started[0]!.admin.call('CLUSTER', 'MEET', '127.0.0.1', port, busPort[1]!);
    }
    const info = async ({ admin }: RedisNode) => (await admin.cluster('INFO')) as string;
    const all = async (isSo: (node: RedisNode) => Promise<boolean>) =>
      (await Promise.all(started.map(isSo))).every(Boolean);
    await until('all nodes know one another', 20_000, () =>
      all(async (node) => (await info(node)).includes(`cluster_known_nodes:${count}\r`)),
    );
    for (const [index, { admin }] of replicas.entries()) {
      await admin.cluster('REPLICATE', (await masters[index % 3]!.admin.cluster('MYID')) as string);
    }
    await until('the Cluster is well', 20_000, () =>
      all(async (node) => (await info(node)).includes('cluster_state:ok')),
    );
    await Promise.all(masters.map((master) => replicated(master, replicasEach)));
    return { masters, replicas, url: `redis+cluster://${masters.map(({ port }) => `127.0.0.1:${port}`).join(',')}` };
  }

  /** A master, its replica, and three Sentinels that watch them as `tollgate`. */
  async function startSentinels({ downAfterMs = 500, configuration = [] as string[] } = {}) {
    const master = await startNode(() => [...quickSync, ...configuration]);
    const replica = await startNode(() => [...configuration, '--replicaof', '127.0.0.1', String(master.port)]);
    await replicated(master, 1);
    const sentinels = await Promise.all(Array.from({ length: 3 }, () => startNode(() => ['--sentinel'])));
    for (const { admin } of sentinels) {
      await admin.call('SENTINEL', 'MONITOR', 'tollgate', '127.0.0.1', master.port, 2);
      await admin.call('SENTINEL', 'SET', 'tollgate', 'down-after-milliseconds', downAfterMs, 'failover-timeout', 3000);
    }
    await until('the Sentinels know one another and the replica', 20_000, async () =>
      (
        await Promise.all(
          sentinels.map(({ admin }) => admin.call('SENTINEL', 'MASTER', 'tollgate') as Promise<string[]>),
        )
      ).every((words) => {
        const value = (name: string) => words[words.indexOf(name) + 1];
        return value('num-other-sentinels') === '2' && value('num-slaves') === '1';
      }),
    );
    const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`);
    return { master, replica, sentinels, url: `redis+sentinel://${hosts.join(',')}/tollgate` };
  }

  async function stop() {
    for (const { admin } of nodes) admin.disconnect();
    await Promise.all(
      nodes.map(async ({ process }) => {
        if (process.exitCode !== null || process.signalCode !== null) return;
        process.kill('SIGKILL');
        await once(process, 'exit');
      }),
    );
    rmSync(dir, { recursive: true, force: true });
  }

  return { dir, startNode, startCluster, startSentinels, stop };
}
