import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { connect } from '../../src/redis/connection.ts';
import { testRedisUrl } from '../support/redis.ts';

const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
afterAll(() => rmSync(dir, { recursive: true }));

test.each(['cluster', 'sentinel'])(
  '%s: a password with an @ is not taken for a host, and is in no message',
  async (kind) => {
    const messages: string[] = [];
    const url = `redis+${kind}://default:sek@rit@127.0.0.1:1`;
    const failed = connect(url, { commandTimeoutMs: 200, onEvent: (message) => messages.push(message) });
    await expect(failed).rejects.toThrow(/^Cannot reach Redis: (?!.*rit).*ECONNREFUSED 127\.0\.0\.1:1/);
    expect(messages.join()).not.toMatch(/sek|rit/);
  },
);

test.each([
  ['nothing', ''],
  ['a text', 'trust me'],
  ['a key', '-----BEGIN PRIVATE KEY-----\nMAo=\n-----END PRIVATE KEY-----\n'],
])('a REDIS_CA_FILE with %s is refused, and the error names it', async (_what, text) => {
  const caFile = join(dir, 'ca.pem');
  writeFileSync(caFile, text);
  await expect(connect('rediss://127.0.0.1:1', { commandTimeoutMs: 200, caFile })).rejects.toThrow(
    `The file of REDIS_CA_FILE contains no certificate: ${caFile}`,
  );
});

test('a connection has one listener of each event', async () => {
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  expect(['ready', '+node'].map((event) => redis.listenerCount(event))).toEqual([1, 1]);
  redis.disconnect();
});
