// Commands that change many keys, `find`, exit codes, and errors as JSON.

import { describe, expect, test } from 'vitest';
import { refused, runCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness } from '../support/harness.ts';

const app = harness();
const url = served(app);
const unknown = `key_${'1'.repeat(24)}`;

async function makeKeys(count: number) {
  const { apiId } = await app.ok('apis.createApi', { name: 'bulk' });
  const keyIds: string[] = [];
  for (let index = 0; index < count; index++) keyIds.push((await app.ok('keys.createKey', { apiId })).keyId);
  return { apiId, keyIds };
}
const stateOf = async (keyId: string) => (await app.call('keys.getKey', { keyId })).data;

describeWays(app, url, ({ run, lines, json }, way) => {
  test('keys are disabled, enabled, deleted and restored together', async () => {
    const { apiId, keyIds } = await makeKeys(3);
    await app.ok('keys.updateKey', { keyId: keyIds[1]!, enabled: false });
    expect(await lines('key', 'disable', ...keyIds)).toEqual([
      `Disabled ${keyIds[0]}.`,
      `Disabled ${keyIds[2]}.`,
      `${keyIds[1]} is unchanged: it was so before.`,
    ]);
    expect(await json('key', 'enable', ...keyIds)).toEqual({
      changed: keyIds.map((keyId) => ({ keyId, before: { enabled: false }, after: { enabled: true } })),
      unchanged: [],
      failed: [],
    });
    expect(await lines('key', 'delete', ...keyIds)).toEqual(keyIds.map((keyId) => `Deleted ${keyId}.`));
    expect(await app.ok('apis.listKeys', { apiId })).toEqual([]);
    expect(await lines('key', 'restore', ...keyIds)).toEqual(keyIds.map((keyId) => `Restored ${keyId}.`));
    expect(await app.ok('apis.listKeys', { apiId })).toHaveLength(3);
    const events = await app.ok('audit.listEvents', { operation: 'keys.changeKeys', order: 'desc', limit: 4 });
    expect(events.map(({ changes }) => changes?.[0]?.keyIds?.length)).toEqual([3, 3, 3, 2]);
    expect((await lines('audit', '--operation', 'keys.changeKeys', '--limit', '1'))[1]).toMatch(
      /deleted: true → false \(3 keys\)$/,
    );
  });

  test('keys get an expiry and a plan, which are the last argument', async () => {
    const { keyIds } = await makeKeys(2);
    const planId = `bulk-${way.replace(' ', '')}`;
    await app.ok('plans.createPlan', { planId });
    expect(await lines('key', 'plan', ...keyIds, planId)).toEqual(keyIds.map((id) => `${id} has the plan ${planId}.`));
    expect(await lines('key', 'plan', ...keyIds, 'none')).toEqual(keyIds.map((id) => `${id} has no plan.`));
    const [line] = await lines('key', 'expire', ...keyIds, '30d');
    expect(line).toMatch(new RegExp(`^${keyIds[0]} expires 20\\d\\d-\\S+\\.$`));
    const { expires } = await stateOf(keyIds[1]!);
    expect(Math.abs(expires! - Date.now() - 30 * dayMs)).toBeLessThan(60_000);
    expect(await lines('key', 'expire', ...keyIds, 'none')).toEqual(keyIds.map((id) => `${id} does not expire.`));
    expect(await stateOf(keyIds[1]!)).not.toHaveProperty('expires');
    for (const args of [
      ['expire', keyIds[0]!],
      ['plan', keyIds[0]!],
    ]) {
      const { code, err } = await run(['key', ...args]);
      expect([code, err]).toEqual([2, expect.stringMatching(/^error: missing required argument '(when|planId)'\n/)]);
    }
    for (const when of ['soon', '2020-01-01', '30'])
      expect(await run(['key', 'expire', keyIds[0]!, when])).toMatchObject({ code: 2, out: '' });
    expect(await run(['key', 'plan', keyIds[0]!, 'nowhere'])).toMatchObject({
      code: 3,
      err: 'tollgate: There is no plan "nowhere".\n',
    });
  });

  test('ids come from standard input, each once, in steps of a hundred', async () => {
    const { keyIds } = await makeKeys(120);
    const input = `${keyIds.join('\n')}\n ${keyIds[0]} \r\n`;
    const { code, out, err } = await run(['key', 'disable', '-'], input);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out.trimEnd().split('\n')).toEqual(keyIds.map((keyId) => `Disabled ${keyId}.`));
    const { code: again, out: printed } = await run(['key', 'enable', keyIds[0]!, '-'], keyIds[1]);
    expect([again, printed]).toEqual([0, `Enabled ${keyIds[0]}.\nEnabled ${keyIds[1]}.\n`]);
    for (const [bad, message] of [
      ['', 'tollgate: Standard input has no ids of keys.\n'],
      ['pay_secret', /^tollgate: <keyId> must be the id of a key/],
      ['key_1 '.repeat(200_000), /^tollgate: Standard input is too long\./],
    ] as const) {
      const outcome = run(['key', 'disable', '-'], bad);
      await refused(outcome, message);
      expect((await outcome).code).toBe(2);
      expect((await outcome).err).not.toContain('secret');
    }
  });

  test('of several keys some are changed, and the exit code says that others were not', async () => {
    const { keyIds } = await makeKeys(1);
    const { code, out, err } = await run(['key', 'disable', unknown, ...keyIds]);
    expect({ code, out, err }).toEqual({
      code: 3,
      out: `Disabled ${keyIds[0]}.\n`,
      err: `tollgate: ${unknown}: There is no such key.\n`,
    });
    expect(await run(['key', 'disable', unknown])).toEqual({
      code: 3,
      out: '',
      err: 'tollgate: There is no such key.\n',
    });
    const asJson = await run(['key', 'disable', unknown, ...keyIds, '--json']);
    expect(JSON.parse(asJson.out)).toMatchObject({ unchanged: keyIds, failed: [{ keyId: unknown }] });
    expect(JSON.parse(asJson.err)).toEqual({
      error: { message: `${unknown}: There is no such key.`, code: 'key_not_found', status: 404, exitCode: 3 },
    });
  });

  test('--permanent takes one key, and its name', async () => {
    const { keyIds } = await makeKeys(2);
    const { code, err } = await run(['key', 'delete', ...keyIds, '--permanent', '--confirm', 'a']);
    expect([code, err]).toEqual([2, 'tollgate: --permanent takes one key at a time.\n']);
    await refused(
      run(['key', 'delete', keyIds[0]!, '--permanent']),
      `tollgate: This deletes ${keyIds[0]}. To confirm it, add --confirm "${keyIds[0]}".\n`,
    );
    expect(await lines('key', 'delete', keyIds[0]!, '--permanent', '--confirm', keyIds[0]!)).toEqual([
      `Deleted ${keyIds[0]}.`,
    ]);
    expect(await run(['key', 'restore', keyIds[0]!])).toMatchObject({ code: 3 });
  });

  test('find prints what a text is', async () => {
    const name = `found ${way}`;
    const { apiId } = await app.ok('apis.createApi', { name });
    const { keyId, key } = await app.ok('keys.createKey', { apiId, prefix: 'fnd', externalId: `of.${apiId}` });
    const [heading, row, ...others] = await lines('find', keyId);
    expect(heading).toMatch(/^KIND +ID +NAME +KEY +CUSTOMER +API$/);
    expect(cellsOf(row!)).toEqual(['key', keyId, expect.stringMatching(/^fnd_/), `of.${apiId}`, apiId]);
    expect(others).toEqual([]);
    expect(await json('find', name)).toEqual([{ kind: 'api', id: apiId, name, exact: true }]);
    const whole = await run(['find', '-', '--json'], `${key}\n`);
    expect(JSON.parse(whole.out)).toMatchObject([{ kind: 'key', id: keyId, exact: true }]);
    expect(whole.out).not.toContain(key);
    expect(await lines('find', 'nothing like this')).toEqual(['Nothing found.']);
    expect(await run(['find', ''])).toMatchObject({
      code: 2,
      err: expect.stringContaining('<text> must have at least'),
    });
  });
});

