// `tollgate export` and `import` on the tests' Redis: in this process, and as processes where streams and signals
// matter. The API shows the imported records.
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { connect } from '../../src/redis/connection.ts';
import { type EmbeddedRedis, startEmbedded } from '../../src/redis/embedded.ts';
import { windowNames, workspaceKey } from '../../src/redis/names.ts';
import { openStore, type Store } from '../../src/store.ts';
import { refused, runCli, runCliProcess, spawnCli } from '../support/cli.ts';
import { createExpired, dayMs, harness, testSettings } from '../support/harness.ts';
import { jsonLinesOf as linesOf, textOf } from '../support/jsonLines.ts';
import { dirOfFile, dirOfTest } from '../support/ofFile.ts';
import { build, cliFile } from '../support/processes.ts';
import { random, seed } from '../support/random.ts';
import { testRedisUrl } from '../support/redis.ts';
import { thoroughTest } from '../support/testIf.ts';
import { keyLogOf } from '../support/usage.ts';

const tollgate = harness();
const { clock, ok, createWorkspace, openWorkspace } = tollgate;
/** A test runs one process or several, on a machine that may be busy. */
const waiting = { timeout: 15_000, interval: 20 };

const dir = dirOfFile();
let fileCount = 0;
const env = () => ({ REDIS_URL: testRedisUrl() });
const cli = (args: readonly string[], input?: string | Buffer) => runCli(args, env(), input);

beforeAll(build);
beforeEach(() => {
  // The command line uses Redis's clock.
  clock.now = Date.now();
});

const newFile = () => join(dir, `keys${++fileCount}.jsonl`);
const hashOf = (key: string) => digestOf(key).toString('base64');
const newSecret = () => `elsewhere_${randomBytes(12).toString('hex')}`;

/** The lines of the kinds that this file tests, without audit events, usage, root keys and deleted keys. */
async function exportOf(workspaceId: string, ...options: string[]): Promise<string> {
  const { code, out, err } = await cli(['export', '--workspace', workspaceId, ...options]);
  expect({ code, err }).toMatchObject({ code: 0, err: expect.stringContaining('Exported ') });
  return keyLinesOf(out);
}

const ownKinds = ['permission', 'role', 'plan', 'api', 'identity', 'key'];
const keyLinesOf = (text: string) => textOf(linesOf(text).filter(({ kind }) => ownKinds.includes(kind)));
const ownCounts = (counts: Record<string, number>) => Object.fromEntries(ownKinds.map((kind) => [kind, counts[kind]]));

/** A workspace with an API. */
async function withApi() {
  const made = await createWorkspace();
  return { ...made, apiId: await tollgate.store.apis.create(made.workspaceId, 'moved', cliActor) };
}

/** The `--json` summary of an import that must succeed. */
async function importInto(workspaceId: string, text: string | Buffer, ...options: string[]) {
  const { code, out, err } = await cli(['import', '-', '--workspace', workspaceId, '--json', ...options], text);
  expect({ code, out }).toEqual({ code: 0, out: '' });
  const { created, existed, ...summary } = JSON.parse(err.trimEnd().split('\n').at(-1)!);
  return { ...summary, created: ownCounts(created), existed: ownCounts(existed) };
}

const keysIn = async (workspaceId: string) => {
  const { items } = await tollgate.store.apis.list(workspaceId, { count: 100 });
  return items.reduce((sum, { keyCount }) => sum + keyCount, 0);
};

const verify = async (key: string, rootKey: string) => {
  const body = JSON.stringify({ key });
  const { json } = await tollgate.send('/v2/keys.verifyKey', { body, authorization: `Bearer ${rootKey}` });
  // Identities and limits have the same names, but other ids. Their windows start empty.
  const own = ['id', 'remaining', 'reset'];
  return JSON.parse(JSON.stringify(json.data), (name, value) => (own.includes(name) ? undefined : value));
};

