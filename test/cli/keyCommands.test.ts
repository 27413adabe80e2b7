// The commands that manage keys: on the store and over HTTP, with the same results.

import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { runCommandLine } from '../../src/cli/commandLine.ts';
import { refused, runCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const app = harness();
const url = served(app);

/** TOLLGATE_URL may end as the addresses of operations begin. */
const urlWithPath = () => `${url()}/v2/`;

describeWays(app, urlWithPath, ({ run, lines, json }, way) => {
  test('APIs are created, renamed, listed, found and deleted', async () => {
    const name = `api of ${way}`;
    const { apiId } = await json('api', 'create', 'before');
    expect(await lines('api', 'rename', apiId, name)).toEqual([`Renamed API ${apiId} to ${name}.`]);
    expect(await json('api', 'rename', apiId, name)).toEqual({ apiId, name });
    await refused(run(['api', 'rename', 'api_unknown', name]), 'There is no API');
    const [heading, row, ...others] = await lines('api', 'list', '--search', name);
    expect(heading).toMatch(/^ID {2,}NAME {2,}KEYS {2,}CREATED$/);
    expect(row).toMatch(new RegExp(`^${apiId} +${name} +0 +\\d{4}-`));
    expect(others).toEqual([]);
    expect(await json('api', 'list', '--search', name)).toEqual([
      { id: apiId, name, keyCount: 0, createdAt: expect.any(Number) },
    ]);
    await app.ok('apis.createApi', { name: 'another' });
    expect(await lines('api', 'list', '--limit', '1')).toHaveLength(3);
    await app.ok('keys.createKey', { apiId });
    for (const protectApis of [true, false]) {
      await app.ok('workspace.updateSettings', { protectApis });
      await refused(
        run(['api', 'delete', apiId]),
        `tollgate: This deletes ${apiId}. To confirm it, add --confirm "${name}".\n`,
      );
      await refused(
        run(['api', 'delete', apiId, '--confirm', 'before']),
        `tollgate: Nothing was deleted: the name of ${apiId} is "${name}".\n`,
      );
      expect(await lines('api', 'delete', apiId, '--confirm', name)).toEqual([`Deleted API ${apiId}.`]);
      expect(await lines('api', 'list', '--search', name)).toEqual(['No APIs found.']);
      const [deletedHeading, deleted] = await lines('api', 'list', '--search', name, '--deleted');
      expect(deletedHeading).toMatch(/ {2}CAN BE RESTORED UNTIL$/);
      expect(deleted).toMatch(new RegExp(`^${apiId} +${name} +1 +\\d{4}-\\S+ +\\d{4}-\\S+$`));
      expect(await lines('api', 'restore', apiId)).toEqual([`Restored API ${apiId}.`]);
    }
    await lines('api', 'delete', apiId, '--permanent', '--confirm', name);
    await refused(
      run(['api', 'restore', apiId]),
      'tollgate: There is no such deleted API: it is not deleted, or it was removed.\n',
    );
    await refused(run(['api', 'delete', apiId, '--confirm', name]), 'There is no API');
  });

  test('keys that will expire and keys that have expired are two lists, and the state names the second', async () => {
    const { apiId } = await json('api', 'create', 'that expire');
    const make = async (expires: number) => {
      const { keyId } = await app.createKey({ apiId });
      await app.ok('keys.updateKey', { keyId, expires });
      return keyId;
    };
    const [past, soon] = [await make(Date.now() - 1000), await make(Date.now() + dayMs)];
    await make(Date.now() + 30 * dayMs);
    const listed = async (...options: string[]) =>
      (await lines('key', 'list', '--api', apiId, ...options)).slice(1).map((line) => cellsOf(line));
    expect(await listed('--expiring', '7d')).toEqual([
      [soon, expect.anything(), 'enabled', expect.anything(), 'unlimited'],
    ]);
    expect(await listed('--expired')).toEqual([[past, expect.anything(), 'expired', expect.anything(), 'unlimited']]);
    const { code, err } = await run(['key', 'list', '--expired', '--expiring', '7d']);
    expect([code, err]).toEqual([2, 'tollgate: --expired and --expiring exclude each other.\n']);
  });

  test('a rotation moves the credits, or copies them', async () => {
    const { apiId } = await json('api', 'create', 'rotated');
    const { keyId } = await app.ok('keys.createKey', { apiId, credits: { remaining: 5 } });
    const [moved] = await lines('key', 'rotate', keyId, '--grace', '1h');
    expect(moved).toContain('are those of the new key: until it expires, the old key is charged to them.');
    const { drawsOn, credits } = await json('key', 'get', keyId);
    expect({ drawsOn, credits }).toEqual({ drawsOn: moved!.match(/key_\w{24}/g)![1], credits: { remaining: 5 } });
    const [copied] = await lines('key', 'rotate', drawsOn, '--grace', '1h', '--copy-credits');
    expect(copied).toContain('can be spent twice: both keys have them.');
    expect(await json('key', 'get', drawsOn)).not.toHaveProperty('drawsOn');
  });

  test('a key is created, found, changed, rotated, revoked and restored', async () => {
    const { apiId } = await json('api', 'create', 'for keys');
    const owner = `owner.${way.replace(' ', '')}`;
    const create = ['key', 'create', '--api', apiId, '--name', 'laptop', '--prefix', 'pay', '--owner', owner];
    const created = await lines(...create, '--credits', '9', '--expires', '30d');
    expect(created).toEqual([expect.stringMatching(/^Created key key_\w{24}\. /), expect.stringMatching(/^pay_\w+$/)]);
    const key = created[1]!;
    const keyId = /key_\w{24}/.exec(created[0]!)![0];

    for (const wanted of [keyId, key.slice(0, 8), 'LAPTOP', owner]) {
      const [heading, row] = await lines('key', 'find', wanted, '--api', apiId);
      expect(heading).toMatch(/^ID +KEY +NAME +CUSTOMER +STATE +EXPIRES +CREDITS +LAST USED$/);
      expect(row, wanted).toMatch(new RegExp(`^${keyId} +pay_.{4} +laptop +${owner} +enabled +\\S+Z +9$`));
    }
    expect(JSON.parse((await run(['key', 'find', '-', '--json'], `${key}\n`)).out)).toMatchObject({ keyId });
    expect(await lines('key', 'find', 'nothing like this')).toEqual(['No keys found.']);
    expect(await json('key', 'list', '--api', apiId, '--expiring', '29d')).toEqual([]);
    expect(await json('key', 'list', '--api', apiId, '--expiring', '31d')).toMatchObject([{ keyId }]);
    expect(await json('key', 'list', '--api', apiId, '--expired')).toEqual([]);
    expect(await json('key', 'list', '--api', apiId, '--credits-below', '9')).toEqual([]);
    expect(await json('key', 'list', '--api', apiId, '--credits-below', '10')).toMatchObject([{ keyId }]);
    await app.ok('permissions.createRole', { name: `role of ${way}`, permissions: [`granted.${apiId}`] });
    await app.ok('keys.addRoles', { keyId, roles: [`role of ${way}`] });
    expect(await json('key', 'list', '--role', `role of ${way}`)).toMatchObject([{ keyId }]);
    expect(await json('key', 'list', '--permission', `granted.${apiId}`)).toMatchObject([{ keyId }]);
    expect(await json('key', 'list', '--api', apiId, '--permission', 'not.granted')).toEqual([]);
    expect((await lines('key', 'get', keyId)).join('\n')).toMatch(/\nname +laptop\n/);
    expect(await json('key', 'list', '--owner', owner)).toMatchObject([{ keyId, name: 'laptop' }]);

    await lines('key', 'disable', keyId);
    expect(await json('key', 'list', '--api', apiId, '--disabled')).toMatchObject([{ keyId }]);
    await lines('key', 'enable', keyId);
    expect(await json('key', 'list', '--api', apiId, '--disabled')).toEqual([]);

    expect(await lines('key', 'credits', keyId, '+5')).toEqual([`${keyId} has 14 credits.`]);
    expect(await lines('key', 'credits', keyId, '-4')).toEqual([`${keyId} has 10 credits.`]);
    expect(await lines('key', 'credits', keyId, '7')).toEqual([`${keyId} has 7 credits.`]);
    expect(await lines('key', 'credits', keyId, 'unlimited')).toEqual([`${keyId} has unlimited credits.`]);

    const rotated = await json('key', 'rotate', keyId, '--grace', '1h');
    expect(rotated).toEqual({ keyId: expect.stringMatching(/^key_/), key: expect.stringMatching(/^pay_/) });
    const record = await json('key', 'get', keyId);
    expect(record).toMatchObject({ successor: rotated.keyId });
    expect(record.expires).toBeLessThan(Date.now() + dayMs);
    expect(await json('key', 'list', '--api', apiId, '--rotated')).toEqual([]);
    // After the rotation, by Redis's clock.
    app.clock.now = Date.now() + 1000;
    await app.ok('keys.verifyKey', { key });
    expect(await json('key', 'list', '--api', apiId, '--rotated')).toMatchObject([{ keyId }]);

    await lines('key', 'delete', keyId);
    expect(await json('key', 'list', '--api', apiId, '--deleted')).toMatchObject([{ keyId }]);
    for (const deleted of [
      ['list', '--api', apiId, '--deleted'],
      ['find', key.slice(0, 8)],
      ['find', keyId],
    ])
      expect((await lines('key', ...deleted))[1]).toMatch(/ deleted +20\S+Z /);
    await lines('key', 'restore', keyId);
    expect(await app.ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
    expect(await run(['key', 'delete', keyId, '--permanent'])).toMatchObject({ code: 1, out: '' });
    await lines('key', 'delete', keyId, '--permanent', '--confirm', 'laptop');
    await refused(
      run(['key', 'restore', keyId]),
      'tollgate: There is no such deleted key: it is not deleted, or its record was removed.\n',
    );
    expect(await json('key', 'list', '--api', apiId, '--newest', '--limit', '1')).toMatchObject([
      { keyId: rotated.keyId },
    ]);
  });

  test('holds of a key are listed, extended, released and settled', async () => {
    const { apiId } = await json('api', 'create', 'held');
    const ratelimits = [{ name: 'tokens', limit: 1000, duration: 3_600_000 }];
    const { keyId, key } = await app.ok('keys.createKey', { apiId, credits: { remaining: 100 }, ratelimits });
    const hold = async (cost: number, ttl: number) => {
      const input = { key, credits: { cost }, ratelimits: [{ name: 'tokens', cost: 9 }], hold: { ttl } };
      return (await app.ok('keys.verifyKey', input)).hold!.id;
    };
    expect(await lines('key', 'holds', keyId)).toEqual(['No open holds found.']);
    const late = await hold(30, 600_000);
    const first = await hold(20, 60_000);
    const [heading, row, ...others] = await lines('key', 'holds', keyId);
    expect(heading).toMatch(/^HOLD +SINCE +UNTIL +THEN +CREDITS +UNITS$/);
    expect(row).toMatch(new RegExp(`^${first} +\\d{4}-\\S+Z +\\d{4}-\\S+Z +release +20 +9 of tokens$`));
    expect(others).toHaveLength(1);
    expect(await json('key', 'holds', keyId)).toMatchObject([{ id: first }, { id: late, credits: 30 }]);
    expect((await lines('key', 'holds', keyId, '--limit', '1')).at(-1)).toBe(
      '… and more. A higher --limit prints more.',
    );

    const [extended] = await lines('key', 'hold-extend', first, '15m');
    expect(extended).toMatch(new RegExp(`^${first} expires at \\d{4}-\\S+Z\\.$`));
    expect(await json('key', 'holds', keyId)).toMatchObject([{ id: late }, { id: first }]);
    expect(await json('key', 'hold-extend', first, '20m')).toMatchObject({ keyId, hold: { id: first } });
    expect(await lines('key', 'hold-release', first)).toEqual([`Released ${first}. ${keyId} has 70 credits.`]);
    expect(await json('key', 'hold-release', first)).toMatchObject({ keyId, credits: 70, late: false });
    expect(await lines('key', 'hold-settle', late, '--cost', '12', '--ratelimit', 'tokens=4')).toEqual([
      `Settled ${late}. It charged 4 of tokens. ${keyId} has 88 credits.`,
    ]);
    expect(await json('key', 'hold-settle', late)).toMatchObject({ credits: 88, late: false });
    expect(await lines('key', 'hold-settle', first, '--cost', '90')).toEqual([
      `Settled ${first}, which had been given back. It charged 9 of tokens. ${keyId} has 0 credits and a debt of 2.`,
    ]);
    expect((await lines('key', 'list', '--api', apiId))[1]).toMatch(/ 0, debt 2 /);
    expect(await lines('key', 'credits', keyId, '+1')).toEqual([`${keyId} has 0 credits and a debt of 1.`]);
    expect(await lines('key', 'holds', keyId)).toEqual(['No open holds found.']);
    for (const [args, message] of [
      [['hold-settle', late, '--cost', '13'], 'had other amounts before'],
      [['hold-settle', late, '--cost', 'x'], 'is not a whole number'],
      [['hold-settle', late, '--ratelimit', 'tokens'], '--ratelimit'],
      [['hold-extend', late, '1m'], 'has ended'],
      [['hold-extend', late, '1d1'], 'is not a duration'],
      [['hold-extend', late, '2d'], 'tollgate: <duration> must '],
      [['hold-release', `hold_${'1'.repeat(24)}.1`], 'There is no such hold'],
      [['hold-release', 'key_1'], 'tollgate: <holdId> must be the id of a hold (hold_…). `tollgate key holds` '],
      [['holds', 'pay_1'], 'tollgate: <keyId> must '],
    ] as const) {
      await refused(run(['key', ...args]), message, args.join(' '));
    }
  });

  test('a list of more than a page is read to its limit', async () => {
    const { apiId } = await json('api', 'create', 'many');
    for (let index = 0; index < 105; index++) await app.ok('keys.createKey', { apiId, meta: { a: [1, 'ü'] } });
    expect(await json('key', 'list', '--api', apiId, '--limit', '1000')).toHaveLength(105);
    const cut = await run(['key', 'list', '--api', apiId, '--json']);
    expect(JSON.parse(cut.out)).toHaveLength(100);
    expect(cut.err).toBe('… and more. Examined 100 of 105. A higher --limit prints more.\n');
    const some = await lines('key', 'list', '--api', apiId, '--limit', '103');
    expect(some).toHaveLength(105);
    expect(some.at(-1)).toBe('… and more. Examined 103 of 105. A higher --limit prints more.');
  });

  test('the limit of an identity is changed, and the audit log says who did it', async () => {
    const owner = `limited.${way.replace(' ', '')}`;
    const { identityId } = await app.ok('identities.createIdentity', { externalId: owner });
    await lines('identity', 'limit', owner, 'requests', '100', '1m');
    await lines('identity', 'limit', owner, 'requests', '300');
    expect((await lines('identity', 'list', '--search', owner))[1]).toContain('requests 300 per 1m');
    await app.ok('identities.createIdentity', { externalId: `${owner}.2` });
    expect((await lines('identity', 'list', '--search', owner, '--limit', '1')).at(-1)).toBe(
      '… and more. A higher --limit prints more.',
    );
    const [self] = (await app.store.rootKeys.list(app.workspaceId, { count: 1 })).rootKeys;
    await app.ok('rootKeys.updateRootKey', { rootKeyId: self!.rootKeyId, name: 'first of all' });
    const audit = await lines(
      'audit',
      '--resource',
      identityId,
      '--last',
      '1h',
      '--operation',
      'identities.updateIdentity',
    );
    const by = way === 'HTTP' ? /first of all root_\w{16} 127\.0\.0\.1/ : /cli/;
    expect(audit[1]).toMatch(by);
    expect(audit[1]).toContain('ratelimits: requests 100 per 1m, autoApply → requests 300 per 1m, autoApply');
    expect(audit).toHaveLength(3);
    const today = new Date().toISOString().slice(0, 10);
    expect(await json('audit', '--resource', identityId, '--from', today)).toHaveLength(3);
    expect(await lines('audit', '--resource', identityId, '--to', today)).toEqual(['No events found.']);
  });

  test('a key is explained by its id or string, and nothing is charged', async () => {
    const { apiId } = await json('api', 'create', 'explained');
    const ratelimits = [
      { name: 'requests', limit: 10, duration: 60_000, autoApply: true },
      { name: 'units', limit: 50, period: 'year' as const, autoApply: true },
    ];
    const { keyId, key } = await app.ok('keys.createKey', {
      apiId,
      externalId: 'ada',
      credits: { remaining: 2 },
      ratelimits,
    });
    const table = await lines('key', 'explain', keyId);
    expect(table[0]).toBe(`VALID: ${keyId} of ${apiId} owned by ada`);
    expect(table[1]).toMatch(/^RULE +RESULT +FIGURES$/);
    expect(table.slice(2, -1).map((line) => cellsOf(line)[0])).toEqual([
      'key',
      'enabled',
      'expires',
      'allowed_ips',
      'permissions',
      'ratelimit_names',
      'ratelimits',
      'credits',
    ]);
    expect(table.join('\n')).toMatch(
      /\nratelimits +passed +requests of key: 0 of 10 per 1m, cost 1; units of key: 0 of 50 per year, renews \d{4}-01-01T00:00:00Z, cost 1\n/,
    );
    expect(table.join('\n')).toMatch(/\ncredits +passed +balance 2, cost 1; then 1\n/);
    expect(table.at(-1)).toBe('A verification would charge 1 credit, 1 of limit requests, 1 of limit units.');

    const restricted = await json('key', 'create', '--api', apiId, '--allowed-ip', '203.0.113.0/24', '2001:DB8::1');
    const explained = await lines('key', 'explain', restricted.keyId, '--ip', '::ffff:198.51.100.7');
    expect(explained[0]).toMatch(/^FORBIDDEN: /);
    expect(explained.join('\n')).toMatch(
      /\nallowed_ips +failed +198\.51\.100\.7; 203\.0\.113\.0\/24, 2001:db8::1 may use it\n/,
    );
    const wrong = await run(['key', 'explain', restricted.keyId, '--ip', '1.2.3'], '');
    expect(wrong.err).toContain('--ip is not an IPv4 or IPv6 address.');

    const refused = await run(['key', 'explain', '-', '--permissions', 'a.b', '--cost', '3'], `${key}\n`);
    expect(refused).toMatchObject({ code: 0, err: '' });
    expect(refused.out).toMatch(/^INSUFFICIENT_PERMISSIONS: .*\npermissions +failed +has 0 of 1 .*; missing: a\.b\n/s);
    expect(refused.out).toMatch(/\ncredits +not reached/);
    expect(refused.out).not.toContain('would charge');
    expect(refused.out).not.toContain(key);
    expect((await lines('key', 'explain', keyId, '--cost', '3')).at(-1)).toMatch(
      /^credits +failed +balance 2, cost 3$/,
    );
    expect(await json('key', 'explain', key, '--cost', '3')).toMatchObject({ code: 'USAGE_EXCEEDED', keyId });
    expect(
      (await lines('key', 'explain', keyId, '--ratelimit', 'requests=5', '--tag', 'eu', '--tag', 'web')).at(-1),
    ).toBe('A verification would charge 1 credit, 5 of limit requests, 1 of limit units.');
    expect(await json('key', 'explain', keyId, '--ratelimit', 'requests=11')).toMatchObject({ code: 'RATE_LIMITED' });
    expect(await json('key', 'explain', keyId, '--ratelimit', 'requests')).toMatchObject({ code: 'VALID' });
    expect(await app.ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 2 } });

    for (const unknown of [`key_${'1'.repeat(24)}`, 'no such key'])
      expect((await lines('key', 'explain', unknown)).slice(0, 3).join('\n')).toMatch(
        /^NOT_FOUND\n.*\nkey +failed +unknown$/,
      );
  });

  test('the credits of an identity are given, changed, explained and removed', async () => {
    const owner = `prepaid.${way.replace(' ', '')}`;
    await lines('identity', 'create', owner, '--credits', '30');
    expect((await lines('identity', 'list', '--search', owner))[1]).toMatch(/ 30$/);
    expect(await lines('identity', 'credits', owner, '+20')).toEqual([`${owner} has 50 credits.`]);
    expect(await lines('identity', 'credits', owner, '-10')).toEqual([`${owner} has 40 credits.`]);
    expect(await json('identity', 'credits', owner, '12')).toEqual({ identity: owner, remaining: 12 });
    const { apiId } = await json('api', 'create', owner);
    const { keyId, key } = await app.ok('keys.createKey', { apiId, externalId: owner });
    expect((await lines('key', 'list', '--api', apiId))[1]).toContain(' 12 of its owner');
    const explained = (await lines('key', 'explain', keyId, '--cost', '13')).join('\n');
    expect(explained).toMatch(/balance of the identity 12, cost 13; that of the identity is too small/);
    const { hold } = await app.ok('keys.verifyKey', { key, credits: { cost: 5 }, hold: { ttl: 60_000 } });
    expect(await lines('key', 'hold-settle', hold!.id, '--cost', '20')).toEqual([
      `Settled ${hold!.id}. ${keyId} has 0 credits and a debt of 8. Its identity has 0 credits and a debt of 8.`,
    ]);
    expect((await lines('identity', 'list', '--search', owner))[1]).toMatch(/ 0, debt 8$/);
    await app.ok('keys.verifyKey', { key, credits: { cost: 3 } });
    expect((await lines('key', 'refusals', keyId)).join('\n')).toContain('cost 3, 0 left of the identity');
    expect(await lines('identity', 'credits', owner, 'none')).toEqual([`${owner} has no credits.`]);
    expect((await run(['identity', 'credits', owner, 'unlimited'])).err).toContain('unlimited is not a balance');
    expect((await run(['identity', 'credits', owner, '+1'])).err).toContain('cannot increment');
  });

  test('an identity is created, printed and deleted', async () => {
    const owner = `made.${way.replace(' ', '')}`;
    const [created] = await lines('identity', 'create', owner, '--meta', '{"plan":"pro"}');
    const identityId = /^Created identity (id_\w+)\.$/.exec(created!)![1]!;
    expect((await lines('identity', 'get', owner)).join('\n')).toMatch(new RegExp(`\\nexternalId +${owner}(\\n|$)`));
    expect(await json('identity', 'get', identityId)).toMatchObject({
      id: identityId,
      externalId: owner,
      meta: { plan: 'pro' },
    });
    await refused(run(['identity', 'create', owner]), owner);
    expect(await lines('identity', 'delete', owner, '--confirm', owner)).toEqual([`Deleted identity ${owner}.`]);
    const [heading, deleted] = await lines('identity', 'list', '--search', owner, '--deleted');
    expect(heading).toMatch(/ {2}CAN BE RESTORED UNTIL$/);
    expect(deleted).toContain(identityId);
    expect(await lines('identity', 'restore', identityId)).toEqual([`Restored identity ${identityId}.`]);
    expect((await lines('identity', 'get', owner)).length).toBeGreaterThan(1);
    await lines('identity', 'delete', owner, '--permanent', '--confirm', owner);
    expect(await lines('identity', 'list', '--search', owner, '--deleted')).toEqual(['No identities found.']);
    for (const command of ['get', 'delete'])
      await refused(run(['identity', command, owner]), `tollgate: There is no identity "${owner}".\n`);
  });

  test('wrong input is refused, and names and metadata cannot write to the terminal', async () => {
    const { apiId } = await json('api', 'create', 'hostile');
    const { keyId } = await app.ok('keys.createKey', { apiId, name: '\u001b[31m\nkey_1', meta: { a: '\u202e' } });
    for (const args of [
      ['get', keyId],
      ['list', '--api', apiId],
    ]) {
      const { out } = await run(['key', ...args]);
      for (const hidden of ['\u001b', '\u202e']) expect(out).not.toContain(hidden);
    }
    for (const [args, message] of [
      [['key', 'create'], '--api is required'],
      [['key', 'get', 'key_ 1'], 'tollgate: <keyId> must '],
      [['key', 'get', 'pay_1'], 'tollgate: <keyId> must be the id of a key (key_…). `tollgate key find` '],
      [['key', 'get', 'key_unknown'], 'There is no such key.'],
      [['key', 'credits', keyId, 'much'], 'is not a balance'],
      [['key', 'explain', ''], 'tollgate: <key> must '],
      [['key', 'explain', keyId, '--ratelimit', 'requests=x'], 'is not a whole number'],
      [['key', 'explain', keyId, '--tag', 't'.repeat(600)], 'tollgate: --tag must '],
      [['key', 'create', '--api', apiId, '--prefix', 'a b'], 'tollgate: --prefix must '],
      [['key', 'explain', keyId, '--cost', '-1'], '--cost -1 is not a whole number'],
      [
        ['key', 'create', '--api', apiId, '--credits', '1e3'],
        'tollgate: --credits 1e3 is not a whole number. Write it in digits',
      ],
      [['key', 'explain', keyId, '--permissions', 'a AND'], 'at position'],
      [['identity', 'create', 'a b'], 'tollgate: <owner> must '],
      [['identity', 'create', 'x', '--meta', '{'], '--meta is not JSON'],
      [['identity', 'create', 'x', '--meta', '[]'], 'tollgate: --meta must '],
      [
        ['key', 'limit', keyId, 'requests', '3'],
        'There is no limit requests. Give a duration or a period to add it, such as `3 1m` or `3 --per month`',
      ],
      [['key', 'limit', keyId, 'requests', 'x', '1m'], 'is not a whole number'],
      [['key', 'rotate', keyId, '--grace', 'soon'], 'is not a duration'],
      [['key', 'list', '--limit', '-1'], 'is not a whole number'],
      [['key', 'list', '--limit', '0'], '--limit must be at least 1'],
      [['audit', '--from', '25:00'], '25:00 is not a time'],
      [['audit', '--from', '2026-11-02', '--to', '2026-11-01'], '--from must be before --to'],
      [['audit', '--last', '1d', '--to', '2026-11-01'], 'Leave it out, or --from and --to'],
      [['audit', '--root-key', 'a b'], 'tollgate: --root-key must '],
    ] as const) {
      await refused(run([...args]), message, args.join(' '));
    }
  });
});

