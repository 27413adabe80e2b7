import { crc32 } from 'node:zlib';
import { base58 } from '@scure/base';
import { beforeAll, describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { namesLike, testRedisUrl } from '../../support/redis.ts';

const app = harness();
const { clock, call, ok, send, createKey, createRootKey } = app;

let apiId: string;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
});

const create = (input: object, as?: string | string[]) => call('keys.createKey', { apiId, ...input } as never, as);
const read = (keyId: string) => ok('keys.getKey', { keyId });
const created = async (input: object) => read((await createKey({ apiId, ...input })).keyId);

describe('keys.createKey: 200: the record', () => {
  test('a key created without fields has only the defaults', async () => {
    const { keyId, key } = await createKey({ apiId });
    expect(await read(keyId)).toEqual({ keyId, apiId, start: key.slice(0, 4), enabled: true, createdAt: clock.now });
  });

  test('empty fields are left out of the record', async () => {
    const record = await created({ meta: {}, ratelimits: [], permissions: [], roles: [] });
    expect(Object.keys(record).sort()).toEqual(['apiId', 'createdAt', 'enabled', 'keyId', 'start']);
  });

  test('null credits are unlimited', async () => {
    expect(await created({ credits: { remaining: null } })).not.toHaveProperty('credits');
  });

  test('a balance of 0 is a balance', async () => {
    expect(await created({ credits: { remaining: 0 } })).toMatchObject({ credits: { remaining: 0 } });
  });

  test('a daily refill has no day; the default of a monthly one is the first', async () => {
    const daily = { remaining: 1, refill: { interval: 'daily', amount: 2 } };
    const monthly = { remaining: 1, refill: { interval: 'monthly', amount: 2 } };
    expect((await created({ credits: daily })).credits).toEqual(daily);
    expect((await created({ credits: monthly })).credits?.refill).toEqual({ ...monthly.refill, refillDay: 1 });
  });

  test('autoApply is false when left out', async () => {
    const record = await created({ ratelimits: [{ name: 'requests', limit: 5, duration: 1000 }] });
    expect(record.ratelimits).toMatchObject([{ autoApply: false }]);
  });

  test('a permission given twice counts once', async () => {
    const record = await created({ permissions: ['pages.read', 'pages.write', 'pages.read'] });
    expect(record.permissions).toEqual(['pages.read', 'pages.write']);
  });

  test('permissions are case-sensitive', async () => {
    const record = await created({ permissions: ['Case.read', 'case.read'] });
    expect(record.permissions).toEqual(['Case.read', 'case.read']);
  });

  test('an existing externalId links its identity; externalIds are case-sensitive', async () => {
    const first = await created({ externalId: 'alice' });
    const second = await created({ externalId: 'alice' });
    const other = await created({ externalId: 'Alice' });
    expect(second.identity).toEqual(first.identity);
    expect(other.identity?.id).not.toBe(first.identity?.id);
  });

  test('a time of expiry in the past creates an expired key, 1970 included', async () => {
    for (const expires of [0, 1, clock.now]) {
      const { key, keyId } = await createKey({ apiId, expires });
      expect((await read(keyId)).expires).toBe(expires);
      expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'EXPIRED', expires });
    }
  });

  test('ascending ids are the order of creation, also within a millisecond', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.push((await createKey({ apiId })).keyId);
    clock.advance(1);
    ids.push((await createKey({ apiId })).keyId);
    expect(ids.toSorted()).toEqual(ids);
    for (const id of ids) expect(id).toMatch(/^key_[1-9A-HJ-NP-Za-km-z]{16,}$/);
  });
});

