// The promise to users of the official SDK: they change `serverURL` and nothing else. A real `@unkey/api` against a
// real socket, which checks every response against its own schemas, and throws if one does not match. These are the
// values that its methods have beyond the one call of each in methods.ts.

import { Unkey } from '@unkey/api';
import * as errors from '@unkey/api/models/errors';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const tollgate = harness();
const { clock } = tollgate;

let server: Awaited<ReturnType<typeof serveStore>>;
let unkey: Unkey;
beforeAll(async () => {
  server = await serveStore(tollgate.store);
  unkey = new Unkey({ rootKey: tollgate.rootKey, serverURL: server.url });
});
afterAll(() => server.close());

const newApi = async () => (await unkey.apis.createApi({ name: 'by the SDK' })).data.apiId;
const newKey = async (more: object = {}) => {
  const apiId = await newApi();
  return { apiId, ...(await unkey.keys.createKey({ apiId, ...more })).data };
};

const full = {
  prefix: 'sdk',
  name: 'all of it',
  byteLength: 24,
  externalId: 'bob',
  meta: { plan: 'pro', limits: [1, null] },
  expires: 4_000_000_000_000,
  enabled: true,
  credits: { remaining: 100, refill: { interval: 'monthly' as const, amount: 100, refillDay: 15 } },
  ratelimits: [{ name: 'requests', limit: 10, duration: 60_000, autoApply: true }],
  permissions: ['documents.read', 'documents.write'],
};

test('createKey, getKey, whoami: all fields of a key', async () => {
  const { keyId, key } = await newKey(full);
  expect(key).toMatch(/^sdk_/);
  const { data } = await unkey.keys.getKey({ keyId });
  // The SDK omits fields that it does not know, such as apiId.
  expect(data).toEqual({
    keyId,
    start: key.slice(0, 8),
    enabled: true,
    createdAt: clock.now,
    name: full.name,
    meta: full.meta,
    expires: full.expires,
    credits: full.credits,
    permissions: full.permissions,
    identity: expect.objectContaining({ externalId: 'bob' }),
    ratelimits: [{ id: expect.stringMatching(/^rl_/), ...full.ratelimits[0] }],
  });
  expect((await unkey.keys.whoami({ key })).data).toEqual(data);
});

test('verifyKey: every outcome', async () => {
  const { keyId, key } = await newKey(full);
  const { data } = await unkey.keys.verifyKey({
    key,
    permissions: 'documents.read AND (documents.write OR admin)',
    credits: { cost: 3 },
    ratelimits: [{ name: 'requests', cost: 2 }],
    tags: ['path=/v1'],
  });
  expect(data).toEqual({
    valid: true,
    code: 'VALID',
    keyId,
    enabled: true,
    name: full.name,
    meta: full.meta,
    expires: full.expires,
    credits: 97,
    permissions: full.permissions,
    identity: expect.objectContaining({ externalId: 'bob' }),
    ratelimits: [
      expect.objectContaining({ name: 'requests', exceeded: false, limit: 10, remaining: 8, autoApply: true }),
    ],
  });

  const code = async (request: object) => (await unkey.keys.verifyKey({ key, ...request })).data.code;
  expect(await code({ permissions: 'admin' })).toBe('INSUFFICIENT_PERMISSIONS');
  expect(await code({ ratelimits: [{ name: 'requests', cost: 11 }] })).toBe('RATE_LIMITED');
  expect(await code({ credits: { cost: 98 } })).toBe('USAGE_EXCEEDED');
  expect(await code({ key: 'unknown' })).toBe('NOT_FOUND');
  await unkey.keys.updateKey({ keyId, expires: 0 });
  expect(await code({})).toBe('EXPIRED');
  await unkey.keys.updateKey({ keyId, enabled: false });
  expect(await code({})).toBe('DISABLED');
});

test('updateKey: values, and nulls that remove them', async () => {
  const { keyId } = await newKey(full);
  await unkey.keys.updateKey({ keyId, name: 'new', externalId: 'carol', meta: { a: 1 }, credits: { remaining: 5 } });
  expect((await unkey.keys.getKey({ keyId })).data).toMatchObject({
    name: 'new',
    meta: { a: 1 },
    identity: { externalId: 'carol' },
    credits: { remaining: 5, refill: { amount: 100 } },
    updatedAt: clock.now,
  });
  await unkey.keys.updateKey({ keyId, name: null, externalId: null, meta: null, expires: null, credits: null });
  const { data } = await unkey.keys.getKey({ keyId });
  for (const gone of ['name', 'identity', 'meta', 'expires', 'credits']) expect(data).not.toHaveProperty(gone);
});

test('updateCredits', async () => {
  const { keyId } = await newKey({ credits: { remaining: 10 } });
  const update = async (operation: 'set' | 'increment' | 'decrement', value: number | null) =>
    (await unkey.keys.updateCredits({ keyId, operation, value })).data.remaining;
  expect(await update('increment', 5)).toBe(15);
  expect(await update('decrement', 20)).toBe(0);
  expect(await update('set', 7)).toBe(7);
  expect(await update('set', null)).toBeNull();
});

test('migrateKeys', async () => {
  const apiId = await newApi();
  const hash = Buffer.alloc(32, 7).toString('base64');
  const keys = [{ hash, name: 'imported' }];
  const { data } = await unkey.keys.migrateKeys({ migrationId: 'from_elsewhere', apiId, keys });
  expect(data).toEqual({ migrated: [{ hash, keyId: expect.any(String) }], failed: [] });
  const again = await unkey.keys.migrateKeys({ migrationId: 'from_elsewhere', apiId, keys });
  expect(again.data).toEqual({ migrated: [], failed: [hash] });
});

test('an error has the id of its request', async () => {
  const error = await unkey.keys.getKey({ keyId: 'key_unknown' }).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(errors.NotFoundErrorResponse);
  const { meta, headers } = error as errors.NotFoundErrorResponse;
  expect(meta.requestId).toBe(headers.get('x-request-id'));
});
