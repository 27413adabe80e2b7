// Directories and connections that are removed and closed at the end of the file, or of the test, that opened them.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, onTestFinished } from 'vitest';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { testRedisUrl } from './redisUrl.ts';

const newDir = () => mkdtempSync(join(tmpdir(), 'tollgate-test-'));
const remove = (dir: string) => rmSync(dir, { recursive: true, force: true });

/** Call it at the top level of a test file or a `describe`. */
export function dirOfFile(): string {
  const dir = newDir();
  afterAll(() => remove(dir));
  return dir;
}

export function dirOfTest(): string {
  const dir = newDir();
  onTestFinished(() => remove(dir));
  return dir;
}

/** A connection to the Redis of the tests. Call it at the top level of a test file. */
export async function redisOfFile(url = testRedisUrl()): Promise<RedisClient> {
  const redis = await connect(url, { commandTimeoutMs: 5000 });
  afterAll(() => redis.disconnect());
  return redis;
}