describe('keys.createKey: 200: the key string', () => {
  function parse(key: string) {
    const body = key.slice(0, -6);
    let checksum = '';
    for (let rest = crc32(body); checksum.length < 6; rest = Math.floor(rest / 58)) {
      checksum = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'[rest % 58] + checksum;
    }
    return { body, checksum, ending: key.slice(-6) };
  }

  test('is 16 random bytes in base58 and a checksum of the text before it', async () => {
    const { key } = await createKey({ apiId });
    const { body, checksum, ending } = parse(key);
    expect(base58.decode(body)).toHaveLength(16);
    expect(ending).toBe(checksum);
  });

  test('the prefix comes first, and the checksum covers it', async () => {
    const { key } = await createKey({ apiId, prefix: 'my_app' });
    const { body, checksum, ending } = parse(key);
    expect(body.startsWith('my_app_')).toBe(true);
    expect(base58.decode(body.slice('my_app_'.length))).toHaveLength(16);
    expect(ending).toBe(checksum);
  });

  test.each([16, 255])('has %i random bytes for that byteLength', async (byteLength) => {
    const { key } = await createKey({ apiId, byteLength });
    expect(base58.decode(parse(key).body)).toHaveLength(byteLength);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('never repeats', async () => {
    const keys = await Promise.all(Array.from({ length: 50 }, () => createKey({ apiId })));
    expect(new Set(keys.map(({ key }) => key)).size).toBe(50);
    expect(new Set(keys.map(({ keyId }) => keyId)).size).toBe(50);
  });

  test('is not stored in Redis, nor is its random part', async () => {
    const { key, keyId } = await createKey({ prefix: 'secret', name: 'needle' });
    await ok('keys.verifyKey', { key });
    await ok('keys.whoami', { key });
    const stored = await everythingStored();
    expect(stored).toContain('needle');
    expect(stored).toContain(keyId);
    expect(stored).not.toContain(key.slice('secret_'.length + 4, -6));
  });

  async function everythingStored(): Promise<string> {
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    try {
      const parts: unknown[] = [];
      for (const name of await namesLike(redis, `*${app.workspaceId}*`)) {
        const type = await redis.type(name);
        if (type === 'hash') parts.push(await redis.callBuffer('HGETALL', name));
        else if (type === 'zset') parts.push(await redis.callBuffer('ZRANGE', name, '0', '-1'));
        else if (type === 'stream') parts.push(await redis.callBuffer('XRANGE', name, '-', '+'));
        else if (type === 'set') parts.push(await redis.callBuffer('SMEMBERS', name));
        else if (type === 'list') parts.push(await redis.callBuffer('LRANGE', name, '0', '-1'));
        else if (type === 'string') parts.push(await redis.callBuffer('GET', name));
        else throw new Error(`cannot read a ${type}`);
        parts.push(name);
      }
      return Buffer.concat((parts as never[]).flat(9)).toString('latin1');
    } finally {
      redis.disconnect();
    }
  }
});

describe('keys.createKey: bounds', () => {
  const limit = { name: 'requests', limit: 1, duration: 1000 };
  const most = Number.MAX_SAFE_INTEGER;
  const properties = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, i]));
  /** Metadata of this many bytes as JSON. */
  const metaOf = (bytes: number) => ({ a: 'x'.repeat(bytes - '{"a":""}'.length) });
  const many = <T>(count: number, item: (i: number) => T) => Array.from({ length: count }, (_, i) => item(i));

  test.each<[string, object]>([
    ['a prefix of 1', { prefix: 'a' }],
    ['a prefix of 16', { prefix: 'aZ_9'.repeat(4) }],
    ['a name of 255', { name: 'x'.repeat(255) }],
    ['a name of 255 characters outside the basic plane', { name: '😀'.repeat(255) }],
    ['a name that is a NUL', { name: '\0' }],
    ['an externalId of 255', { externalId: 'aZ9_.-'.padEnd(255, 'x') }],
    ['metadata of 100 properties', { meta: properties(100) }],
    ['metadata of 10 240 bytes', { meta: metaOf(10_240) }],
    ['expires at its most', { expires: 4_102_444_800_000 }],
    ['the largest balance', { credits: { remaining: most } }],
    ['the largest refill', { credits: { remaining: 0, refill: { interval: 'daily', amount: most } } }],
    [
      'the 31st as refill day',
      { credits: { remaining: 0, refill: { interval: 'monthly', amount: 1, refillDay: 31 } } },
    ],
    ['50 limits', { ratelimits: many(50, (i) => ({ ...limit, name: `limit${i}` })) }],
    ['a limit name of 3', { ratelimits: [{ ...limit, name: 'abc' }] }],
    ['a limit name of 128', { ratelimits: [{ ...limit, name: '😀'.repeat(128) }] }],
    ['the largest limit and duration', { ratelimits: [{ ...limit, limit: most, duration: most }] }],
    ['a permission of 3', { permissions: ['a.b'] }],
    ['a permission of 100, of every character', { permissions: ['aZ9_:.*-'.padEnd(100, 'x')] }],
    ['1000 permissions', { permissions: many(1000, (i) => `bulk.${i}`) }],
    ['recoverable: false', { recoverable: false }],
  ])('accepts %s and returns it', async (_title, input) => {
    const answer = await create(input);
    expect(answer.status).toBe(200);
    const { recoverable: _, ...expected } = input as { recoverable?: boolean };
    expect(await read(answer.data.keyId)).toMatchObject(expected);
  });

  // test/support/keyExamples.ts has those of fields that can be changed.
  test.each<[string, object, string]>([
    ['an API id of 2', { apiId: 'ap' }, 'body.apiId'],
    ['an API id of 256', { apiId: 'a'.repeat(256) }, 'body.apiId'],
    ['an API id with a dash', { apiId: 'api-1' }, 'body.apiId'],
    ['an empty prefix', { prefix: '' }, 'body.prefix'],
    ['a prefix of 17', { prefix: 'a'.repeat(17) }, 'body.prefix'],
    ['a prefix with a dash', { prefix: 'a-b' }, 'body.prefix'],
    ['a prefix that ends in a line break', { prefix: 'a\n' }, 'body.prefix'],
    ['a null API id', { apiId: null }, 'body.apiId'],
    ['byteLength 15', { byteLength: 15 }, 'body.byteLength'],
    ['byteLength 256', { byteLength: 256 }, 'body.byteLength'],
    ['half a byte', { byteLength: 16.5 }, 'body.byteLength'],
    ['credits without remaining', { credits: {} }, 'body.credits.remaining'],
    ['a null refill', { credits: { remaining: 1, refill: null } }, 'body.credits.refill'],
    ['a permission of 2', { permissions: ['ab'] }, 'body.permissions[0]'],
    ['a permission of 101', { permissions: ['x'.repeat(101)] }, 'body.permissions[0]'],
    ['a recoverable key', { recoverable: true }, 'body.recoverable'],
  ])('400 for %s, naming the field', async (_title, input, location) => {
    expect(await create({ name: 'refused', ...input })).toMatchObject(invalidAt(location));
  });

  test('400 for an own property named __proto__', async () => {
    const answer = await send('/v2/keys.createKey', { body: `{"apiId":"${apiId}","__proto__":{}}` });
    expect(answer.json.error).toMatchObject({ status: 400, errors: [{ location: 'body.__proto__' }] });
  });

  test('1.0 and 1e3 are integers', async () => {
    const body = `{"apiId":"${apiId}","expires":4e12,"credits":{"remaining":1.0}}`;
    const { json } = await send('/v2/keys.createKey', { body });
    expect(await read(json.data.keyId)).toMatchObject({ expires: 4_000_000_000_000, credits: { remaining: 1 } });
  });
});

