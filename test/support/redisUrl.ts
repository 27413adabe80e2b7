// The address of the Redis that test/support/redis.ts starts.

import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    redisUrl: string;
  }
}

export const databases = 64;

/** For use inside tests: the URL of that Redis, with the database of this vitest worker. */
export function testRedisUrl(): string {
  const database = Number(process.env.VITEST_POOL_ID) % databases;
  const url = inject('redisUrl');
  if (url.includes('+cluster:')) return url; // A Cluster has only one database.
  return url.startsWith('unix:') ? `${url}?db=${database}` : `${url}/${database}`;
}
