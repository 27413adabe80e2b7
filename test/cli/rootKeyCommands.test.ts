// The commands that manage root keys: on the store and over HTTP, with the same results.

import { describe, expect, test } from 'vitest';
import { actions, grantPresets } from '../../src/domain/grants.ts';
import { presented } from '../../src/domain/keyString.ts';
import { refused, runCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { harness } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const app = harness();
const url = served(app);
// The command uses the clock of the machine.

const authenticate = (rootKey: string) => app.store.rootKeys.authenticate(presented(rootKey));
const all = async () => (await app.store.rootKeys.list(app.workspaceId, { count: 100 })).rootKeys;
const create = ['root-key', 'create'];

describeWays(app, url, ({ run, lines, json }) => {
  test('create returns one that works, with its permissions in the stored spelling', async () => {
    const permissions = ['--permission', 'apis.*.verify_key', 'api.*.create_key'];
    const created = await json(...create, ...permissions, '--name', 'gateway');
    expect(created).toMatchObject({ permissions: ['api.*.verify_key', 'api.*.create_key'] });
    expect(await authenticate(created.rootKey)).toMatchObject({
      rootKeyId: created.rootKeyId,
      grants: expect.objectContaining({ list: created.permissions }),
    });
  });

  test('list --ending has those in use that end soon', async () => {
    app.clock.now = Date.now();
    const listed = async () =>
      (await json('root-key', 'list', '--ending')).map((one: { rootKeyId: string }) => one.rootKeyId);
    const before = await listed();
    const { rootKeyId, rootKey } = await json(...create, '--for', 'gateway', '--expires', '2d');
    await json(...create, '--for', 'gateway', '--expires', '2d');
    await app.call('keys.verifyKey', { key: 'unknown' }, rootKey);
    expect(await listed()).toEqual([...before, rootKeyId]);
    for (const id of await listed()) await lines('root-key', 'revoke', id);
    expect(await lines('root-key', 'list', '--ending')).toEqual(['No root key that is in use ends soon.']);
  });

  test('create prints the key once, on a line of its own', async () => {
    expect(await lines(...create, '--permission', '*')).toEqual([
      expect.stringMatching(/^Created root key root_\w+\. It is printed only once:$/),
      expect.stringMatching(/^root_\w{16}_\w+$/),
    ]);
  });

  test.each(Object.keys(grantPresets) as (keyof typeof grantPresets)[])('create --for %s', async (preset) => {
    const created = await json(...create, '--for', preset);
    expect(created.permissions).toEqual(grantPresets[preset]);
    const more = await json(...create, '--for', preset, '--permission', 'identity.*.create_identity');
    expect(more.permissions).toEqual([...grantPresets[preset], 'identity.*.create_identity']);
  });

  test.each([
    ['2099-12-31', 4_102_358_400_000],
    ['2099-12-31T12:00Z', 4_102_401_600_000],
    ['2099-12-31T12:00:00+02:00', 4_102_394_400_000],
  ])('--expires %s is that time', async (text, expires) => {
    expect((await json(...create, '--permission', '*', '--expires', text)).expires).toBe(expires);
  });

  test.each([
    ['90m', 5_400_000],
    ['12h', 43_200_000],
    ['30d', 2_592_000_000],
    ['1w', 604_800_000],
  ])('--expires %s is that long from now', async (text, lengthMs) => {
    const beforeMs = Date.now();
    const { expires } = await json(...create, '--permission', '*', '--expires', text);
    expect(expires).toBeGreaterThanOrEqual(beforeMs + lengthMs);
    expect(expires).toBeLessThanOrEqual(Date.now() + lengthMs);
  });

  const longGrants = Array.from({ length: 300 }, (_, index) => `api.${index}${'x'.repeat(240)}.read_key`);
  test.each<[string, string[], RegExp]>([
    ['too many bytes', ['--permission', ...longGrants], /^tollgate: --permission must NOT have more than 65536 bytes/],
    ['an unknown resource', ['--permission', 'apps.*.fly'], /^tollgate: apps\.\*\.fly is not .* Resources: api, /],
    [
      'an unknown action, with the actions that there are',
      ['--permission', 'apis.*.fly'],
      /^tollgate: apis\.\*\.fly is not .* Actions of api: read_api, .*verify_key.*\.\n$/,
    ],
    ['no grants', [], /^tollgate: --permission or --for is required/],
    ['an unknown preset', ['--for', 'toString'], /^tollgate: --for must be one of gateway, reader, admin\.\n$/],
    ['an empty name', ['--permission', '*', '--name', ''], /^tollgate: --name must /],
    ...['soon', '30', '5y', '2099-12-31T12:00', '2101-01-01', '2020-01-01', '0d', '999999999999w'].map(
      (text): [string, string[], RegExp] => [
        `--expires ${text}`,
        ['--permission', '*', '--expires', text],
        /^tollgate: (--expires )?\S+ is (not|in the past).*\n$/,
      ],
    ),
  ])('create refuses %s, on one line', async (_, args, line) => {
    const before = await all();
    const { code, out, err } = await run([...create, ...args]);
    expect(out).toBe('');
    expect([1, 2]).toContain(code);
    expect(err).toMatch(line);
    expect(err.split('\n')).toHaveLength(2);
    expect((await all()).map(({ rootKeyId }) => rootKeyId)).toEqual(before.map(({ rootKeyId }) => rootKeyId));
  });

  test('list prints state, age, last use and grants, never the strings', async () => {
    const made = await json(...create, '--for', 'reader', '--name', 'support', '--expires', '2099-12-31');
    await authenticate(made.rootKey);
    const unused = await json(...create, '--permission', '*');
    const table = await lines('root-key', 'list');
    expect(table[0]).toMatch(/^ID +ROOT KEY +NAME +STATE +EXPIRES +CREATED +LAST USED +GRANTS$/);
    const rowOf = (id: string) => cellsOf(table.find((line) => line.startsWith(`${id} `))!);
    expect(rowOf(made.rootKeyId)).toEqual([
      made.rootKeyId,
      `${made.rootKey.slice(0, 26)}…`,
      'support',
      'enabled',
      '2099-12-31T00:00:00Z',
      expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      `${grantPresets.reader.slice(0, 5).join(' ')} and ${grantPresets.reader.length - 5} more`,
    ]);
    expect(rowOf(unused.rootKeyId).slice(-2)).toEqual(['never', '*']);
    expect(table.join()).not.toContain(made.rootKey);
    const listed = await json('root-key', 'list');
    expect(listed).toHaveLength((await all()).length);
    expect(listed).toContainEqual(
      expect.objectContaining({ rootKeyId: made.rootKeyId, name: 'support', permissions: grantPresets.reader }),
    );
  });

  test('revoke applies from the next request on', async () => {
    const { rootKeyId, rootKey } = await json(...create, '--permission', '*');
    expect(await json('root-key', 'revoke', rootKeyId)).toEqual({ rootKeyId });
    expect(await authenticate(rootKey)).toEqual({ refused: 'unauthorized' });
  });

  test.each(['revoke', 'rotate'])('%s of an unknown root key is an error that does not repeat it', async (command) => {
    for (const argument of ['root_1111111111111111', app.rootKey, 'x y']) {
      const { code, out, err } = await run(['root-key', command, argument]);
      expect(out).toBe('');
      expect([1, 2, 3]).toContain(code);
      expect(err).toMatch(/^tollgate: (There is no such root key\.|<rootKeyId> must ).*\n$/);
      expect(err).not.toContain(argument);
    }
  });

  test('rotate replaces name, grants and expiry, and deletes the old one', async () => {
    const old = await json(...create, '--for', 'reader', '--name', 'support', '--expires', '2099-12-31');
    const [line, rootKey] = await lines('root-key', 'rotate', old.rootKeyId);
    expect(line).toMatch(new RegExp(`^The new root key is root_\\w+\\. ${old.rootKeyId} is deleted\\. `));
    expect(await authenticate(old.rootKey)).toEqual({ refused: 'unauthorized' });
    const { rootKeyId } = (await authenticate(rootKey!)) as { rootKeyId: string };
    expect((await all()).find((one) => one.rootKeyId === rootKeyId)).toMatchObject({
      name: 'support',
      permissions: grantPresets.reader,
      expires: 4_102_358_400_000,
      enabled: true,
    });
  });

  test('rotate --grace leaves the old one as long, and never longer than it had', async () => {
    const old = await json(...create, '--permission', 'api.*.verify_key');
    const beforeMs = Date.now();
    const { rootKey, replaced, replacedExpires } = await json('root-key', 'rotate', old.rootKeyId, '--grace', '1h');
    expect(replaced).toBe(old.rootKeyId);
    expect(replacedExpires).toBeGreaterThanOrEqual(beforeMs + 3_600_000);
    expect((await all()).find((one) => one.rootKeyId === replaced)!.expires).toBe(replacedExpires);
    for (const one of [old.rootKey, rootKey]) expect(await authenticate(one)).toHaveProperty('rootKeyId');

    const ending = await json(...create, '--permission', 'api.*.verify_key', '--expires', '30m');
    const again = await json('root-key', 'rotate', ending.rootKeyId, '--grace', '1h');
    expect(again.replacedExpires).toBe(ending.expires);
  });

  test('rotate of a disabled or expired one changes nothing', async () => {
    const { rootKeyId } = await json(...create, '--permission', 'api.*.verify_key');
    await app.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
    const before = (await all()).length;
    await refused(run(['root-key', 'rotate', rootKeyId]), 'is disabled');
    expect(await all()).toHaveLength(before);
  });
});

test('the reader of the presets has every grant that reads, and none that changes', () => {
  expect(grantPresets.reader).toContain('root_key.*.read_root_key');
  const read = Object.values(actions).flatMap((names) => names.filter((name) => name.startsWith('read_')));
  expect(grantPresets.reader.map((grant) => grant.split('.')[2])).toEqual(read);
});

describe('with TOLLGATE_URL', () => {
  const envOf = (rootKey: string) => ({ TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: rootKey });

  test('a root key rotates itself', async () => {
    const own = await app.createRootKey(['*']);
    const { rootKeyId } = (await authenticate(own)) as { rootKeyId: string };
    const { code, out } = await runCli(['root-key', 'rotate', rootKeyId, '--json'], envOf(own));
    expect(code).toBe(0);
    expect(await authenticate(own)).toEqual({ refused: 'unauthorized' });
    expect(await authenticate(JSON.parse(out).rootKey)).toHaveProperty('rootKeyId');
  });

  test('rotate prints the new one if the old one could not be deleted, and fails', async () => {
    const own = await app.createRootKey(['root_key.*.read_root_key', 'root_key.*.create_root_key', 'api.*.verify_key']);
    const old = await app.ok('rootKeys.createRootKey', { permissions: ['api.*.verify_key'] });
    for (const more of [[], ['--json'], ['--grace', '1h']]) {
      const { code, out, err } = await runCli(['root-key', 'rotate', old.rootKeyId, ...more], envOf(own));
      expect(code).toBe(1);
      const [rootKey] = /root_\w{16}_\w+/.exec(out)!;
      for (const one of [old.key, rootKey]) expect(await authenticate(one)).toHaveProperty('rootKeyId');
      expect(more[0] === '--json' ? err : out).toMatch(
        / was not (deleted|changed): .*root-key revoke root_\w{16}`\.\n/,
      );
    }
  });

  test('create grants only what the caller has', async () => {
    const own = await app.createRootKey(['root_key.*.create_root_key', 'api.*.verify_key']);
    await refused(runCli(['root-key', 'create', '--for', 'admin'], envOf(own)), /^tollgate: The root key lacks \*/);
  });
});

test('revoke refuses the last one with every permission', async () => {
  const { workspaceId } = await app.store.workspaces.create('small');
  const runIn = (...args: string[]) =>
    runCli(['root-key', ...args, '--workspace', workspaceId], { REDIS_URL: testRedisUrl() });
  const { rootKeyId } = JSON.parse((await runIn('create', '--for', 'admin', '--json')).out);
  const { code, err } = await runIn('revoke', rootKeyId);
  expect(code).toBe(4);
  expect(err).toMatch(/^tollgate: This is the last .*`tollgate root-key create --for admin` does\.\n$/);
  expect(JSON.parse((await runIn('list', '--json')).out)).toHaveLength(1);
  // Rotation replaces it, as the new one is made first.
  expect((await runIn('rotate', rootKeyId)).code).toBe(0);
});

test('list and rotate read beyond the first page', async () => {
  const { workspaceId } = await app.store.workspaces.create('large');
  const actor = { rootKeyId: 'cli', operation: 'rootKeys.createRootKey', requestId: '' };
  for (let i = 0; i < 101; i++) {
    const rootKey = { digest: Buffer.from(String(i).padStart(32, '0')), start: 'root_', permissions: ['*'] };
    await app.store.rootKeys.create(workspaceId, rootKey, actor);
  }
  const runIn = (...args: string[]) =>
    runCli(['root-key', ...args, '--workspace', workspaceId], { REDIS_URL: testRedisUrl() });
  const lines = (await runIn('list')).out.trimEnd().split('\n');
  expect(lines).toHaveLength(102);
  // One of the second page is found.
  expect(await runIn('rotate', lines.at(-1)!.split(' ')[0]!)).toMatchObject({ code: 0, err: '' });
});

test('RECORDS_MAX does not keep an operator from creating a root key, and keeps from all else', async () => {
  const env = { REDIS_URL: testRedisUrl(), RECORDS_MAX: '1' };
  const runIn = (...args: string[]) => runCli([...args, '--workspace', app.workspaceId], env);
  await app.ok('apis.createApi', { name: 'one' });
  expect(await runIn('root-key', 'create', '--for', 'admin')).toMatchObject({ code: 0, err: '' });
  await refused(runIn('api', 'create', 'two'), 'RECORDS_MAX');
});
