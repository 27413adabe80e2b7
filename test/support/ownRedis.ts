// A redis-server for a test file, or for a group of its tests, which no other tests use.

import { afterAll, beforeAll } from 'vitest';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { openRedisProcess } from './processes.ts';

/** Call it at the top level of a test file, or of a `describe`. `program` is the path of another redis-server. */
export function ownRedis(program?: string) {
  let server: Awaited<ReturnType<typeof openRedisProcess>>;
  let redis: RedisClient;
  beforeAll(async () => {
    server = await openRedisProcess(program);
    redis = await connect(server.url, { commandTimeoutMs: 5000 });
  });
  afterAll(async () => {
    redis.disconnect();
    await server.close();
  });

  return {
    get url() {
      return server.url;
    },
    get redis() {
      return redis;
    },
    signal: (signal: NodeJS.Signals) => server.signal(signal),
  };
}