describe('a workspace with every kind of record', () => {
  const pick = random(seed);
  const plans = ['free', 'pro'] as const;
  const apis: string[] = [];
  const keys: { key: string; keyId: string }[] = [];
  let exported: string;

  const limits = () =>
    Array.from({ length: pick(0, 3) }, (_, at) => ({
      name: `limit ${at}`,
      limit: pick(5, 1e9),
      duration: pick(1000, 30 * dayMs),
      autoApply: pick(0, 1) === 1,
    }));
  const meta = () =>
    [{}, { plan: 'pro', 'né "quoted"': [1, null, { deep: '\u{1f511}\u2028' }] }, { n: 1e21 }][pick(0, 2)]!;
  const credits = () =>
    [
      undefined,
      { remaining: pick(0, 1e9) },
      { remaining: pick(1, 9), refill: { interval: 'daily' as const, amount: pick(1, 1e6) } },
      { remaining: pick(1, 9), refill: { interval: 'monthly' as const, amount: 5, refillDay: pick(1, 31) } },
    ][pick(0, 3)];

  beforeAll(async () => {
    clock.now = Date.now();
    await ok('permissions.createPermission', { slug: 'documents.read', name: 'Read', description: 'Any "document"' });
    await ok('permissions.createRole', {
      name: 'reader',
      description: 'Reads',
      permissions: ['documents.read', 'mail.*'],
    });
    await ok('permissions.createRole', { name: 'nothing' });
    for (const planId of plans) {
      clock.now++;
      const ratelimits = [...limits(), { name: planId, limit: 1e6, period: 'month' as const, autoApply: true }];
      const access = planId === 'pro' && { permissions: ['documents.read'], roles: ['nothing', 'reader'] };
      await ok('plans.createPlan', { planId, ratelimits, ...access, meta: meta() });
    }
    clock.now++;
    await ok('plans.updatePlan', { planId: 'pro', meta: meta() });
    for (const [externalId, planId] of [['ada', 'free'], ['bob'], ['alone', 'pro']] as const)
      await ok('identities.createIdentity', {
        externalId: externalId!,
        ...(planId && { planId }),
        meta: meta(),
        ratelimits: limits(),
      });
    for (const name of ['payments', 'mail', 'empty']) apis.push((await ok('apis.createApi', { name })).apiId);
    // More than one page of one API.
    for (let at = 0; at < 229; at++) {
      clock.now += pick(0, 1);
      const created = await createExpired(
        ok,
        {
          apiId: apis[at % 10 === 0 ? 1 : 0]!,
          ...(pick(0, 1) && { prefix: 'pay' }),
          ...(pick(0, 1) && { byteLength: pick(16, 40) }),
          ...(pick(0, 1) && { name: `Key "${at}"` }),
          ...(pick(0, 1) && { externalId: ['ada', 'bob', `user_${at}`][pick(0, 2)]! }),
          ...(pick(0, 1) && { meta: meta() }),
          ...(pick(0, 4) === 0 && { expires: [1, Date.now() + dayMs][pick(0, 1)]! }),
          ...(pick(0, 2) === 0 && { planId: plans[pick(0, 1)]! }),
          ...(pick(0, 4) === 0 && { enabled: false }),
          ...(pick(0, 1) && { ratelimits: limits() }),
          ...(pick(0, 2) === 0 && { roles: ['reader', 'nothing'].slice(pick(0, 1)) }),
          ...(pick(0, 2) === 0 && { permissions: ['documents.write', 'documents.read'].slice(pick(0, 1)) }),
          credits: credits(),
        },
        clock.now,
      );
      if (pick(0, 5) === 0) await ok('keys.updateKey', { keyId: created.keyId, name: 'renamed' });
      if (pick(0, 5) === 0) await ok('keys.verifyKey', { key: created.key });
      keys.push(created);
    }
    keys.splice(1, 0, await ok('keys.rerollKey', { keyId: keys[0]!.keyId, expiration: dayMs }));
    await ok('keys.deleteKey', { keyId: keys.pop()!.keyId });
    await ok('keys.deleteKey', { keyId: keys.pop()!.keyId, permanent: true });
    exported = await exportOf(tollgate.workspaceId);
  });

  test(`an import into an empty workspace exports the same lines (seed ${seed})`, async () => {
    const there = await createWorkspace();
    const count = (kind: string) => linesOf(exported).filter((line) => line.kind === kind).length;
    const all = { permission: 3, role: 2, plan: 2, api: 3, identity: count('identity'), key: 228 };
    const none = { permission: 0, role: 0, plan: 0, api: 0, identity: 0, key: 0 };
    expect(Object.fromEntries(Object.keys(all).map((kind) => [kind, count(kind)]))).toEqual(all);

    // A dry run reports the same, and changes nothing.
    const whole = { created: all, existed: none, refused: 0 };
    expect(await importInto(there.workspaceId, exported, '--dry-run')).toEqual(whole);
    expect(await exportOf(there.workspaceId)).toBe('');
    expect(await importInto(there.workspaceId, exported)).toEqual(whole);
    expect(await exportOf(there.workspaceId)).toBe(exported);

    const again = { created: none, existed: all, refused: 0 };
    expect(await importInto(there.workspaceId, exported, '--dry-run')).toEqual(again);
    expect(await importInto(there.workspaceId, exported)).toEqual(again);
    expect(await exportOf(there.workspaceId)).toBe(exported);
  });

  test('as processes: the output of an export is the input of an import', async () => {
    const there = await createWorkspace();
    const { code, out } = await runCliProcess(['export', '--workspace', tollgate.workspaceId], env());
    expect({ code, out: keyLinesOf(out) }).toEqual({ code: 0, out: exported });
    const into = ['import', '-', '--workspace', there.workspaceId];
    expect(await runCliProcess(into, env(), out)).toEqual({
      code: 0,
      out: '',
      err: expect.stringContaining('Imported 228 keys, 1 deleted key, '),
    });
    expect(await runCliProcess(into, env(), out.replace('\n', '\n{}\n'))).toMatchObject({
      code: 1,
      out: expect.stringContaining('"errors"'),
    });
    expect(await exportOf(there.workspaceId)).toBe(exported);
  });

  test('has the permissions of a role with the role, and not with its keys', () => {
    const withRole = linesOf(exported).filter((line) => line.kind === 'key' && line.roles?.includes('reader'));
    expect(withRole.length).toBeGreaterThan(0);
    for (const { permissions = [] } of withRole) expect(permissions).not.toContain('mail.*');
  });

  test('an existing file is not overwritten, and --resume refuses a file that is no export', async () => {
    const file = newFile();
    writeFileSync(file, 'precious\n');
    const command = ['export', file, '--workspace', tollgate.workspaceId];
    await refused(cli(command), `${file} exists. Use --resume to continue an export that was interrupted`);
    await refused(cli([...command, '--resume']), 'is no export of this version');
    expect(readFileSync(file, 'utf8')).toBe('precious\n');
  });

  // From here on keys are verified, which charges them.
  test('an import into a given API gives new ids, and the keys verify', async () => {
    const there = await createWorkspace();
    const apiId = await tollgate.store.apis.create(there.workspaceId, 'gathered', cliActor);
    const { created } = await importInto(there.workspaceId, exported, '--api', apiId);
    expect(created).toMatchObject({ key: 228, api: 0 });
    const { key, keyId } = keys[0]!;
    const shown = await verify(key, there.rootKey);
    expect(shown.keyId).toMatch(new RegExp(`^key_.{16}${apiId.slice(-8)}$`));
    expect(shown.keyId).not.toBe(keyId);
    expect(exported).toContain(`"successor":"${keys[1]!.keyId}"`);
    const record = await tollgate.call('keys.getKey', { keyId: shown.keyId! }, there.rootKey);
    expect(record.data).toMatchObject({ keyId: shown.keyId });
    expect(record.data).not.toHaveProperty('successor');
  });

  test('every key verifies in the new workspace as in the old', async () => {
    const there = await createWorkspace();
    await importInto(there.workspaceId, exported);
    for (const { key, keyId } of keys) {
      const here = await verify(key, tollgate.rootKey);
      expect(here.keyId).toBe(keyId);
      expect(await verify(key, there.rootKey)).toEqual(here);
    }
  });

  test('a reader that closes the pipe ends it without a line of error', async () => {
    const child = spawnCli(['export', '--workspace', tollgate.workspaceId], env());
    child.stdout.destroy();
    let err = '';
    child.stderr.on('data', (text) => (err += text));
    const [code] = await once(child, 'close');
    expect(code).toBe(141);
    expect(err).not.toContain('tollgate:');
  });
});