describe('keys.createKey: permissions of the caller', () => {
  test('403 for a permission that does not exist yet, without create_permission; nothing is created', async () => {
    const own = (await ok('apis.createApi', { name: 'own' })).apiId;
    const input = { apiId: own, externalId: 'nobody_403', permissions: ['known.slug', 'unheard.of'] };
    await created({ permissions: ['known.slug'] });
    const rootKey = await createRootKey(['api.*.create_key']);

    const answer = await create(input, rootKey);
    expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    expect(answer.error.detail).toContain('rbac.*.create_permission');
    expect(await ok('apis.listKeys', { apiId: own })).toEqual([]);
    expect((await create(input, rootKey)).status).toBe(403);
    expect((await create({ permissions: ['known.slug'] }, rootKey)).status).toBe(200);
  });
});

describe('keys.createKey: 404', () => {
  test('for a role that does not exist; neither key nor permission is created', async () => {
    const own = (await ok('apis.createApi', { name: 'own' })).apiId;
    const answer = await create({ apiId: own, roles: ['nobody'], permissions: ['not.made'] });
    expect(answer).toMatchObject({ status: 404, code: 'role_not_found' });
    expect(await ok('apis.listKeys', { apiId: own })).toEqual([]);
    expect((await create({ permissions: ['not.made'] }, ['api.*.create_key'])).status).toBe(403);
  });
});
