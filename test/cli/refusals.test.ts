// Refusals on the command line: on the store and over HTTP, with the same results.

import { beforeAll, expect, test } from 'vitest';
import { timeText } from '../../src/cli/table.ts';
import { refused, runCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';

// A Redis of its own: the library counts the refusals of one minute, which other tests with other clocks would end.
const own = ownRedis();

// Rows are those of Redis: a lease has one for all of its refusals.
const app = harness(() => own.url, { leaseMs: 0, refusalBytesMax: 65_536 });
const url = served(app);
let limited: { key: string; keyId: string; apiId: string };
let disabled: { key: string; keyId: string };
interface Keyed {
  keyId: string;
}
/** Refusals of more keys than an hour has rows for at its beginning: 437. */
let stormApi: string;
let stormAt: number;
let stormKeys: readonly Keyed[];

beforeAll(async () => {
  // The command uses Redis's clock.
  stormAt = (Math.floor(Date.now() / hourMs) - 3) * hourMs;
  app.clock.now = stormAt;
  stormApi = (await app.ok('apis.createApi', { name: 'storm' })).apiId;
  const keys: Awaited<ReturnType<typeof app.createKey>>[] = [];
  const createKey = () => app.createKey({ apiId: stormApi, enabled: false });
  while (keys.length < 450) keys.push(...(await Promise.all(Array.from({ length: 5 }, createKey))));
  await Promise.all(keys.map(({ key }) => app.ok('keys.verifyKey', { key })));
  stormKeys = keys;
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

describeWays(app, url, ({ run, lines }) => {
  /** The rows, without what is noted on standard error. */
  const json = async (...args: string[]) => JSON.parse((await run([...args, '--json'])).out);
  const cells = (table: string[]) => table.map(cellsOf);
  const ofLimited = (count: number) => [
    expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    String(count),
    'RATE_LIMITED',
    limited.keyId,
    'ada',
    'requests 1 per 1m, cost 1, 0 left',
    'eu a b',
  ];
  const headings = ['TIME, UTC', 'REFUSALS', 'OUTCOME', 'KEY', 'CUSTOMER', 'PERMISSIONS ASKED', 'LIMIT', 'TAGS'];

  test('of a key, by its id or its string', async () => {
    const rows = [headings, ofLimited(4), ofLimited(1), ofLimited(1), ofLimited(1), ofLimited(1)];
    expect(cells(await lines('key', 'refusals', limited.keyId))).toEqual(rows);
    const { code, out } = await run(['key', 'refusals', '-'], `${limited.key}\n`);
    expect({ code, table: cells(out.trimEnd().split('\n')) }).toEqual({ code: 0, table: rows });
  });

  test('of all keys, filtered', async () => {
    const idsOf = async (...options: string[]) =>
      (await json('refusals', ...options)).map(({ keyId }: { keyId: string }) => keyId);
    expect(new Set((await idsOf()).slice(0, 6))).toEqual(new Set([limited.keyId, disabled.keyId]));
    expect(await idsOf('--last', '1h')).not.toContain(disabled.keyId);
    for (const outcome of ['DISABLED', 'disabled'])
      expect(await idsOf('--outcome', outcome, '--limit', '1')).toEqual([disabled.keyId]);
    const [{ time }] = await json('key', 'refusals', disabled.keyId);
    const minute = (ms: number) => new Date(ms).toISOString().slice(0, 16);
    for (const at of [minute(time), minute(time).slice(11), `${minute(time)}:59Z`])
      expect(await idsOf('--at', at)).toEqual([disabled.keyId]);
    expect(await idsOf('--at', minute(time - 60_000))).toEqual([]);
    expect(await idsOf('--at', minute(time + 60_000))).toEqual([]);
    expect(new Set(await idsOf('--owner', 'ada'))).toEqual(new Set([limited.keyId]));
    expect(new Set(await idsOf('--api', limited.apiId))).toEqual(new Set([limited.keyId]));
    expect(await idsOf('--limit', '2')).toEqual([limited.keyId, limited.keyId]);
    expect(await lines('refusals', '--owner', 'bob')).toEqual([expect.stringMatching(/^No refusals from 2.*Z\.$/)]);
    expect(cells(await lines('key', 'refusals', disabled.keyId))).toEqual([
      headings,
      [expect.any(String), '1', 'DISABLED', disabled.keyId],
    ]);
  });

  test('of a period, with what is older than REFUSAL_HOURS', async () => {
    const [{ time }] = await json('key', 'refusals', disabled.keyId);
    const text = (ms: number) => new Date(ms).toISOString().slice(0, 19);
    const from = (start: number, end: number) => ['--from', text(start), '--to', text(end)];
    const ofDisabled = ['key', 'refusals', disabled.keyId];
    expect(await json(...ofDisabled, ...from(time - 1000, time + 1000))).toHaveLength(1);
    expect(await json(...ofDisabled, ...from(time + 1000, time + 2000))).toEqual([]);
    expect(await lines(...ofDisabled, ...from(time - 2 * dayMs, time - 1.5 * dayMs))).toEqual([
      expect.stringMatching(/^Refusals before 2.*Z are no longer listed\. `tollgate usage` has their number\.$/),
    ]);
  });

  test('more rows than one request returns', async () => {
    expect(await json('refusals', '--limit', '5000')).toHaveLength(5 + 1 + 437);
    expect((await lines('refusals', '--limit', '3')).at(-1)).toBe('… and more. A higher --limit prints more.');
  });

  test('what has no row is stated, and no customer is said to have no refusals', async () => {
    const hour = stormAt;
    const period = `From ${timeText(hour)} to ${timeText(hour + hourMs)}`;
    const reason = 'Details are left out under load, and where a key is refused often. Every refusal is counted.';
    const ofStorm = ['refusals', '--api', stormApi, '--limit', '2'];
    expect((await lines(...ofStorm)).slice(3)).toEqual([
      '… and more. A higher --limit prints more.',
      `${period}: 450 refused; details of 13 were left out.`,
      reason,
    ]);
    const { out, err } = await run([...ofStorm, '--json']);
    expect(JSON.parse(out)).toHaveLength(2);
    expect(err).toBe(
      `… and more. A higher --limit prints more.\n${period}: 450 refused; details of 13 were left out.\n${reason}\n`,
    );
    const withRow = new Set(
      (await json('refusals', '--api', stormApi, '--limit', '450')).map(({ keyId }: Keyed) => keyId),
    );
    const without = stormKeys.find(({ keyId }) => !withRow.has(keyId))!.keyId;
    const minute = new Date(hour).toISOString().slice(0, 16);
    expect(await lines('key', 'refusals', without, '--at', minute)).toEqual([
      `No details of refusals from ${timeText(hour)} to ${timeText(hour + 60_000)}.`,
      `${period}: 1 refused; details of 1 were left out.`,
      reason,
    ]);
  });

  test.each([
    ['an unknown outcome', ['refusals', '--outcome', 'NO'], 'outcome'],
    ['a limit of 0', ['refusals', '--limit', '0'], '--limit must be at least 1'],
    ['a malformed duration', ['key', 'refusals', 'key_x', '--last', 'x'], 'duration'],
    ['an unknown key', ['key', 'refusals', 'key_x'], 'There is no such key'],
    ['a key string for an id', ['key', 'refusals', 'pay_x'], '<keyId> must '],
    ['two periods', ['refusals', '--at', '14:03', '--last', '1h'], '--at'],
    ['a minute and a period', ['key', 'refusals', 'key_x', '--at', '14:03', '--from', '14:00'], '--at'],
    ['a period that ends before it starts', ['refusals', '--from', '2026-11-22', '--to', '2026-11-21'], '--from'],
    ['an API that does not exist', ['refusals', '--api', 'api_x'], 'There is no API'],
  ])('an error for %s', async (_title, args, what) => {
    await refused(run(args), what);
  });
});

test('a root key that may read analytics only is enough', async () => {
  const { keyId } = await app.createKey();
  const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: await app.createRootKey(['api.*.read_analytics']) };
  expect(await runCli(['key', 'refusals', keyId], env)).toMatchObject({ code: 0, err: '' });
});