describe('plans', () => {
  const month = { limit: 1000, period: 'month', autoApply: true } as const;

  test('the limits of a plan keep their counts, of keys and of identities', async () => {
    const [here, there] = [await createWorkspace(), await createWorkspace()];
    const shared = { name: 'shared', ...month };
    const single = { name: 'single', limit: 1000, duration: dayMs, autoApply: true };
    await tollgate.call('plans.createPlan', { planId: 'pro', ratelimits: [shared] }, here.rootKey);
    await tollgate.call('plans.createPlan', { planId: 'key', ratelimits: [single] }, here.rootKey);
    await tollgate.call('identities.createIdentity', { externalId: 'ada', planId: 'pro' }, here.rootKey);
    const { data: api } = await tollgate.call('apis.createApi', { name: 'moved' }, here.rootKey);
    const given = { apiId: api.apiId, externalId: 'ada', planId: 'key' };
    const { data: made } = await tollgate.call('keys.createKey', given, here.rootKey);
    const leftOf = async (rootKey: string) => {
      const { data } = await tollgate.call('keys.verifyKey', { key: made.key }, rootKey);
      return Object.fromEntries(data.ratelimits!.map(({ name, remaining }) => [name, remaining]));
    };
    for (const left of [999, 998]) expect(await leftOf(here.rootKey)).toEqual({ single: left, shared: left });
    const { out } = await cli(['export', '--workspace', here.workspaceId]);
    await importInto(there.workspaceId, out);
    expect(await leftOf(there.rootKey)).toEqual({ single: 997, shared: 997 });

    // Its counters are in the states of key and identity now. The same file stores them in no other place.
    const windowsOf = async (...options: string[]) => {
      const args = ['import', '-', '--workspace', there.workspaceId, '--json', ...options];
      const { created, existed } = JSON.parse((await cli(args, out)).err.trimEnd().split('\n').at(-1)!);
      return [created.window, existed.window];
    };
    expect(await windowsOf('--dry-run')).toEqual([0, 2]);
    expect(await windowsOf()).toEqual([0, 2]);
    const connection = await connect(tollgate.redisUrl(), testSettings);
    expect(await connection.keys(windowNames(workspaceKey(there.workspaceId)).pattern)).toEqual([]);
    connection.disconnect();
    expect(await leftOf(there.rootKey)).toEqual({ single: 996, shared: 996 });
  });

  test('counters of limits that nobody has any more are stored once', async () => {
    const [here, there] = [await openWorkspace(), await openWorkspace()];
    await here.of('plans.createPlan', { planId: 'pro', ratelimits: [{ name: 'shared', ...month }] });
    await here.of('identities.createIdentity', { externalId: 'ada', planId: 'pro' });
    const { apiId } = await here.of('apis.createApi', { name: 'moved' });
    const { key } = await here.of('keys.createKey', { apiId, externalId: 'ada' });
    await here.of('keys.verifyKey', { key });
    await here.of('identities.updateIdentity', { identity: 'ada', planId: null });
    const { out } = await cli(['export', '--workspace', here.workspaceId]);
    const args = ['import', '-', '--workspace', there.workspaceId, '--json'];
    for (const [created, existed] of [
      [1, 0],
      [0, 1],
    ]) {
      const { err } = await cli(args, out);
      const summary = JSON.parse(err.trimEnd().split('\n').at(-1)!);
      expect([summary.created.window, summary.existed.window]).toEqual([created, existed]);
    }
    await there.of('identities.updateIdentity', { identity: 'ada', planId: 'pro' });
    expect(await there.of('keys.verifyKey', { key })).toMatchObject({ ratelimits: [{ remaining: 998 }] });
  });

  test('who names an unknown plan is rejected, and the others are imported', async () => {
    const { workspaceId, apiId } = await withApi();
    const key = (planId: string) => ({ apiId, hash: hashOf(newSecret()), planId });
    const many = Array.from({ length: 26 }, (_, at) => ({ name: `limit ${at}`, limit: 1, duration: 1000 }));
    const lines = [
      { kind: 'role', name: 'reader' },
      { kind: 'plan', planId: 'pro', ratelimits: [{ name: 'requests', ...month }], roles: ['reader'] },
      { kind: 'plan', planId: 'team', roles: ['unknown'] },
      { kind: 'identity', externalId: 'ada', planId: 'pro' },
      { kind: 'identity', externalId: 'bob', planId: 'gone' },
      key('pro'),
      key('gone'),
      { ...key('pro'), ratelimits: many },
      { kind: 'identity', externalId: 'carol', planId: 'pro', ratelimits: many },
      { kind: 'plan', planId: 'ending', ratelimits: [{ name: 'requests', ...month, until: Date.now() + dayMs }] },
    ];
    for (const option of [['--dry-run'], []]) {
      const file = newFile();
      writeFileSync(file, textOf(lines));
      const { out } = await cli(['import', file, '--workspace', workspaceId, ...option]);
      expect(out).toContain(`${option.length ? 'Would import' : 'Imported'} 1 key, 1 identity, 1 role, 1 plan.`);
      expect(out).toContain('  line 3: roles There is no role "unknown".\n');
      expect(out).toContain('  line 5: planId There is no plan "gone".\n');
      expect(out).toContain('  line 7: planId There is no plan "gone".\n');
      expect(out).toContain('  line 8: ratelimits With a plan, a key has at most 25 limits of its own.\n');
      expect(out).toContain('  line 10: ratelimits[0].until ');
      expect(out).toContain('  line 9: ratelimits With a plan, an identity has at most 25 limits of its own.\n');
    }
  });
});