describe('TOLLGATE_URL', () => {
  const env = () => ({ REDIS_URL: testRedisUrl(), TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey });
  const inWorkspace = () => ['--workspace', app.workspaceId];

  test.each<[string[], (() => string[])?]>([
    [['workspace', 'create', 'elsewhere'], () => []],
    [['workspace', 'list'], () => []],
    [['export']],
    [['import', '-']],
    [['doctor'], () => []],
  ])('%j does not work through a server, and works on the store with --local', async (args, more = inWorkspace) => {
    const workspaces = async () => (await app.store.workspaces.list()).length;
    const before = await workspaces();
    const { code, out, err } = await runCli(args, env());
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/^tollgate: TOLLGATE_URL is set, but .* on the Redis of REDIS_URL\..* add --local\. .*\n$/);
    expect(await workspaces()).toBe(before);
    const here = await runCli([...args, '--local', ...more()], env());
    // Doctor finds faults in the Redis of the tests.
    if (args[0] !== 'doctor') expect(here.code).toBe(0);
    expect(here.err).not.toContain('TOLLGATE_URL');
  });

  test('inspect, too', async () => {
    const { keyId } = await app.createKey({});
    expect((await runCli(['inspect', keyId], env())).err).toMatch(/^tollgate: TOLLGATE_URL is set, but /);
    expect(await runCli(['inspect', keyId, '--local', ...inWorkspace()], env())).toMatchObject({ code: 0, err: '' });
  });

  test('--local makes a command that works through a server work on the store, too', async () => {
    const unreachable = { ...env(), TOLLGATE_URL: 'http://127.0.0.1:1' };
    for (const args of [['api', 'list'], ['root-key', 'list'], ['usage']]) {
      expect((await runCli(args, unreachable)).err).toContain('cannot be reached');
      expect(await runCli([...args, '--local', ...inWorkspace()], unreachable)).toMatchObject({ code: 0, err: '' });
    }
  });

  test('--workspace is refused, as the workspace is that of the root key', async () => {
    await refused(runCli(['api', 'list', ...inWorkspace()], env()), 'Leave out --workspace, or add');
  });

  const run = (env: Record<string, string>) => runCli(['api', 'list'], { REDIS_URL: testRedisUrl(), ...env });

  test('blanks, line ends and a byte order mark around a value are ignored, in variables and standard input', async () => {
    const around = (text: string) => `\ufeff ${text} \r\n`;
    const { keyId, key } = await app.createKey({});
    const marked = { TOLLGATE_URL: around(url()), TOLLGATE_ROOT_KEY: around(app.rootKey) };
    for (const args of [
      ['key', 'find', '-'],
      ['key', 'explain', '-'],
      ['key', 'refusals', '-'],
    ]) {
      const { code, err } = await runCli(args, marked, around(key));
      expect({ code, err }, args.join(' ')).toEqual({ code: 0, err: '' });
    }
    const stored = { REDIS_URL: around(testRedisUrl()), TOLLGATE_URL: '\ufeff\r\n' };
    for (const text of [key, keyId])
      expect((await runCli(['inspect', '-', ...inWorkspace()], stored, around(text))).out).toContain(keyId);
  });

  test.each([
    ['no root key', () => ({ TOLLGATE_URL: url() }), 'TOLLGATE_ROOT_KEY is not', 1],
    ['another protocol', () => ({ TOLLGATE_URL: 'ftp://x', TOLLGATE_ROOT_KEY: 'k' }), 'must be http', 1],
    ['no server', () => ({ TOLLGATE_URL: 'http://127.0.0.1:1', TOLLGATE_ROOT_KEY: 'k' }), 'cannot be reached', 4],
    ['a root key that is unknown', () => ({ TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: 'root_x' }), 'root key', 4],
  ])('%s is an error without the root key in it', async (_what, env, message, exitCode) => {
    const { code, out, err } = await run(env());
    expect({ code, out }).toEqual({ code: exitCode, out: '' });
    expect(err).toContain(message);
    expect(err).not.toContain('root_x');
  });
});

test('a terminal asks for the name of what is deleted', async () => {
  const { apiId } = await app.ok('apis.createApi', { name: 'asked for' });
  const env = { REDIS_URL: testRedisUrl() };
  const answer = async (typed: string) => {
    const [stdin, stderr] = [Object.assign(new PassThrough(), { isTTY: true }), new PassThrough({ encoding: 'utf8' })];
    stdin.write(`${typed}\n`);
    const terminal = { env, stdin, stdout: new PassThrough(), stderr, exit() {} };
    const args = ['api', 'delete', apiId, '--workspace', app.workspaceId];
    return { code: await runCommandLine(args, terminal), err: String(stderr.read()) };
  };
  const question = `This deletes ${apiId}. Type its name, asked for, to confirm: `;
  expect(await answer('asked')).toEqual({
    code: 1,
    err: `${question}tollgate: Nothing was deleted: the name of ${apiId} is "asked for".\n`,
  });
  expect(await answer('asked for')).toEqual({ code: 0, err: question });
  await app.ok('apis.restoreApi', { apiId });
});