describe('exit codes', () => {
  const env = (more: Record<string, string> = {}) => ({ TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey, ...more });

  test.each<[string, number, string[], (() => Promise<Record<string, string>>)?]>([
    ['help', 0, ['key', '--help']],
    ['an unknown command', 2, ['nothing']],
    ['an unknown option', 2, ['key', 'list', '--nothing']],
    ['a missing argument', 2, ['key', 'get']],
    ['an argument that cannot be read', 2, ['key', 'list', '--unused', 'soon']],
    ['an argument that the server refuses', 2, ['api', 'create', 'a']],
    ['an unknown shell', 2, ['completion', 'csh']],
    ['a record that is not there', 3, ['key', 'get', unknown]],
    [
      'no grant',
      4,
      ['api', 'list'],
      async () => ({ TOLLGATE_ROOT_KEY: await app.createRootKey(['api.*.verify_key']) }),
    ],
    ['a wrong root key', 4, ['api', 'list'], async () => ({ TOLLGATE_ROOT_KEY: 'root_1111111111111111_1' })],
    ['no server', 4, ['api', 'list'], async () => ({ TOLLGATE_URL: 'http://127.0.0.1:1' })],
    ['no Redis', 4, ['api', 'list'], async () => ({ TOLLGATE_URL: '', REDIS_URL: 'unix:/nowhere/redis.sock' })],
    ['a setting that is missing', 1, ['api', 'list'], async () => ({ TOLLGATE_ROOT_KEY: '' })],
  ])('%s: %i', async (_what, expected, args, more = async () => ({})) => {
    const { code, err } = await runCli(args, env(await more()));
    expect(code, err).toBe(expected);
    if (expected === 0) return;
    const asJson = await runCli([...args, '--json'], env(await more()));
    expect({ code: asJson.code, out: asJson.out }).toEqual({ code: expected, out: '' });
    expect(JSON.parse(asJson.err)).toMatchObject({ error: { message: expect.any(String), exitCode: expected } });
    expect(asJson.err.trimEnd()).not.toContain('\n');
  });
});
