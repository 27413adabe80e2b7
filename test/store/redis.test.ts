import { expect, test } from 'vitest';
import { connect } from '../../src/store/redis.ts';

test.each(['cluster', 'sentinel'])('%s: a password with an @ is no part of a host, and is not told', async (kind) => {
  const told: string[] = [];
  const url = `redis+${kind}://default:sek@rit@127.0.0.1:1`;
  const failed = connect(url, { commandTimeoutMs: 200, onEvent: (message) => told.push(message) });
  await expect(failed).rejects.toThrow(/^Cannot reach Redis: (?!.*rit).*ECONNREFUSED 127\.0\.0\.1:1/);
  expect(told.join()).not.toMatch(/sek|rit/);
});
