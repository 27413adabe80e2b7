// The commands that change one limit of a key or an identity: on the store and over HTTP, with the same results.

import { expect, test } from 'vitest';
import { refused, runCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness } from '../support/harness.ts';

const app = harness();
const url = served(app);

const requests = { name: 'requests', limit: 10, duration: 60_000, autoApply: true };
const exports = { name: 'exports', limit: 3, duration: 3_600_000, autoApply: false };
let made = 0;

/**
 * An identity with the limit `requests`, one key that uses it, and `own` keys with a limit of that name of their own.
 */
async function newOwner(own: number) {
  const owner = `owner.${++made}`;
  await app.ok('identities.createIdentity', { externalId: owner, ratelimits: [requests, exports] });
  const shared = await app.createKey({ externalId: owner });
  const keyIds: string[] = [];
  for (let at = 0; at < own; at++) {
    const ratelimits = [{ ...requests, limit: 100, duration: 1000 }, exports];
    keyIds.push((await app.createKey({ externalId: owner, ratelimits, name: `own ${at}` })).keyId);
  }
  return { owner, shared, keyIds };
}

const limitsOf = async (keyId: string) =>
  (await app.ok('keys.getKey', { keyId })).ratelimits!.map(({ id: _id, ...limit }) => limit);

describeWays(app, url, ({ run, lines, json }) => {
  test('a limit of a key is changed, added and removed, and the others stay', async () => {
    const { keyId } = await app.createKey({ ratelimits: [requests, exports] });
    const line = (limits: string) => [`${keyId} now has ${limits}.`];
    expect(await lines('key', 'limit', keyId, 'requests', '20')).toEqual(
      line('the limits requests 20 per 1m, exports 3 per 1h (only when named)'),
    );
    expect(await lines('key', 'limit', keyId, 'exports', '5', '1w')).toEqual(
      line('the limits requests 20 per 1m, exports 5 per 7d (only when named)'),
    );
    expect(await lines('key', 'limit', keyId, 'mails', '7', '90s')).toEqual(
      line('the limits requests 20 per 1m, exports 5 per 7d (only when named), mails 7 per 90s'),
    );
    // A limit that is checked only where it is named stays so; a new one is checked always.
    expect((await limitsOf(keyId)).map(({ autoApply }) => autoApply)).toEqual([true, false, true]);
    await refused(
      run(['key', 'limit', keyId, 'others', '7']),
      'tollgate: There is no limit others, only requests, exports, mails. Give a duration or a period to add it, such as `7 1m` or `7 --per month`.\n',
    );
    // The type stays, as the duration does.
    const slots = ['key', 'limit', keyId, 'mails', '5', '--type'];
    expect((await lines(...slots, 'concurrency'))[0]).toContain('mails 5 slots for 90s.');
    expect((await lines('key', 'limit', keyId, 'mails', '6'))[0]).toContain('mails 6 slots for 90s.');
    await refused(
      run(['key', 'limit', keyId, 'mails', '10001']),
      '<limit> must be at most 10000 for a concurrency limit',
    );
    await refused(run([...slots, 'both']), '--type must be');
    expect((await lines(...slots, 'window'))[0]).toContain('mails 5 per 90s.');
    for (const name of ['requests', 'exports', 'mails']) await lines('key', 'limit', keyId, name, 'none');
    expect(await json('key', 'limit', keyId, 'mails', 'none')).toEqual({ keyId, ratelimits: [] });
  });

  test('a quota renews by the calendar', async () => {
    const { keyId } = await app.createKey({ ratelimits: [requests] });
    const limit = (...args: string[]) => lines('key', 'limit', keyId, ...args);
    expect(await limit('tokens', '1000000', '--per', 'month')).toEqual([
      `${keyId} now has the limits requests 10 per 1m, tokens 1000000 per month.`,
    ]);
    // The period stays, as the duration does.
    expect((await limit('tokens', '5', '--from', '2026-01-31'))[0]).toContain(
      'tokens 5 per month from 2026-01-31T00:00:00Z.',
    );
    expect((await limit('tokens', '7'))[0]).toContain('tokens 7 per month from 2026-01-31T00:00:00Z.');
    expect((await limit('tokens', '7', '--per', 'day'))[0]).toContain('tokens 7 per day.');
    expect(await limitsOf(keyId)).toMatchObject([requests, { name: 'tokens', period: 'day', anchor: 0 }]);
    expect((await lines('audit', '--resource', keyId)).join('\n')).toContain('tokens 7 per day');
    expect((await lines('key', 'explain', keyId)).join('\n')).toMatch(
      /tokens of key: 0 of 7 per day, renews \d{4}-\d\d-\d\dT00:00:00Z, cost 1/,
    );
    expect((await limit('tokens', '7', '1m', '--type', 'window'))[0]).toContain('tokens 7 per 1m.');
    await refused(run(['key', 'limit', keyId, 'tokens', '7', '--per', 'fortnight']), 'tollgate: --per must be');
    await refused(run(['key', 'limit', keyId, 'tokens', '7', '1m', '--per', 'day']), '[duration] must be left out');
    await refused(run(['key', 'limit', keyId, 'tokens', '7', '--from', '2026-01-31']), '--per is required');
    await refused(run(['key', 'limit', keyId, 'tokens', '7', '--per', 'day', '--from', 'soon']), 'soon is not a time');
  });

  test('a limit applies for some time, and then the one before or none', async () => {
    const { keyId } = await app.createKey({ ratelimits: [requests] });
    const before = Date.now();
    const [line] = await lines('key', 'limit', keyId, 'requests', '500', '--for', '1d');
    const [limit] = await limitsOf(keyId);
    expect(limit).toMatchObject({ limit: 500, former: { limit: 10, duration: 60_000, autoApply: true } });
    expect(limit!.until).toBeGreaterThanOrEqual(before + dayMs);
    expect(limit!.until).toBeLessThanOrEqual(Date.now() + dayMs);
    const until = new Date(limit!.until!).toISOString().replace('.000Z', 'Z');
    expect(line).toBe(`${keyId} now has the limits requests 500 per 1m (until ${until}, then 10 per 1m).`);
    const end = `${new Date(before + 2 * dayMs).toISOString().slice(0, 10)}T00:00:00Z`;
    expect((await lines('key', 'limit', keyId, 'mails', '7', '90s', '--until', end))[0]).toContain(
      `, mails 7 per 90s (until ${end}, then none).`,
    );
    await app.ok('keys.updateKey', { keyId, ratelimits: [...(await limitsOf(keyId)), exports] });
    expect((await lines('key', 'get', keyId)).at(-1)).toContain('"exports 3 per 1h (only when named)"');
    const explained = (await lines('key', 'explain', keyId)).join('\n');
    expect(explained).toContain('\nLimits that are not checked: exports 3 per 1h (only when named).\n');
    expect(explained).toContain(`requests of key: 0 of 500 per 1m (until ${until}, then 10 per 1m), cost 1`);
    expect((await lines('audit', '--resource', keyId)).join('\n')).toContain(
      `requests 500 per 1m, autoApply, until ${until}`,
    );
    expect((await lines('key', 'limit', keyId, 'requests', '500'))[0]).toContain(`requests 500 per 1m (until ${until}`);
    expect((await lines('key', 'limit', keyId, 'requests', '500', '--always'))[0]).toContain(
      'requests 500 per 1m, mails',
    );
    for (const [wrong, message] of [
      [['600', '--for', '0s'], '--for 0s ends at once'],
      [['600', '--for', '1d', '--until', end], '--for and --until both set the end'],
      [['600', '--for', '1d', '--always'], '--always and an end contradict each other'],
      [['none', '--for', '1d'], 'A limit is removed at once'],
      [['600', '--for', '400d'], 'must be at most 366 days ahead'],
      [['600', '--until', '2001-01-01'], '--until 2001-01-01 is in the past'],
    ] as const)
      await refused(run(['key', 'limit', keyId, 'requests', ...wrong]), message);
    expect((await limitsOf(keyId))[0]).toEqual({ ...requests, limit: 500 });
  });

  test('of an identity for some time, and of its keys', async () => {
    const { owner, keyIds } = await newOwner(1);
    await lines('identity', 'limit', owner, 'requests', '500', '--for', '1d', '--keys');
    const { ratelimits } = await app.ok('identities.getIdentity', { identity: owner });
    expect(ratelimits[0]).toMatchObject({ limit: 500, former: { limit: 10, duration: 60_000 } });
    const [own] = await limitsOf(keyIds[0]!);
    expect(own).toMatchObject({ limit: 500, until: ratelimits[0]!.until, former: { limit: 100, duration: 1000 } });
    const listed = (await lines('identity', 'list')).find((line) => line.includes(owner));
    expect(listed).toContain('requests 500 per 1m (until ');
  });

  test('of an identity: without keys of their own limit there is nothing more to print', async () => {
    const { owner, shared } = await newOwner(0);
    expect(await lines('identity', 'limit', owner, 'requests', '20')).toEqual([
      `${owner} now has the limits requests 20 per 1m, exports 3 per 1h (only when named).`,
    ]);
    expect(await app.ok('keys.verifyKey', { key: shared.key })).toMatchObject({
      ratelimits: [{ name: 'requests', limit: 20 }],
    });
  });

  test('of an identity: the keys with a limit of that name of their own are printed, and not changed', async () => {
    const { owner, shared, keyIds } = await newOwner(2);
    const [first, sentence, headings, ...rows] = await lines('identity', 'limit', owner, 'requests', '20');
    expect(first).toBe(`${owner} now has the limits requests 20 per 1m, exports 3 per 1h (only when named).`);
    expect(sentence).toBe(
      '2 of its 3 keys have a limit requests of their own, which is used instead. --keys changes these too:',
    );
    expect(headings).toMatch(/^KEY +START +NAME +LIMIT$/);
    expect(rows.map(cellsOf)).toEqual(
      keyIds.map((keyId, at) => [keyId, expect.any(String), `own ${at}`, 'requests 100 per 1s']),
    );
    const printed = await json('identity', 'limit', owner, 'requests', '30');
    expect(printed.keysWithOwnLimit.map(({ keyId }: { keyId: string }) => keyId)).toEqual(keyIds);
    expect(printed.ratelimits[0]).toMatchObject({ name: 'requests', limit: 30 });
    for (const keyId of keyIds) expect((await limitsOf(keyId))[0]!.limit).toBe(100);
    expect(await limitsOf(shared.keyId).catch(() => 'none')).toBe('none');
  });

  test('--keys changes these too, also over several pages of keys, and no other limit', async () => {
    const { owner, shared, keyIds } = await newOwner(104);
    const [, line] = await lines('identity', 'limit', owner, 'requests', '20', '--keys');
    expect(line).toBe('Changed the limits requests of 104 of its keys, too.');
    for (const keyId of [keyIds[0]!, keyIds[103]!])
      expect(await limitsOf(keyId)).toEqual([{ ...requests, limit: 20, duration: 1000 }, exports]);
    expect(await json('identity', 'limit', owner, 'requests', '30', '2h', '--keys')).toMatchObject({
      changedKeys: expect.arrayContaining(keyIds),
    });
    expect((await limitsOf(keyIds[50]!))[0]).toEqual({ ...requests, limit: 30, duration: 7_200_000 });
    await lines('identity', 'limit', owner, 'requests', 'none', '--keys');
    expect(await limitsOf(keyIds[103]!)).toEqual([exports]);
    expect((await app.ok('keys.verifyKey', { key: shared.key })).ratelimits ?? []).toEqual([]);
  });

  test('many keys are counted, and the first 20 printed', async () => {
    const { owner } = await newOwner(23);
    const printed = await lines('identity', 'limit', owner, 'requests', '20');
    expect(printed).toHaveLength(1 + 1 + 1 + 20 + 1);
    expect(printed.at(-1)).toBe('… and 3 more. --json prints all.');
  });
});

