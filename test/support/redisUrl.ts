// Where the run's Redis is, which test/support/redis.ts starts.

import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    redisUrl: string;
  }
}

export const databases = 64;

/** For use inside tests: the run's Redis, in the database of this vitest worker. */
export function testRedisUrl(): string {
  const database = Number(process.env.VITEST_POOL_ID) % databases;
  const url = inject('redisUrl');
  if (url.includes('+cluster:')) return url; // Has one database.
  return url.startsWith('unix:') ? `${url}?db=${database}` : `${url}/${database}`;
}