describe('a file from elsewhere', () => {
  test('names of fields with terminal escapes are printed escaped', async () => {
    const { workspaceId, apiId } = await withApi();
    const file = newFile();
    writeFileSync(file, textOf([{ hash: hashOf(newSecret()), 'x\u001b[2J\nline 9\u009b': 1 }]));
    const { out } = await cli(['import', file, '--workspace', workspaceId, '--api', apiId]);
    expect(out).toContain(
      '\n  line 1: x\\u001b[2J\\u000aline 9\\u009b is not a field of this operation. Leave it out.\n',
    );
  });

  test('a directory is refused without the advice to try again', async () => {
    const { code, out, err } = await cli(['import', dir, '--workspace', tollgate.workspaceId]);
    expect({ code, out, err }).toEqual({ code: 1, out: '', err: `tollgate: ${dir} is a directory.\n` });
  });

  test('takes hexadecimal hashes, nulls for absent values, and a byte order mark', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'from a table' });
    const [one, two] = [newSecret(), newSecret()];
    const hex = (key: string) => createHash('sha256').update(key).digest('hex');
    const absent = {
      name: null,
      externalId: null,
      expires: null,
      roles: null,
      ratelimits: null,
      keyId: null,
      start: null,
    };
    const limit = { name: 'calls', limit: 5, duration: 60_000, autoApply: null, until: null, id: null };
    const file = newFile();
    const lines = [
      { hash: hex(one), ...absent, credits: { remaining: 5, refill: null }, meta: { plan: null } },
      { hash: hex(two).toUpperCase(), ...absent, credits: null, ratelimits: [limit] },
    ];
    writeFileSync(file, `\ufeff\r\n${lines.map((line) => JSON.stringify(line)).join('\r\n')}\r\n`);
    const { out } = await cli(['import', file, '--workspace', tollgate.workspaceId, '--api', apiId]);
    expect(out).toContain('Imported 2 keys.');
    const verified = await ok('keys.verifyKey', { key: one });
    expect(verified).toMatchObject({ code: 'VALID', credits: 4, meta: { plan: null } });
    expect(await ok('keys.verifyKey', { key: two, ratelimits: [{ name: 'calls' }] })).toMatchObject({ code: 'VALID' });
  });

  test.each<[string, string | Buffer, RegExp]>([
    ['an array', '[{"hash":"a"}]', /must be an object: an import has one JSON object a line/],
    [
      'the lines of an array',
      '[\n{"hash":"a"},\n]',
      /line 1: is not valid JSON: .*: an import has one JSON object a line/,
    ],
    ['CSV', 'hash,name\nabc,Ada\n', /is not valid JSON: .*: an import has one JSON object a line/],
    ['gzip', gzipSync('{}'), /is compressed by gzip; unpack the file first/],
    ['UTF-16', Buffer.from('\ufeff{}', 'utf16le'), /is not valid UTF-8: an import has one JSON object a line/],
  ])('%s is refused with the form of the lines', async (_, bytes, message) => {
    const file = newFile();
    writeFileSync(file, bytes);
    const { out } = await cli(['import', file, '--workspace', tollgate.workspaceId]);
    expect(out).toMatch(message);
  });

  test('needs only hashes and an API', async () => {
    const { workspaceId, apiId, rootKey } = await withApi();
    const secret = newSecret();
    const line = { hash: hashOf(secret), name: 'Ada', externalId: 'ada', credits: { remaining: 5 } };
    // As some editors write it: an empty line, Windows line ends, and no line feed at the end.
    await importInto(
      workspaceId,
      `\r\n${JSON.stringify(line)}\r\n\n${JSON.stringify({ hash: hashOf(newSecret()) })}`,
      '--api',
      apiId,
    );
    expect(await verify(secret, rootKey)).toMatchObject({ valid: true, name: 'Ada', credits: 4 });
    expect(await keysIn(workspaceId)).toBe(2);
  });

  test('what another service held is imported, and what means more here is named', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const { data } = await tollgate.call('apis.createApi', { name: 'moved' }, rootKey);
    const apiId = data.apiId;
    const hash = () => hashOf(newSecret());
    const long = 'x'.repeat(128);
    const file = newFile();
    const lines = [
      { kind: 'permission', slug: long, name: 'long' },
      { kind: 'role', name: 'r'.repeat(128), permissions: ['ab', 'docs.*', '*', 'team.*'] },
      { hash: hash(), permissions: ['docs.*', '*', 'a'], roles: ['r'.repeat(128)] },
      { hash: hash(), permissions: ['docs.*', long] },
      { hash: hash(), permissions: ['docs.*'], byteLength: 16 },
      { hash: hash(), permissions: [`${long}x`] },
      { hash: hash(), permissions: ['docs.*', `${long}xy`] },
      { hash: hash(), credits: { remaining: 2 ** 53 } },
    ];
    writeFileSync(file, textOf(lines));
    for (const [mode, imported] of [
      [['--dry-run'], 'Would import'],
      [[], 'Imported'],
    ] as const) {
      const { code, out } = await cli(['import', file, '--workspace', workspaceId, '--api', apiId, ...mode]);
      expect(code).toBe(1);
      expect(out).toMatch(new RegExp(`^${imported} 3 keys, 1 role, 1 permission\\.`));
      expect(out).toMatch(
        /Rejected: 3 lines\.\n {2}2 × permissions\[\] must have at most 128 characters\n {2}1 × credits/,
      );
      expect(out).toContain(
        'Wildcards: docs.* (2 keys), docs.* (1 roles), team.* (1 roles). In Tollgate such a permission',
      );
      expect(out).toContain('A permission that is a lone star is literal, as in Unkey: * (1 keys), * (1 roles).');
    }
  });

  test('invalid lines are reported by number and field, and all others imported', async () => {
    const { workspaceId, apiId, rootKey } = await withApi();
    const secret = newSecret();
    const plaintext = newSecret();
    const hash = () => hashOf(newSecret());
    const text = [
      JSON.stringify({ apiId, hash: hash() }),
      plaintext,
      JSON.stringify({ apiId, hash: 'short' }),
      JSON.stringify({ apiId, hash: hash(), key: plaintext, name: 'has its string' }),
      JSON.stringify({ apiId, hash: hash(), start: plaintext }),
      JSON.stringify({ apiId, hash: hash(), ratelimits: [{ name: 'requests', limit: 0, duration: 60_000 }] }),
      JSON.stringify({ apiId, hash: hash(), roles: ['absent'] }),
      JSON.stringify({ apiId: `api_${'1'.repeat(16)}`, hash: hash() }),
      JSON.stringify({ hash: hash() }),
      JSON.stringify({ kind: 'root key', hash: hash() }),
      `{"apiId":"${apiId}","hash":"${hash()}","meta":{"text":"${'m'.repeat(20_000)}"}}`,
      JSON.stringify({ kind: 'identity', externalId: 'ada lovelace' }),
      JSON.stringify({ apiId, hash: hash(), credits: { remaining: null, refill: { interval: 'daily', amount: 1 } } }),
      Buffer.from([0x22, 0xff, 0x22]),
      JSON.stringify({ apiId, hash: hash(), keyId: `key_${'1'.repeat(24)}` }),
      JSON.stringify({ apiId, hash: hashOf(secret), name: 'the last' }),
    ].map((line) => Buffer.concat([Buffer.from(line), Buffer.from('\n')]));
    const file = newFile();
    const rejected = file.replace('.jsonl', '.rejected.jsonl');
    writeFileSync(file, Buffer.concat(text));

    const { code, out, err } = await cli(['import', file, '--workspace', workspaceId]);
    expect(code).toBe(1);
    expect(out).toMatch(/^Imported 2 keys\.\nRejected: 14 lines\.\n( {2}\d+ × .*\n)+ {2}line 2: is not valid JSON/);
    expect(out).toContain(`${rejected} has the rejected lines and the reasons.\n`);
    const reported = linesOf(readFileSync(rejected, 'utf8'));
    expect(reported.map(({ line, errors }) => [line, errors[0].field])).toEqual([
      [2, ''],
      [3, 'hash'],
      [4, 'key'],
      [5, 'start'],
      [6, 'ratelimits[0].limit'],
      [7, 'roles'],
      [8, 'apiId'],
      [9, 'apiId'],
      [10, 'kind'],
      [11, 'meta'],
      [12, 'externalId'],
      [13, 'credits.refill'],
      [14, ''],
      [15, 'keyId'],
    ]);
    expect(reported[4].input).toMatchObject({ apiId, ratelimits: [{ name: 'requests', limit: 0, duration: 60_000 }] });
    expect(statSync(rejected).mode & 0o777).toBe(0o600);
    for (const written of [out, err, readFileSync(rejected, 'utf8')]) expect(written).not.toContain(plaintext);
    expect(await verify(secret, rootKey)).toMatchObject({ valid: true, name: 'the last' });
    expect(await keysIn(workspaceId)).toBe(2);

    // A corrected line is imported, and the file with the rejected lines of the first run is removed, but not by a typo
    // or a dry run.
    const corrected = reported.filter(({ line }) => line === 6).map(({ input }) => ({ ...input, ratelimits: [] }));
    writeFileSync(file, textOf(corrected));
    for (const more of [['--without', 'typo'], ['--dry-run']]) {
      await cli(['import', file, '--workspace', workspaceId, ...more]);
      expect(existsSync(rejected), more.join(' ')).toBe(true);
    }
    expect(await cli(['import', file, '--workspace', workspaceId])).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Imported 1 key\.\n/),
    });
    expect(existsSync(rejected)).toBe(false);
  });

  test('from standard input the invalid lines are on standard output', async () => {
    const { workspaceId } = await createWorkspace();
    const { code, out, err } = await cli(['import', '-', '--workspace', workspaceId], '{"hash":1}\n');
    expect(code).toBe(1);
    expect(linesOf(out)).toEqual([
      { line: 1, errors: [{ field: 'hash', message: 'must be string' }], input: { hash: 1 } },
    ]);
    expect(err).toContain('Rejected: 1 line');
  });

  test('a line that is too long is refused without buffering it, and the next one is read', async () => {
    const { workspaceId, apiId } = await withApi();
    const line = () => Buffer.from(`${JSON.stringify({ apiId, hash: hashOf(newSecret()) })}\n`);
    const input = Buffer.concat([line(), Buffer.alloc(3_000_000, 'x'), Buffer.from('\n'), line()]);
    const { code, out } = await cli(['import', '-', '--workspace', workspaceId], input);
    expect(code).toBe(1);
    expect(linesOf(out)).toEqual([
      { line: 2, errors: [{ field: '', message: 'The line is longer than 1048576 bytes (BODY_LIMIT_BYTES).' }] },
    ]);
    expect(await keysIn(workspaceId)).toBe(2);
  });

  test('existing keys do not change, also when the file has them twice', async () => {
    const { workspaceId, apiId, rootKey } = await withApi();
    const secret = newSecret();
    const line = (name: string) => ({ apiId, hash: hashOf(secret), name });
    await importInto(workspaceId, textOf([line('first'), line('second')]));
    expect(await importInto(workspaceId, textOf([line('third')]))).toMatchObject({
      created: { key: 0 },
      existed: { key: 1 },
    });
    expect(await verify(secret, rootKey)).toMatchObject({ name: 'first' });
    expect(await keysIn(workspaceId)).toBe(1);
  });

  test('the id and the hash of a root key that was refused are taken, too', async () => {
    const { workspaceId } = await createWorkspace();
    const [one, other] = ['2', '3'].map((digit) => `root_${digit.repeat(16)}`);
    const [hash, otherHash] = [hashOf(newSecret()), hashOf(newSecret())];
    const line = (rootKeyId?: string, hash?: string) => {
      return { kind: 'rootKey', rootKeyId, hash, start: 'x', permissions: ['*'], enabled: true, createdAt: 1 };
    };
    const text = textOf([line(one, hash), line(one, otherHash), line(other, otherHash)]);
    const args = ['import', '-', '--workspace', workspaceId, '--with', 'root-keys'];
    const { out } = await cli(args, text);
    const errors = [{ field: 'rootKeyId', message: 'is the id or the hash of another root key' }];
    expect(linesOf(out)).toMatchObject([
      { line: 2, errors },
      { line: 3, errors },
    ]);
    const { rootKeys } = await tollgate.store.rootKeys.list(workspaceId, { count: 10 });
    expect(rootKeys.map(({ rootKeyId }) => rootKeyId)).toContain(one);
    expect(rootKeys.map(({ rootKeyId }) => rootKeyId)).not.toContain(other);
  });

  test('a key whose line of an unknown API was refused is imported from a line of another one', async () => {
    const { workspaceId, apiId } = await withApi();
    const hash = hashOf(newSecret());
    const text = textOf([
      { apiId: `api_${'2'.repeat(16)}`, hash },
      { apiId, hash },
    ]);
    const { out } = await cli(['import', '-', '--workspace', workspaceId], text);
    expect(linesOf(out)).toMatchObject([{ line: 1, errors: [{ field: 'apiId' }] }]);
    expect(await keysIn(workspaceId)).toBe(1);
  });

  /** Also that of a deleted key, as restoring it would give two keys the id. */
  test.each([{}, { kind: 'deletedKey', restorableUntil: Date.now() + dayMs }])(
    'an id that another key has is refused: %j',
    async (more) => {
      const { workspaceId, apiId } = await withApi();
      const line = (digit: string) => {
        return { apiId, keyId: `key_${digit.repeat(16)}${apiId.slice(-8)}`, hash: hashOf(newSecret()) };
      };
      const args = ['import', '-', '--workspace', workspaceId];
      await cli(args, textOf([{ ...line('2'), ...more }]));
      const { code, out } = await cli(args, textOf([line('2'), line('3'), line('3')]));
      expect(code).toBe(1);
      const errors = [{ field: 'keyId' }];
      expect(linesOf(out)).toMatchObject([
        { line: 1, errors },
        { line: 3, errors },
      ]);
    },
  );

  test('a deleted API can be imported with its id once its keys have been removed', async () => {
    const { workspaceId, apiId, rootKey } = await withApi();
    const secret = newSecret();
    await importInto(workspaceId, textOf([{ apiId, hash: hashOf(secret) }]));
    const exported = await exportOf(workspaceId);
    await tollgate.store.apis.delete(workspaceId, { apiId, permanent: true }, cliActor);

    const { code, out } = await cli(['import', '-', '--workspace', workspaceId], exported);
    expect({ code, fields: linesOf(out).map(({ errors }) => errors[0].field) }).toEqual({
      code: 1,
      fields: ['apiId', 'apiId'],
    });
    while (await tollgate.store.sweep.purge(workspaceId));
    await importInto(workspaceId, exported);
    while (await tollgate.store.sweep.purge(workspaceId));
    expect(await exportOf(workspaceId)).toBe(exported);
    expect(await verify(secret, rootKey)).toMatchObject({ valid: true });
  });

  test('an import that was killed is finished by the same command', async () => {
    const { workspaceId, apiId, rootKey } = await withApi();
    const secrets = Array.from({ length: 3000 }, newSecret);
    const lines = secrets.map(
      (secret, at) =>
        `${JSON.stringify({ apiId, hash: hashOf(secret), name: `${at}`, externalId: `user_${at % 9}` })}\n`,
    );

    const child = spawnCli(['import', '-', '--workspace', workspaceId], env());
    child.stdin.on('error', () => {});
    // It waits for the rest of a line.
    child.stdin.write(lines.slice(0, 1400).join('') + lines[1400]!.slice(0, 40));
    await vi.waitFor(async () => expect(await keysIn(workspaceId)).toBeGreaterThan(200), waiting);
    child.kill('SIGKILL');
    await once(child, 'close');
    const before = await keysIn(workspaceId);
    expect(before).toBeLessThan(3000);

    const { created, existed } = await importInto(workspaceId, lines.join(''));
    expect({ created: created.key, existed: existed.key }).toEqual({ created: 3000 - before, existed: before });
    expect(await keysIn(workspaceId)).toBe(3000);
    for (const at of [0, 1399, 1400, 2999])
      expect(await verify(secrets[at]!, rootKey)).toMatchObject({ name: `${at}` });
  });

  test('a thousand keys add a few audit events', async () => {
    const { workspaceId, apiId } = await withApi();
    const lines = Array.from({ length: 1000 }, (_, at) => [
      { kind: 'identity', externalId: `user_${at}`, meta: { at } },
      { apiId, hash: hashOf(newSecret()), externalId: `user_${at}` },
    ]).flat();
    expect(await importInto(workspaceId, textOf(lines))).toMatchObject({ created: { key: 1000, identity: 1000 } });
    const { items } = await tollgate.store.audit.list(workspaceId, { count: 1000, order: 'asc' });
    const events = items.filter(({ operation }) => operation === 'cli.import');
    expect(events.length).toBeGreaterThan(0);
    expect(events.length).toBeLessThan(30);
    expect(new Set(events.map(({ resource }) => resource.type))).toEqual(new Set(['api', 'identity']));
  });
});