test('the audit log of a limit whose name looks like an end, and an end that is too far away', async () => {
  const { keyId } = await app.createKey();
  const name = 'x, until 99999999999999999';
  await app.ok('keys.updateKey', { keyId, ratelimit: { name, limit: 5, duration: 60_000 } });
  const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey };
  const audit = await runCli(['audit', '--resource', keyId], env);
  expect(audit).toMatchObject({ code: 0, out: expect.stringContaining(name) });
  await refused(
    runCli(['key', 'limit', keyId, 'requests', '5', '1m', '--until', '2099-01-01'], env),
    /--until must be at most 366 days ahead/,
  );
});

test('a root key that may not read or change keys is reported, and the limit of the identity is changed', async () => {
  const { owner, keyIds } = await newOwner(1);
  const grants = ['identity.*.update_identity', 'identity.*.read_identity'];
  const runWith = async (permissions: string[], ...more: string[]) => {
    const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: await app.createRootKey(permissions) };
    return runCli(['identity', 'limit', owner, 'requests', '20', ...more], env);
  };
  expect(await runWith(grants)).toMatchObject({
    code: 0,
    out: expect.stringMatching(
      /now has .*\nWhether its keys have limits of that name of their own is not known: .*\n$/,
    ),
  });
  expect((await runWith(grants, '--keys')).code).toBe(1);
  const reading = [...grants, 'api.*.read_key', 'api.*.read_api'];
  const { code, out } = await runWith(reading, '--keys');
  expect(code).toBe(1);
  expect(out).toMatch(new RegExp(`${keyIds[0]} keeps its own limit: .*\\n$`));
  expect((await limitsOf(keyIds[0]!))[0]!.limit).toBe(100);
});
