// The promise to users of the official SDK: they change `serverURL` and nothing else. A real `@unkey/api` against a
// real socket. The SDK checks every response against its own schemas, and throws if one does not match.

import { Unkey } from '@unkey/api';
import * as errors from '@unkey/api/models/errors';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createId } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { listen, type Server } from '../../src/http/server.ts';
import { operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';

const tollgate = harness();
const { clock } = tollgate;

let server: Server;
let unkey: Unkey;
beforeAll(async () => {
  const answer = createPipeline(operations, {
    store: tollgate.store,
    log: pino({ level: 'silent' }),
    metaBytesMax: 10_240,
  });
  const newRequestId = () => createId('req', clock.now);
  server = await listen({ host: '127.0.0.1', port: 0, handler: answer, bodyBytesMax: 1_000_000, newRequestId });
  unkey = sdk(tollgate.rootKey);
});
afterAll(() => server.close());

const sdk = (rootKey: string) => new Unkey({ rootKey, serverURL: `http://127.0.0.1:${server.port}` });

async function newApi() {
  const { meta, data } = await unkey.apis.createApi({ name: 'by the SDK' });
  expect(meta.requestId).toMatch(/^req_/);
  return data.apiId;
}

const newKey = async (more: object = {}) => {
  const apiId = await newApi();
  return { apiId, ...(await unkey.keys.createKey({ apiId, ...more })).data };
};

describe('APIs', () => {
  test('createApi, getApi, deleteApi', async () => {
    const apiId = await newApi();
    expect((await unkey.apis.getApi({ apiId })).data).toEqual({ id: apiId, name: 'by the SDK' });
    expect((await unkey.apis.deleteApi({ apiId })).data).toEqual({});
    await expect(unkey.apis.getApi({ apiId })).rejects.toThrow(errors.NotFoundErrorResponse);
  });

  test('listKeys, page by page', async () => {
    const { apiId, keyId } = await newKey({ externalId: 'alice', meta: { plan: 'pro' } });
    const keyIds = [keyId];
    for (let index = 0; index < 4; index++) keyIds.push((await unkey.keys.createKey({ apiId })).data.keyId);
    const pages: string[][] = [];
    for await (const page of await unkey.apis.listKeys({ apiId, limit: 2 })) {
      pages.push(page.result.data.map((key) => key.keyId));
    }
    expect(pages.map((page) => page.length)).toEqual([2, 2, 1]);
    expect(pages.flat()).toEqual(keyIds);
    const { result } = await unkey.apis.listKeys({ apiId, externalId: 'alice' });
    expect(result.data).toMatchObject([{ keyId, identity: { externalId: 'alice' }, meta: { plan: 'pro' } }]);
    expect(result.pagination).toEqual({ hasMore: false });
  });
});

describe('keys', () => {
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

  test('rerollKey, deleteKey', async () => {
    const { keyId, key } = await newKey(full);
    const rerolled = (await unkey.keys.rerollKey({ keyId, expiration: 0 })).data;
    expect(rerolled.keyId).not.toBe(keyId);
    expect((await unkey.keys.verifyKey({ key })).data.code).toBe('EXPIRED');
    expect((await unkey.keys.verifyKey({ key: rerolled.key })).data).toMatchObject({ code: 'VALID', name: full.name });
    expect((await unkey.keys.deleteKey({ keyId: rerolled.keyId, permanent: true })).data).toEqual({});
    expect((await unkey.keys.verifyKey({ key: rerolled.key })).data).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('permissions and roles of a key', async () => {
    const { keyId } = await newKey();
    await unkey.permissions.createRole({ name: 'sdk_editor', permissions: ['sdk.edit'] });
    const { data } = await unkey.keys.addPermissions({ keyId, permissions: ['sdk.read', 'sdk.write'] });
    expect(data.map(({ slug }) => slug).sort()).toEqual(['sdk.read', 'sdk.write']);
    const left = (await unkey.keys.removePermissions({ keyId, permissions: ['sdk.read'] })).data;
    expect(left.map(({ slug }) => slug)).toEqual(['sdk.write']);
    expect((await unkey.keys.setPermissions({ keyId, permissions: [] })).data).toEqual([]);
    expect((await unkey.keys.addRoles({ keyId, roles: ['sdk_editor'] })).data).toMatchObject([
      { name: 'sdk_editor', permissions: [{ slug: 'sdk.edit' }] },
    ]);
    expect((await unkey.keys.getKey({ keyId })).data).toMatchObject({
      roles: ['sdk_editor'],
      permissions: ['sdk.edit'],
    });
    expect((await unkey.keys.removeRoles({ keyId, roles: ['sdk_editor'] })).data).toEqual([]);
    expect((await unkey.keys.setRoles({ keyId, roles: [] })).data).toEqual([]);
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
});

describe('rate limits', () => {
  const request = { namespace: 'sdk', identifier: 'alice', limit: 2, duration: 60_000 };

  test('limit', async () => {
    const { data } = await unkey.ratelimit.limit(request);
    expect(data).toEqual({ success: true, limit: 2, remaining: 1, reset: clock.now + 60_001 });
    expect((await unkey.ratelimit.limit({ ...request, cost: 2 })).data).toMatchObject({ success: false, remaining: 1 });
  });

  test('multiLimit', async () => {
    const { data } = await unkey.ratelimit.multiLimit([
      { ...request, identifier: 'bob' },
      { ...request, identifier: 'carol', cost: 3 },
    ]);
    expect(data).toMatchObject({ passed: false, limits: [{ passed: true }, { passed: false }] });
  });

  test('overrides: set, get, list, delete', async () => {
    const override = { namespace: 'sdk', identifier: 'dave', limit: 5, duration: 1000 };
    const { overrideId } = (await unkey.ratelimit.setOverride(override)).data;
    expect((await unkey.ratelimit.limit({ ...request, identifier: 'dave' })).data).toMatchObject({
      limit: 5,
      overrideId,
    });
    const { data } = await unkey.ratelimit.getOverride({ namespace: 'sdk', identifier: 'dave' });
    expect(data).toMatchObject({ overrideId, limit: 5, duration: 1000, identifier: 'dave' });
    await unkey.ratelimit.setOverride({ ...override, identifier: 'erin' });
    const identifiers: string[] = [];
    for await (const page of await unkey.ratelimit.listOverrides({ namespace: 'sdk', limit: 1 })) {
      identifiers.push(...page.result.data.map(({ identifier }) => identifier));
    }
    expect(identifiers).toEqual(['dave', 'erin']);
    expect((await unkey.ratelimit.deleteOverride({ namespace: 'sdk', identifier: 'dave' })).data).toEqual({});
    await expect(unkey.ratelimit.getOverride({ namespace: 'sdk', identifier: 'dave' })).rejects.toThrow(
      errors.NotFoundErrorResponse,
    );
  });
});

describe('identities, permissions and roles', () => {
  test('identities: create, get, list, update, delete', async () => {
    const ratelimits = [{ name: 'requests', limit: 10, duration: 60_000, autoApply: true }];
    const externalId = 'sdk_identity';
    const { identityId } = (await unkey.identities.createIdentity({ externalId, meta: { a: 1 }, ratelimits })).data;
    expect((await unkey.identities.getIdentity({ identity: externalId })).data).toMatchObject({
      id: identityId,
      externalId,
      meta: { a: 1 },
      ratelimits: [{ name: 'requests' }],
    });
    const updated = await unkey.identities.updateIdentity({ identity: identityId, meta: { b: 2 }, ratelimits: [] });
    expect(updated.data).toMatchObject({ id: identityId, meta: { b: 2 } });
    const listed: string[] = [];
    for await (const page of await unkey.identities.listIdentities({ limit: 1 })) {
      listed.push(...page.result.data.map((identity) => identity.externalId));
    }
    expect(listed).toContain(externalId);
    expect((await unkey.identities.deleteIdentity({ identity: identityId })).meta.requestId).toMatch(/^req_/);
    await expect(unkey.identities.deleteIdentity({ identity: identityId })).rejects.toThrow(
      errors.NotFoundErrorResponse,
    );
  });

  test('permissions: create, get, list, delete', async () => {
    const slug = 'sdk.permission';
    const { permissionId } = (await unkey.permissions.createPermission({ name: 'named', slug })).data;
    const { data } = await unkey.permissions.getPermission({ permission: permissionId });
    expect(data).toMatchObject({ id: permissionId, name: 'named', slug });
    const slugs: string[] = [];
    for await (const page of await unkey.permissions.listPermissions({})) {
      slugs.push(...page.result.data.map((permission) => permission.slug));
    }
    expect(slugs).toContain(slug);
    await unkey.permissions.deletePermission({ permission: permissionId });
    await expect(unkey.permissions.getPermission({ permission: slug })).rejects.toThrow(errors.NotFoundErrorResponse);
  });

  test('roles: create, get, list, delete', async () => {
    const { roleId } = (await unkey.permissions.createRole({ name: 'sdk_role', permissions: ['sdk.role'] })).data;
    const { data } = await unkey.permissions.getRole({ role: 'sdk_role' });
    expect(data).toMatchObject({ id: roleId, name: 'sdk_role', permissions: [{ slug: 'sdk.role' }] });
    const names: string[] = [];
    for await (const page of await unkey.permissions.listRoles({})) {
      names.push(...page.result.data.map((role) => role.name));
    }
    expect(names).toContain('sdk_role');
    await unkey.permissions.deleteRole({ role: roleId });
    await expect(unkey.permissions.getRole({ role: 'sdk_role' })).rejects.toThrow(errors.NotFoundErrorResponse);
  });
});

describe('errors are the SDK\u2019s own', () => {
  async function caught(call: Promise<unknown>) {
    const error = await call.then(
      () => undefined,
      (cause: unknown) => cause,
    );
    return error as errors.BadRequestErrorResponse;
  }

  test('400, with the fields that failed', async () => {
    const error = await caught(unkey.keys.createKey({ apiId: 'api_any', name: '' }));
    expect(error).toBeInstanceOf(errors.BadRequestErrorResponse);
    expect(error.statusCode).toBe(400);
    expect(error.error).toMatchObject({
      status: 400,
      type: '/errors/invalid_input',
      errors: [{ location: 'body.name', message: expect.any(String) }],
    });
    expect(error.meta.requestId).toBe(error.headers.get('x-request-id'));
  });

  test('401', async () => {
    const error = await caught(sdk('unknown').apis.createApi({ name: 'new' }));
    expect(error).toBeInstanceOf(errors.UnauthorizedErrorResponse);
    expect(error.error).toMatchObject({ status: 401, title: 'Unauthorized' });
  });

  test('403', async () => {
    const error = await caught(sdk(await tollgate.createRootKey(['api.*.read_api'])).apis.createApi({ name: 'new' }));
    expect(error).toBeInstanceOf(errors.ForbiddenErrorResponse);
    expect(error.error.detail).toContain('api.*.create_api');
  });

  test('404', async () => {
    const error = await caught(unkey.keys.getKey({ keyId: 'key_unknown' }));
    expect(error).toBeInstanceOf(errors.NotFoundErrorResponse);
    expect(error.error).toMatchObject({ status: 404, type: '/errors/key_not_found' });
  });

  test('409', async () => {
    await unkey.identities.createIdentity({ externalId: 'twice' });
    const error = await caught(unkey.identities.createIdentity({ externalId: 'twice' }));
    expect(error).toBeInstanceOf(errors.ConflictErrorResponse);
  });

  test('412, for which verifyKey has no type: the general error', async () => {
    const { key } = await newKey();
    const error = await caught(unkey.keys.verifyKey({ key, ratelimits: [{ name: 'nowhere' }] }));
    expect(error).toBeInstanceOf(errors.APIError);
    expect(error.statusCode).toBe(412);
    expect(JSON.parse(error.body).error.type).toBe('/errors/precondition_failed');
  });
});