describe('with a Redis of its own', () => {
  let redis: EmbeddedRedis;
  let store: Store;
  let dataDir: string;

  beforeEach(async () => {
    dataDir = dirOfTest();
    redis = await startEmbedded({ dataDir });
    store = await openStore({ ...testSettings, url: redis.url });
    return async () => {
      await store.close();
      await redis.stop();
    };
  });

  thoroughTest('a reader that does not read stops the export without buffering', async () => {
    const { workspaceId } = await store.workspaces.create('large');
    const apiId = await store.apis.create(workspaceId, 'large', cliActor);
    const meta = JSON.stringify({ text: 'm'.repeat(3000) });
    for (let from = 0; from < 10_000; from += 500) {
      const keys = Array.from({ length: 500 }, (_, at) => ({
        digest: createHash('sha256')
          .update(`${from + at}`)
          .digest(),
        start: '',
        meta,
      }));
      await store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: false }, cliActor);
    }
    const pagesRead = async () => {
      const { stdout } = spawnSync('redis-cli', ['-s', redis.url.slice('unix:'.length), 'info', 'commandstats']);
      const calls = `${stdout}`.matchAll(/cmdstat_fcall(?:_ro)?:calls=(\d+)/g);
      return [...calls].reduce((sum, [, count]) => sum + Number(count), 0);
    };
    const before = await pagesRead();
    const child = spawnCli(['export', '--workspace', workspaceId], { TOLLGATE_DATA_DIR: dataDir });
    child.stdout.pause();
    await vi.waitFor(async () => expect(await pagesRead()).toBeGreaterThan(before), waiting);
    // It stops asking: the number stays the same for half a second.
    let asked = 0;
    await vi.waitFor(
      async () => {
        const now = await pagesRead();
        const same = now === asked;
        asked = now;
        expect(same).toBe(true);
      },
      { timeout: 15_000, interval: 500 },
    );
    // The export has a hundred pages of 300 KB, of which one fills the pipe. Each is two scripts.
    expect(asked - before).toBeLessThan(40);

    let count = 0;
    child.stdout.on('data', (bytes: Buffer) => {
      for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) count++;
    });
    child.stdout.resume();
    const [code] = await once(child, 'close');
    // With the API, 21 audit events, the header, the settings, the end, and a place after each of 102 pages.
    expect({ code, count }).toEqual({ code: 0, count: 10_127 });
  });

  test('of data of version 5 an import rejects what needs version 6, and takes the rest', async () => {
    const { workspaceId } = await store.workspaces.create('earlier');
    const apiId = await store.apis.create(workspaceId, 'earlier', cliActor);
    const socket = redis.url.slice('unix:'.length);
    for (const command of ['hset tg:data version 5', 'set tg:form 5']) {
      expect(spawnSync('redis-cli', ['-s', socket, ...command.split(' ')]).status).toBe(0);
    }
    const allowedIps = ['10.0.0.0/8'];
    const credits = { remaining: 0, debt: 5 };
    const lines = [{ name: 'any' }, { name: 'some', allowedIps }, { name: 'owing', credits }].map((fields) => ({
      apiId,
      hash: hashOf(newSecret()),
      ...fields,
    }));
    const overrides = [1, 2].map((number) => ({
      kind: 'override',
      overrideId: `rlor_${'1'.repeat(15)}${number}`,
      namespace: 'earlier',
      identifier: `${number}`,
      limit: 1,
      duration: 1000,
      ...(number === 2 && { until: Date.now() + 60_000 }),
    }));
    const identities = [
      { kind: 'identity', externalId: 'plain' },
      { kind: 'identity', externalId: 'prepaid', credits: { remaining: 5 } },
      { kind: 'identity', externalId: 'metered', ratelimits: [{ name: 'tokens', limit: 5, period: 'day' }] },
    ];
    const own = { REDIS_URL: redis.url };
    const text = textOf([...overrides, ...identities, ...lines]);
    const { out, err } = await runCli(['import', '-', '--workspace', workspaceId], own, text);
    const { items: made } = await store.identities.list(workspaceId, { count: 10 });
    expect(made.map(({ externalId }) => externalId)).toEqual(['plain']);
    for (const field of ['allowedIps', 'credits.debt', 'credits', 'until'])
      expect(`${out}${err}`).toContain(`${field} needs version 6 of the stored data, and it has version 5`);
    expect(`${out}${err}`).toContain('period needs version 8 of the stored data, and it has version 5');
    const { items } = (await store.keys.list(workspaceId, { apiId, count: 10 }))!;
    expect(items.map(({ name }) => name)).toEqual(['any']);
    const found = (await store.overrides.list(workspaceId, { namespace: 'earlier', count: 10 }))!;
    expect(found.items.map(({ identifier }) => identifier)).toEqual(['1']);
  });

  thoroughTest('an unreachable Redis ends an import with its position and what to do', async () => {
    const { workspaceId } = await store.workspaces.create('interrupted');
    const apiId = await store.apis.create(workspaceId, 'interrupted', cliActor);
    const lines = (count: number) =>
      textOf(Array.from({ length: count }, () => ({ apiId, hash: hashOf(newSecret()) })));
    const child = spawnCli(['import', '-', '--workspace', workspaceId], { TOLLGATE_DATA_DIR: dataDir });
    let err = '';
    child.stderr.on('data', (text) => (err += text));
    child.stdin.on('error', () => {});
    child.stdin.write(lines(600));
    await vi.waitFor(async () => {
      const { items } = await store.apis.list(workspaceId, { count: 1 });
      expect(items[0]!.keyCount).toBe(500);
    }, waiting);
    await redis.stop();
    child.stdin.end(lines(1000));
    const [code] = await once(child, 'close');
    expect(code).toBe(4);
    expect(err).toMatch(/tollgate: The import stopped after line 500: .* Run the same command again; .*\n$/);
  });
});

