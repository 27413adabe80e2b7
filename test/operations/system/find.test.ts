import { createHash } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { apisKey, workspaceKey } from '../../../src/redis/names.ts';
import { harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { testRedisUrl } from '../../support/redis.ts';

const app = harness();
const { call, ok } = app;

const find = async (text: string, as?: string | string[]) => {
  const { status, data } = await call('system.find', { text }, as);
  expect(status).toBe(200);
  return data.items;
};

let apiId: string;
let key: { keyId: string; key: string };
let item: object;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'Payments EU' }));
  key = await ok('keys.createKey', { apiId, prefix: 'pay', name: 'laptop', externalId: 'ada.l' });
  const { start } = await ok('keys.getKey', { keyId: key.keyId });
  item = { kind: 'key', id: key.keyId, name: 'laptop', start, externalId: 'ada.l', apiId };
});
const hashOf = (text: string, encoding: 'hex' | 'base64') => createHash('sha256').update(text).digest(encoding);

describe('system.find: 200', () => {
  test('a key by its id, its whole string, and the hash of that, with space around the text', async () => {
    const texts = [key.keyId, hashOf(key.key, 'hex'), hashOf(key.key, 'hex').toUpperCase(), hashOf(key.key, 'base64')];
    for (const text of [...texts, texts[3]!.replace('=', ''), ` ${key.keyId}\n`])
      expect(await find(text), text).toEqual([{ ...item, exact: true }]);
    expect(await find(key.key)).toEqual([{ ...item, exact: true }]);
  });

  test('keys by the beginning of their string, the newest first, also deleted ones', async () => {
    const made: string[] = [];
    const strings: string[] = [];
    for (let index = 0; index < 3; index++) {
      const { keyId, key } = await ok('keys.createKey', { apiId, prefix: 'started' });
      made.push(keyId);
      strings.push(key);
    }
    await ok('keys.deleteKey', { keyId: made[1]! });
    const found = await find('started_');
    expect(found.map(({ id }) => id)).toEqual([made[2], made[0], made[1]]);
    expect(found.map(({ exact, deleted }) => [exact, deleted])).toEqual([
      [false, undefined],
      [false, undefined],
      [false, true],
    ]);
    for (const text of [made[1]!, strings[1]!])
      expect(await find(text)).toMatchObject([{ id: made[1], exact: true, deleted: true }]);
  });

  test('an identity by externalId and id, a plan, an API by id and a part of its name, a root key', async () => {
    const { identityId } = await ok('identities.createIdentity', { externalId: 'found.once' });
    const identity = { kind: 'identity', id: identityId, externalId: 'found.once', exact: true };
    expect(await find('found.once')).toEqual([identity]);
    expect(await find(identityId)).toEqual([identity]);
    await ok('plans.createPlan', { planId: 'found-plan' });
    expect(await find('found-plan')).toEqual([{ kind: 'plan', id: 'found-plan', exact: true }]);
    const api = { kind: 'api', id: apiId, name: 'Payments EU' };
    expect(await find('payments')).toEqual([{ ...api, exact: false }]);
    expect(await find('Payments EU')).toEqual([{ ...api, exact: true }]);
    expect(await find(apiId)).toEqual([{ ...api, exact: true }]);
    for (const name of ['first', 'second']) {
      const { rootKeyId } = await ok('rootKeys.createRootKey', { name, permissions: ['api.*.read_api'] });
      const start = expect.stringMatching(/^root_/);
      expect(await find(rootKeyId)).toEqual([{ kind: 'rootKey', id: rootKeyId, name, start, exact: true }]);
    }
  });

  test('a hold with its key', async () => {
    const { hold } = await ok('keys.verifyKey', { key: key.key, hold: { ttl: hourMs } });
    const held = { ...item, kind: 'hold', id: hold!.id, exact: true };
    expect(await find(hold!.id)).toEqual([held, { ...item, exact: false }]);
  });

  test('exact records are first, each record is there once, and there are at most twenty', async () => {
    for (let index = 0; index < 25; index++) await ok('keys.createKey', { apiId, prefix: 'many' });
    const { identityId } = await ok('identities.createIdentity', { externalId: 'many' });
    const found = await find('many');
    expect(found).toHaveLength(20);
    expect(found[0]).toMatchObject({ kind: 'identity', id: identityId });
    expect(new Set(found.map(({ id }) => id)).size).toBe(20);
  });

  test('nothing for unknown texts, texts of other forms, and records of another workspace', async () => {
    const elsewhere = await app.openWorkspace();
    const there = await elsewhere.of('apis.createApi', { name: 'elsewhere' });
    const foreign = await elsewhere.of('keys.createKey', { apiId: there.apiId, externalId: 'foreign' });
    const unknown = [
      `key_${'1'.repeat(24)}`,
      `api_${'1'.repeat(16)}`,
      `root_${'1'.repeat(16)}`,
      'a'.repeat(64),
      'ü',
      ' ',
    ];
    const foreigners = [foreign.keyId, foreign.key, 'foreign', there.apiId, `hold_${foreign.keyId.slice(4)}.1`];
    for (const text of [...unknown, ...foreigners, '0'.repeat(512), '*', 'tg:{ws_', '\\', "'"])
      expect(await find(text), text).toEqual([]);
  });
});

