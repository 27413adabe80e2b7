// One private Redis for the whole run: a redis-server or valkey-server from the PATH on a Unix socket in a temporary
// directory, or else a container. It has no persistence. No test uses a Redis that was not started by the tests.
// With TEST_REDIS=cluster, as in the project `programs-cluster`, it is a Cluster, for tests that use a single
// workspace.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cluster } from 'ioredis';
import type { TestProject } from 'vitest/node';
import type { RedisClient } from '../../src/redis/connection.ts';
import { runRedis } from './processes.ts';
import { redisNodes } from './redisNodes.ts';
import { databases } from './redisUrl.ts';

export { testRedisUrl } from './redisUrl.ts';

/** The embedded Redis's settings for compact encodings, and no persistence. */
const settings = `--save "" --appendonly no --databases ${databases} --hash-max-listpack-value 16384`;

/** All names that match, on all nodes of a Cluster. */
export async function namesLike(redis: RedisClient | Cluster, pattern: string): Promise<Buffer[]> {
  const nodes = redis instanceof Cluster ? redis.nodes('master') : [redis];
  return (await Promise.all(nodes.map((node) => node.keysBuffer(pattern)))).flat();
}

/** vitest's globalSetup: vitest calls the returned function at the end. */
export default async function setup(project: TestProject) {
  const binary = ['redis-server', 'valkey-server'].find((name) => spawnSync(name, ['--version']).status === 0);
  const { url, stop } =
    (project.config.env?.TEST_REDIS ?? process.env.TEST_REDIS) === 'cluster'
      ? await startCluster()
      : binary
        ? await startProcess(binary)
        : await startContainer();
  project.provide('redisUrl', url);
  return stop;
}

async function startCluster() {
  const nodes = redisNodes();
  return { url: (await nodes.startCluster()).url, stop: nodes.stop };
}

async function startProcess(binary: string) {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const words = `--unixsocketperm 700 ${settings}`.split(' ').map((word) => word.replace('""', ''));
  const redis = await runRedis(dir, words, { program: binary });
  return {
    url: redis.url,
    async stop() {
      await redis.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

async function startContainer() {
  const { GenericContainer, Wait } = await import('testcontainers');
  const container = await new GenericContainer('redis:7.4-alpine')
    .withCommand(['sh', '-c', `redis-server ${settings}`])
    .withExposedPorts(6379)
    .withWaitStrategy(Wait.forLogMessage('Ready to accept connections'))
    .start();
  return {
    url: `redis://${container.getHost()}:${container.getMappedPort(6379)}`,
    stop: async () => void (await container.stop()),
  };
}