describe('progress', () => {
  const input = textOf(Array.from({ length: 10 }, () => ({ hash: hashOf(newSecret()) })));

  test('is plain lines where there is no terminal', async () => {
    const { workspaceId } = await createWorkspace();
    const file = newFile();
    writeFileSync(file, input);
    const { err } = await cli(['import', file, '--workspace', workspaceId]);
    expect(err).toMatch(/^(import: \d+ %, [\d,]+ lines, \d+s\n)+$/);
    expect(err).toMatch(/import: 100 %, 10 lines, \d+s\n$/);
  });

  test.skipIf(spawnSync('script', ['--version']).status !== 0)('is a bar on a terminal', async () => {
    const { workspaceId } = await createWorkspace();
    const file = newFile();
    writeFileSync(file, input);
    const command = `${process.execPath} ${cliFile} import ${file} --workspace ${workspaceId}`;
    const { stdout } = spawnSync('script', ['-qec', command, '/dev/null'], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, TERM: 'xterm', ...env() },
    });
    expect(stdout).toContain('import ████████████████████████ 100 %');
  });
});

test.each([
  [['export', '--workspace', 'ws_nothing'], /^tollgate: There is no workspace ws_nothing\./],
  [['import', '-', '--workspace', 'ws_nothing'], /^tollgate: There is no workspace ws_nothing\./],
  [['import', '--workspace', 'ws_1'], /^error: missing required argument 'file'/],
])('%j is refused', async (args, line) => {
  await refused(cli(args), line);
});