test('an API by its whole name, also if many older names contain it', async () => {
  const { of, rootKey } = await app.openWorkspace();
  for (let index = 0; index < 22; index++) await of('apis.createApi', { name: `Mail ${index}` });
  const { apiId: exactId } = await of('apis.createApi', { name: 'mail' });
  const found = await find('mail', rootKey);
  expect(found).toHaveLength(20);
  expect(found[0]).toEqual({ kind: 'api', id: exactId, name: 'mail', exact: true });
  // A root key of one API finds it, by any part of the name.
  const { key } = await of('rootKeys.createRootKey', { permissions: [`api.${exactId}.read_api`] });
  for (const text of ['mail', 'Mail', 'AI', exactId.slice(4, 12)])
    expect(await find(text, key), text).toEqual([{ kind: 'api', id: exactId, name: 'mail', exact: text === 'mail' }]);
  expect(await find('Mail 1', key)).toEqual([]);
});

test('a key by its whole string of more than 256 characters', async () => {
  const long = `imported_${'x'.repeat(400)}`;
  const hash = hashOf(long, 'base64');
  const { migrated } = await ok('keys.migrateKeys', {
    migrationId: 'long',
    apiId,
    keys: [{ hash, enabled: true }],
  });
  expect(await find(long)).toMatchObject([{ kind: 'key', id: migrated[0]!.keyId, exact: true }]);
});

test('more than 1000 APIs: what is exact is found, and else 400 states that no start is looked up', async () => {
  const { of, rootKey, workspaceId } = await app.openWorkspace();
  const { apiId } = await of('apis.createApi', { name: 'first' });
  const { keyId } = await of('keys.createKey', { apiId, prefix: 'crowd' });
  expect(await find('crowd_', rootKey)).toMatchObject([{ id: keyId }]);
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  // The list of APIs is enough.
  const ids = Array.from({ length: 1000 }, (_, at) => `1111111111111${at + 111}`);
  await redis.zadd(apisKey(workspaceKey(workspaceId)), ...ids.flatMap((id) => ['0', id]));
  await redis.quit();
  expect(await find(keyId, rootKey)).toMatchObject([{ id: keyId, exact: true }]);
  const answer = await call('system.find', { text: 'crowd_' }, rootKey);
  expect(answer).toMatchObject(invalidAt('body.text'));
  expect(answer.error.detail).toContain('1000 APIs');
  expect(answer.error.detail).not.toContain('crowd');
});

describe('system.find: only what the root key may read', () => {
  test('a caller without a grant to read finds nothing', async () => {
    const { hold } = await ok('keys.verifyKey', { key: key.key, hold: { ttl: hourMs } });
    const { rootKeyId } = (await ok('rootKeys.listRootKeys', {}))[0]!;
    for (const text of [key.keyId, key.key, 'pay_', 'ada.l', 'Payments EU', apiId, hold!.id, 'found-plan', rootKeyId])
      expect(await find(text, ['api.*.verify_key']), text).toEqual([]);
  });

  test('a caller that may read the keys of one API finds only these', async () => {
    const other = await ok('apis.createApi', { name: 'Other' });
    const mine = await ok('keys.createKey', { apiId: other.apiId, prefix: 'pay' });
    const grants = [`api.${other.apiId}.read_key`];
    expect((await find('pay_', grants)).map(({ id }) => id)).toEqual([mine.keyId]);
    for (const text of [key.keyId, key.key, apiId, other.apiId]) expect(await find(text, grants), text).toEqual([]);
    expect((await find(mine.key, grants)).map(({ id, exact }) => [id, exact])).toEqual([[mine.keyId, true]]);
  });

  test('each kind has a grant of its own', async () => {
    const { id } = await ok('identities.getIdentity', { identity: 'ada.l' });
    expect(await find('ada.l', [`identity.${id}.read_identity`])).toMatchObject([{ kind: 'identity', id }]);
    expect(await find(apiId, [`api.${apiId}.read_api`])).toMatchObject([{ kind: 'api', id: apiId }]);
    expect(await find('found-plan', ['plan.*.read_plan'])).toMatchObject([{ kind: 'plan' }]);
  });
});

describe('system.find: refusals', () => {
  test.each<[string, object, string]>([
    ['no text', {}, 'body.text'],
    ['an empty text', { text: '' }, 'body.text'],
    ['513 characters', { text: 'x'.repeat(513) }, 'body.text'],
    ['a number', { text: 1 }, 'body.text'],
    ['another field', { text: 'a', kind: 'key' }, 'body.kind'],
  ])('400: %s, which is not repeated', async (_what, input, location) => {
    const answer = await call('system.find', input as never);
    expect(answer).toMatchObject(invalidAt(location));
    expect(JSON.stringify(answer.error)).not.toContain('xxxxx');
  });
});
