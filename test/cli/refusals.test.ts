// Refusals on the command line: on the store and over HTTP, with the same results.

import { beforeAll, expect, test, vi } from 'vitest';
import { runCli } from '../support/cli.ts';
import { describeWays, served } from '../support/cliWays.ts';
import { harness, hourMs } from '../support/harness.ts';

vi.setConfig({ testTimeout: 60_000 });

// Rows are those of Redis: a lease has one for all of its refusals.
const app = harness(undefined, { leaseMs: 0 });
const url = served(app);
let limited: { key: string; keyId: string; apiId: string };
let disabled: { key: string; keyId: string };

beforeAll(async () => {
  // The command uses Redis's clock.
  app.clock.now = Date.now() - 2 * hourMs;
  disabled = await app.createKey({ enabled: false });
  await app.ok('keys.verifyKey', { key: disabled.key });
  app.clock.now = Date.now();
  limited = await app.createKey({
    externalId: 'ada',
    ratelimits: [{ name: 'requests', limit: 1, duration: 60_000, autoApply: true }],
  });
  for (let times = 0; times < 9; times++) await app.ok('keys.verifyKey', { key: limited.key, tags: ['eu', 'a b'] });
});

describeWays(app, url, ({ run, lines, json }) => {
  const cells = (table: string[]) => table.map((line) => line.split(/ {2,}/));
  const ofLimited = (count: number) => [
    expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    String(count),
    'RATE_LIMITED',
    limited.keyId,
    'ada',
    'requests 1/60000ms',
    'eu, a b',
  ];
  const headings = ['TIME', 'COUNT', 'OUTCOME', 'KEY', 'OWNER', 'LIMIT', 'TAGS'];

  test('of a key, by its id or its string', async () => {
    const rows = [headings, ofLimited(4), ofLimited(1), ofLimited(1), ofLimited(1), ofLimited(1)];
    expect(cells(await lines('key', 'refusals', limited.keyId))).toEqual(rows);
    const { code, out } = await run(['key', 'refusals', '-'], `${limited.key}\n`);
    expect({ code, table: cells(out.trimEnd().split('\n')) }).toEqual({ code: 0, table: rows });
  });

  test('of all keys, filtered', async () => {
    const idsOf = async (...options: string[]) =>
      (await json('refusals', ...options)).map(({ keyId }: { keyId: string }) => keyId);
    expect(new Set(await idsOf())).toEqual(new Set([limited.keyId, disabled.keyId]));
    expect(await idsOf('--last', '1h')).not.toContain(disabled.keyId);
    for (const outcome of ['DISABLED', 'disabled']) expect(await idsOf('--outcome', outcome)).toEqual([disabled.keyId]);
    const [{ time }] = await json('key', 'refusals', disabled.keyId);
    const minute = (ms: number) => new Date(ms).toISOString().slice(0, 16);
    for (const at of [minute(time), minute(time).slice(11), `${minute(time)}:59Z`])
      expect(await idsOf('--at', at)).toEqual([disabled.keyId]);
    expect(await idsOf('--at', minute(time - 60_000))).toEqual([]);
    expect(await idsOf('--at', minute(time + 60_000))).toEqual([]);
    expect(new Set(await idsOf('--owner', 'ada'))).toEqual(new Set([limited.keyId]));
    expect(new Set(await idsOf('--api', limited.apiId))).toEqual(new Set([limited.keyId]));
    expect(await idsOf('--limit', '2')).toEqual([limited.keyId, limited.keyId]);
    expect(await lines('refusals', '--owner', 'bob')).toEqual(['No refusals found. They are listed for 24 hours.']);
    expect(cells(await lines('key', 'refusals', disabled.keyId))).toEqual([
      ['TIME', 'COUNT', 'OUTCOME', 'KEY', 'OWNER', 'LIMIT', 'TAGS'],
      [expect.any(String), '1', 'DISABLED', disabled.keyId],
    ]);
  });

  test.each([
    ['an unknown outcome', ['refusals', '--outcome', 'NO'], 'outcome'],
    ['too large a limit', ['refusals', '--limit', '1001'], 'limit'],
    ['a malformed duration', ['key', 'refusals', 'key_x', '--last', 'x'], 'duration'],
    ['an unknown key', ['key', 'refusals', 'key_x'], 'There is no such key'],
    ['a key string for an id', ['key', 'refusals', 'pay_x'], '<keyId> must '],
    ['two periods', ['refusals', '--at', '14:03', '--last', '1h'], '--at'],
  ])('an error for %s', async (_title, args, what) => {
    const { code, err } = await run(args);
    expect(code).toBe(1);
    expect(err).toContain(what);
  });
});

test('a root key that may read analytics only is enough', async () => {
  const { keyId } = await app.createKey();
  const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: await app.createRootKey(['api.*.read_analytics']) };
  expect(await runCli(['key', 'refusals', keyId], env)).toMatchObject({ code: 0, err: '' });
});