test('lines without a workspace need one', async () => {
  await refused(
    cli(['import', '-'], textOf([{ kind: 'permission', slug: 'docs.read', name: 'Read' }])),
    /The import stopped after line 0: There are \d+ workspaces\. Name one with --workspace:/,
  );
});

test('a missing API or file is refused in one line', async () => {
  const of = ['--workspace', tollgate.workspaceId];
  expect((await cli(['export', ...of, '--api', 'api_nothing'])).err).toMatch(
    /^tollgate: There is no API api_nothing in ws_/,
  );
  expect((await cli(['import', '-', ...of, '--api', 'api_nothing'])).err).toMatch(
    /^tollgate: There is no API api_nothing in ws_/,
  );
  expect((await cli(['import', join(dir, 'absent'), ...of])).err).toMatch(/^tollgate: There is no file .*absent\.\n$/);
  expect((await cli(['export', ...of, '--resume'])).err).toMatch(/^tollgate: --resume needs the file/);
});

describe('a workspace without room', () => {
  const keyLines = (count: number, apiId: string) =>
    textOf(Array.from({ length: count }, () => ({ apiId, hash: hashOf(newSecret()), byteLength: 24 })));
  const run = (text: string, workspaceId: string, ...options: string[]) =>
    runCli(['import', '-', '--workspace', workspaceId, ...options], { ...env(), RECORDS_MAX: '20' }, text);

  test('a full workspace ends the import with the reason and how to continue; a dry run reports it first', async () => {
    const { workspaceId, apiId } = await withApi();
    const lines = keyLines(30, apiId);
    // The root key and the API exist already.
    const dry = await run(lines, workspaceId, '--dry-run');
    expect(dry.code).toBe(1);
    expect(dry.err).toContain('12 of these exceed the maximum of 20 records per workspace (RECORDS_MAX).');
    const { code, err } = await run(lines, workspaceId);
    expect(code).toBe(4);
    expect(err).toContain('The import stopped after line 0: The workspace may have at most 20 records');
    expect(err).toContain('RECORDS_MAX. Run the same command again');
    expect(await keysIn(workspaceId)).toBe(0);
    const fits = await run(keyLines(18, apiId), workspaceId);
    expect(fits.code).toBe(0);
    expect(await keysIn(workspaceId)).toBe(18);
  });
});

test('imported keys of unknown length are counted, as a hash does not contain the length of its key', async () => {
  const { workspaceId, apiId } = await withApi();
  const lines = textOf([
    { apiId, hash: hashOf(newSecret()) },
    { apiId, hash: hashOf(newSecret()), byteLength: 16 },
    { apiId, hash: hashOf(newSecret()), start: 'sk_' },
  ]);
  expect(await importInto(workspaceId, lines, '--dry-run')).toMatchObject({ unknownLength: 2 });
  const { err } = await cli(['import', '-', '--workspace', workspaceId], lines);
  expect(err).toContain('Issued elsewhere: 2 of the keys.');
  // Existing keys are not counted.
  expect(await importInto(workspaceId, lines)).not.toHaveProperty('unknownLength');
});

test('usage of a key that is too large to be read at once is left out, and the rest is exported', async () => {
  const { workspaceId, rootKey } = await withApi();
  const { items } = await tollgate.store.apis.list(workspaceId, { count: 1 });
  const apiId = items[0]!.id;
  const create = async () => (await ok('keys.createKey', { apiId }, rootKey)).keyId;
  const [large, used] = [await create(), await create()];
  const hour = Math.floor(clock.now / 3_600_000);
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  for (const [keyId, hours] of [
    [large, 210_000],
    [used, 1],
  ] as const) {
    const { name, log } = keyLogOf(
      workspaceId,
      keyId,
      Array.from({ length: hours }, () => hour),
    );
    await redis.set(name, log);
  }
  await redis.quit();
  const { code, out, err } = await cli(['export', '--workspace', workspaceId, '-']);
  expect(code).toBe(1);
  expect(err).toContain(`The usage of ${large} was left out: it has more than 4 MB.\n`);
  const lines = linesOf(out);
  const idsOf = (wanted: string) => lines.flatMap(({ kind, keyId }) => (kind === wanted ? [keyId] : []));
  expect(idsOf('keyUsage')).toEqual([used]);
  expect(idsOf('key')).toEqual([large, used]);
  expect(lines.at(-1)).toMatchObject({ kind: 'end' });
});
