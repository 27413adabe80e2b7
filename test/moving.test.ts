// The table of differences from Unkey in docs/unkey-differences.md: Tollgate's side of each row.

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { digestOf } from '../src/domain/keyString.ts';
import { asUnkey as withUnkeyType } from '../src/domain/unkeyErrors.ts';
import { createGateway, gatewayPath } from '../src/http/gateway.ts';
import { createPipeline } from '../src/http/pipeline.ts';
import { operations } from '../src/operations/index.ts';
import { migrateKeys } from '../src/operations/keys/migrateKeys.ts';
import { harness, hourMs, logOfCauses, type RequestParts, requestTo } from './support/harness.ts';

const h = harness();
const { call, ok, send, createKey, clock } = h;
const verifyPath = '/v2/keys.verifyKey';
const limited = { name: 'requests', limit: 3, duration: hourMs };
const hashOf = (key: string) => digestOf(key).toString('base64');

let keys = 0;
/** Imports a key with these fields. Returns its string. */
async function migrate(fields: object, expected = 200) {
  const { apiId } = await ok('apis.createApi', { name: 'moved' });
  const key = `sk_moved_${++keys}`;
  const answer = await call('keys.migrateKeys', {
    migrationId: 'unkey',
    apiId,
    keys: [{ hash: hashOf(key), ...fields }],
  } as never);
  expect(answer.status, answer.error?.detail).toBe(expected);
  return { key, apiId, ...answer };
}
const verify = async (key: string, more: object = {}) =>
  (await ok('keys.verifyKey', { key, ...more } as never)) as {
    code: string;
    credits?: number;
    ratelimits?: { remaining: number; reset: number }[];
  };
const fields = ({ error }: { error: { errors: { location: string }[] } }) =>
  error.errors.map(({ location }) => location);
/** A request of an operation with a body that no type allows. */
const odd = (operation: Parameters<typeof call>[0], input: unknown, as?: string[]) =>
  call(operation, input as never, as) as Promise<unknown> as Promise<{ status: number; error: never; data: never }>;

type Asked = readonly [operation: Parameters<typeof call>[0], input: unknown, as?: string[]];
/** All of these requests get this status. */
const answers =
  (status: number, ...all: readonly Asked[]) =>
  async () => {
    for (const [operation, input, as] of all)
      expect((await odd(operation, input, as)).status, JSON.stringify(input).slice(0, 200)).toBe(status);
  };
const verifies = (more: object): Asked => ['keys.verifyKey', { key: 'unknown', ...more }];
const withItems = (...items: object[]) => items.map((item) => verifies({ ratelimits: [{ name: 'own', ...item }] }));
const migrates = (status: number, fields: object) => () => migrate(fields, status);

/** Requests with these parts, on the path of verifications unless another is given. */
const sends =
  (status: number, ...all: readonly (RequestParts & { path?: string })[]) =>
  async () => {
    for (const { path = verifyPath, ...parts } of all)
      expect((await send(path, { body: '{"key":"unknown"}', ...parts })).status).toBe(status);
  };

/** By the first cell of their row. */
const tests: Record<string, () => Promise<unknown>> = {
  '`error.type`': async () => {
    expect((await call('keys.getKey', { keyId: 'key_none' })).error).toMatchObject({ type: '/errors/key_not_found' });
    expect(await asUnkey('/v2/keys.getKey', { keyId: 'key_none' })).toMatchObject({
      type: 'https://unkey.com/docs/errors/unkey/data/key_not_found',
      status: 404,
    });
    expect(await asUnkey(verifyPath, { key: 'k', permissions: 'a AND' })).toMatchObject({
      type: 'https://unkey.com/docs/errors/user/bad_request/permissions_query_syntax_error',
    });
    // Those of an outage are one there.
    for (const code of ['store_unavailable', 'store_full'])
      expect(withUnkeyType(code, { type: '', title: '', status: 503 }).type).toBe(
        'https://unkey.com/docs/errors/unkey/application/service_unavailable',
      );
    // One that Unkey does not have.
    expect(await asUnkey('/v2/nothing', {})).toMatchObject({ type: '/errors/route_not_found' });
  },
  'Last part of `error.type`': async () => {
    const query = await odd('keys.verifyKey', { key: 'k', permissions: 'a AND' });
    expect(query).toMatchObject({ status: 400, code: 'permissions_query_syntax' });
    const named = { namespace: 'none', identifier: 'ada' };
    expect((await call('ratelimits.getOverride', named)).code).toBe('namespace_not_found');
    await ok('ratelimits.setOverride', { ...named, namespace: 'some', identifier: 'b', limit: 1, duration: 5000 });
    expect((await call('ratelimits.getOverride', { ...named, namespace: 'some' })).code).toBe('override_not_found');
    expect((await send(verifyPath, { authorization: 'Bearer root_x', body: '{"key":"k"}' })).json.error.type).toBe(
      '/errors/unauthorized',
    );
  },
  '`error.title`': async () => {
    const apiId = 'api_none';
    expect((await call('apis.getApi', { apiId })).error).toMatchObject({ title: 'API not found' });
    expect(await asUnkey('/v2/apis.getApi', { apiId })).toMatchObject({ title: 'Not Found' });
  },
  '`errors[].location`': async () => {
    expect(fields(await odd('apis.createApi', {}))).toEqual(['body.name']);
  },
  '`error.detail` of a body that breaks the schema': async () => {
    expect((await odd('apis.createApi', {})).error).toMatchObject({ detail: expect.stringContaining('body.name') });
  },
  '`errors` of a rule beyond the schema, such as the syntax of a query': async () => {
    expect(fields(await odd('keys.verifyKey', { key: 'k', permissions: 'a AND' }))).toEqual(['body.permissions']);
  },
  '`errors` of an error without fields': async () => {
    expect((await call('keys.getKey', { keyId: 'key_none' })).error.errors).toEqual([]);
  },
  'No `Authorization`, or another scheme than Bearer': sends(
    401,
    ...['', 'Basic abc', 'Bearer '].map((authorization) => ({ authorization })),
  ),
  'Scheme `bearer` in lower case': async () => {
    const authorization = `bearer ${h.rootKey}`;
    expect((await send(verifyPath, { authorization, body: '{"key":"unknown"}' })).status).toBe(200);
  },
  'Content type that is not JSON': sends(415, { contentType: '' }, { contentType: 'text/plain' }),
  'Query string': sends(400, { hasQuery: true }),
  'Long body': async () => {
    // test/http/server.test.ts sends some.
    expect(operations.filter((operation) => 'bodyBytesMax' in operation)).toEqual([migrateKeys]);
    expect(migrateKeys.bodyBytesMax).toBe(10 * 1024 * 1024);
  },
  'Error type without `Accept`': async () => {
    const body = '{"keyId":"key_none"}';
    expect((await send('/v2/keys.getKey', { body, accept: '*/*' })).contentType).toBe('application/json');
    expect((await send('/v2/keys.getKey', { body, accept: 'application/problem+json' })).contentType).toBe(
      'application/problem+json',
    );
  },
  'Error of a body with `Accept: application/problem+json`': async () => {
    const { status, contentType } = await send('/v2/apis.createApi', { accept: 'application/problem+json' });
    expect([status, contentType]).toEqual([400, 'application/problem+json']);
  },
  'Wrong method': sends(405, { method: 'GET' }),
  'Ids of requests': async () => {
    expect((await call('apis.listApis', {})).requestId).toMatch(/^req_\w{16}$/);
  },
  'Order of members of a response': async () => {
    expect((await send('/v2/apis.listApis')).body).toMatch(/^\{"meta":.*,"data":/);
  },
  'Unknown path': sends(404, { path: '/v2/keys.nothing' }),
  'Key string of 16 bytes': async () => {
    // Base58 has no padding, so the length differs with the random number: one key in 35 has 27.
    expect((await createKey({ byteLength: 16 })).key).toMatch(/^[1-9A-HJ-NP-Za-km-z]{27,28}$/);
  },
  'Key string of a rerolled key': async () => {
    const { keyId, key } = await createKey({ prefix: 'sk_live', byteLength: 24 });
    const again = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(again.key).toMatch(/^sk_live_/);
    expect(Math.abs(again.key.length - key.length)).toBeLessThan(2);
  },
  'End of a rerolled key': async () => {
    const { keyId } = await createKey();
    clock.advance(1234);
    await ok('keys.rerollKey', { keyId, expiration: 60_001 });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ expires: clock.now + 60_001 });
  },
  'Record of a key': async () => {
    const { keyId, apiId } = await createKey({ prefix: 'sk', externalId: 'ada' });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ apiId, prefix: 'sk', externalId: 'ada' });
  },
  '`lastUsedAt`': async () => {
    const { keyId, key } = await createKey();
    await verify(key);
    expect((await ok('keys.getKey', { keyId })).lastUsedAt).toBe(clock.now);
  },
  '`updatedAt`': async () => {
    const { keyId } = await createKey({ credits: { remaining: 5 } });
    clock.advance(1000);
    await ok('keys.updateCredits', { keyId, operation: 'increment', value: 1 });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ updatedAt: clock.now });
    clock.advance(1000);
    await ok('keys.addPermissions', { keyId, permissions: ['docs.read'] });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ updatedAt: clock.now });
  },
  Metadata: async () => {
    const { apiId } = await ok('apis.createApi', { name: 'meta' });
    const meta = '{"b":1.0,"a":12345678901234567890}';
    const { json } = await send('/v2/keys.createKey', { body: `{"apiId":"${apiId}","meta":${meta}}` });
    const { body } = await send('/v2/keys.getKey', { body: JSON.stringify({ keyId: json.data.keyId }) });
    expect(body).toContain(`"meta":${meta}`);
  },
  'Metadata of more than 10 KB': async () => {
    const { status, error } = await migrate({ meta: { long: 'x'.repeat(10_240) } }, 400);
    expect([status, fields({ error } as never)]).toEqual([400, ['body.keys[0].meta']]);
  },
  '`credits` in a refusal': async () => {
    const { key } = await createKey({
      credits: { remaining: 1 },
      ratelimits: [{ ...limited, limit: 1, autoApply: true }],
    });
    await verify(key);
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', credits: 0 });
  },
  'Limits of a verification that is USAGE_EXCEEDED': async () => {
    const { key } = await createKey({ credits: { remaining: 0 }, ratelimits: [{ ...limited, autoApply: true }] });
    for (const _ of [1, 2])
      expect(await verify(key)).toMatchObject({ code: 'USAGE_EXCEEDED', ratelimits: [{ remaining: 3 }] });
  },
  '`remaining` when the cost exceeds the limit': async () => {
    const { key } = await createKey({ ratelimits: [limited] });
    const of = await verify(key, { ratelimits: [{ name: 'requests', cost: 4 }] });
    expect(of).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ remaining: 3 }] });
  },
  '`reset`': async () => {
    const { key } = await createKey({ ratelimits: [{ ...limited, autoApply: true }] });
    clock.advance(hourMs / 2);
    const { ratelimits } = await verify(key);
    expect(ratelimits![0]!.reset).toBeGreaterThanOrEqual(clock.now + hourMs);
  },
  'Limit item with only `limit` or only `duration`': answers(400, ...withItems({ limit: 5 }, { duration: 5000 })),
  'Limit name twice in a request': answers(400, verifies({ ratelimits: [{ name: 'own' }, { name: 'own' }] })),
  'Ad hoc limit with `limit: 0`, or a duration below 1000': answers(
    400,
    ...withItems({ limit: 0, duration: 5000 }, { limit: 5, duration: 999 }),
  ),
  '`id` and `autoApply` in a limit item': async () => {
    const { key, keyId } = await createKey({ ratelimits: [limited] });
    const { ratelimits } = await ok('keys.getKey', { keyId });
    const [{ limit: _limit, duration: _duration, ...named }] = ratelimits as unknown as [Record<string, unknown>];
    expect(await verify(key, { ratelimits: [named] })).toMatchObject({ code: 'VALID', ratelimits: [{ remaining: 2 }] });
    // What was read is written back, and is the same limit with its window.
    await ok('keys.updateKey', { keyId, ratelimits } as never);
    expect((await ok('keys.getKey', { keyId })).ratelimits).toEqual(ratelimits);
    expect(await verify(key, { ratelimits: [named] })).toMatchObject({ ratelimits: [{ remaining: 1 }] });
    // An id names nothing: that of another limit changes nothing.
    const other = await createKey({ ratelimits: [{ ...limited, id: ratelimits![0]!.id }] } as never);
    expect((await ok('keys.getKey', { keyId: other.keyId })).ratelimits![0]!.id).not.toBe(ratelimits![0]!.id);
    const identity = { externalId: 'of a read', ratelimits } as never;
    expect((await odd('identities.createIdentity', { ...(identity as object), externalId: 'of_a_read' })).status).toBe(
      200,
    );
    for (const item of [
      { ...limited, id: 5 },
      { ...limited, id: 'x'.repeat(256) },
    ])
      expect((await odd('keys.updateKey', { keyId, ratelimits: [item] })).status).toBe(400);
  },
  'Other unknown members': answers(
    400,
    ['identities.createIdentity', { externalId: 'ada', other: 1 }],
    ...withItems({ other: 1 }),
  ),
  'More than 50 limits, or 100 slugs in a query': answers(
    400,
    verifies({ ratelimits: Array.from({ length: 51 }, (_, index) => ({ name: `limit${index}` })) }),
    verifies({ permissions: Array.from({ length: 101 }, (_, index) => `p${index}`).join(' OR ') }),
  ),
  'Limit name of 129 to 255 characters in a verification': answers(
    400,
    verifies({ ratelimits: [{ name: 'n'.repeat(129) }] }),
  ),
  '`identity.ratelimits` in a verification': async () => {
    await ok('identities.createIdentity', { externalId: 'shadowed', ratelimits: [limited] });
    const { key } = await createKey({ externalId: 'shadowed', ratelimits: [{ ...limited, limit: 9 }] });
    expect(await verify(key)).toMatchObject({ identity: { ratelimits: [limited] } });
  },
  'Malformed query for an unknown key': answers(400, verifies({ permissions: '(' })),
  'Root key that may verify no key': answers(403, ['keys.verifyKey', { key: 'unknown' }, ['api.*.read_key']]),
  'Permission `docs.*` of a key, asked for `docs.read`': async () => {
    const { key } = await migrate({ permissions: ['docs.*'] });
    expect(await verify(key, { permissions: 'docs.read' })).toMatchObject({ code: 'VALID' });
  },
  'Permission `*` of a key': async () => {
    const { key } = await migrate({ permissions: ['*'] });
    expect(await verify(key, { permissions: 'docs.read' })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    expect(await verify(key, { permissions: '*' })).toMatchObject({ code: 'VALID' });
  },
  'Slugs of 1, 2 and 101 to 128 characters': async () => {
    const [short, long] = ['ab', `long${'x'.repeat(124)}`];
    const { keyId, apiId } = await createKey();
    for (const permissions of [[short], ['docs.read', long]]) {
      const at = `body.permissions[${permissions.length - 1}]`;
      expect(fields(await odd('keys.addPermissions', { keyId, permissions }))).toEqual([at]);
      expect(fields(await odd('keys.createKey', { apiId, permissions }))).toEqual([at]);
      expect(fields(await odd('keys.updateKey', { keyId, permissions }))).toEqual([at]);
      expect(fields(await odd('permissions.createRole', { name: 'odd', permissions }))).toEqual([at]);
    }
    expect(fields(await odd('permissions.createPermission', { name: 'x', slug: short }))).toEqual(['body.slug']);
    const { key } = await migrate({ permissions: [short, long] });
    expect(await verify(key, { permissions: `${short} AND ${long}` })).toMatchObject({ code: 'VALID' });
    // Now every operation accepts them.
    await ok('keys.addPermissions', { keyId, permissions: [short, long] });
    await ok('keys.setPermissions', { keyId, permissions: [short] });
    await ok('keys.removePermissions', { keyId, permissions: [short] });
    await ok('keys.createKey', { apiId, permissions: [long] });
    await ok('keys.updateKey', { keyId, permissions: [short, long] });
    await ok('permissions.createRole', { name: 'odd', permissions: [short] });
    await ok('permissions.setRolePermissions', { roleId: 'odd', permissions: [long] });
    expect(await ok('permissions.getPermission', { permission: short })).toMatchObject({ slug: short });
    expect((await ok('keys.listKeys', { permission: long, limit: 10 })).length).toBeGreaterThan(0);
    await ok('permissions.deletePermission', { permission: short });
    expect(fields(await odd('keys.addPermissions', { keyId, permissions: [short] }))).toEqual(['body.permissions[0]']);
    await migrate({ permissions: [`l${long}`] }, 400);
  },
  'Role names of 101 to 128 characters': async () => {
    expect((await odd('permissions.createRole', { name: 'r'.repeat(101) })).status).toBe(400);
    // An operation that names one answers that there is none, and not that it is too long.
    const { keyId } = await createKey();
    expect((await odd('keys.addRoles', { keyId, roles: ['r'.repeat(128)] })).status).toBe(404);
  },
  'Slugs that differ in case': answers(
    200,
    ...['case.read', 'Case.Read'].map((slug): Asked => ['permissions.createPermission', { name: slug, slug }]),
  ),
  'Monthly refill without `refillDay`': async () => {
    const { keyId } = await createKey({ credits: { remaining: 1, refill: { interval: 'monthly', amount: 5 } } });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { refill: { refillDay: 1 } } });
  },
  'Daily refill with `refillDay`': migrates(400, {
    credits: { remaining: 1, refill: { interval: 'daily', amount: 5, refillDay: 3 } },
  }),
  'Balance of 2^53 or more': async () => {
    const { error } = await migrate({ credits: { remaining: 2 ** 53 } }, 400);
    expect(error).toMatchObject({
      errors: [
        {
          location: 'body.keys[0].credits.remaining',
          message: expect.stringContaining('9007199254740991'),
          fix: 'For an unlimited key, send null or leave credits out.',
        },
      ],
    });
    await migrate({ credits: { remaining: 2 ** 53 - 1 } });
  },
  'Two limits of one name': migrates(400, { ratelimits: [limited, limited] }),
  'Limit without `autoApply`': async () => {
    const { keyId } = await createKey({ ratelimits: [limited] });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ ratelimits: [{ autoApply: false }] });
  },
  'Permission twice in a request': async () => {
    const { keyId } = await createKey({ permissions: ['twice.read', 'twice.read'] });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ permissions: ['twice.read'] });
  },
  '`createKey`, `listKeys` without the grant': async () => {
    const { apiId } = await ok('apis.createApi', { name: 'refused' });
    for (const operation of ['keys.createKey', 'apis.listKeys'] as const)
      expect((await odd(operation, { apiId }, ['api.*.verify_key'])).status).toBe(403);
  },
  'Unknown permissions without the right to create them': async () => {
    const { apiId } = await ok('apis.createApi', { name: 'narrow' });
    const permissions = ['not.there'];
    expect((await odd('keys.createKey', { apiId, permissions }, ['api.*.create_key'])).status).toBe(403);
  },
  '`recoverable: true`, `decrypt: true`': async () => {
    const { apiId, keyId } = await createKey();
    expect((await odd('keys.createKey', { apiId, recoverable: true })).status).toBe(400);
    expect((await odd('keys.getKey', { keyId, decrypt: true })).status).toBe(400);
  },
  'Refill of an unlimited key': async () => {
    const { keyId } = await createKey();
    const credits = { refill: { interval: 'daily', amount: 5 } };
    expect((await odd('keys.updateKey', { keyId, credits })).status).toBe(400);
  },
  '`updateKey` with `ratelimits: null`': async () => {
    const { keyId } = await createKey({ ratelimits: [limited] });
    await ok('keys.updateKey', { keyId, ratelimits: null });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('ratelimits');
  },
  '`updateCredits` that sets no value': async () => {
    const { keyId } = await createKey({ credits: { remaining: 1 } });
    expect((await odd('keys.updateCredits', { keyId, operation: 'set' })).status).toBe(400);
  },
  'Ids with other characters': answers(400, ['keys.updateCredits', { keyId: 'key-1', operation: 'set', value: 1 }]),
  '`removeRoles`, `setRoles`: grants': async () => {
    const { keyId } = await createKey();
    await call('permissions.createRole', { name: 'granted' });
    const narrow = ['api.*.update_key'];
    for (const operation of ['keys.removeRoles', 'keys.setRoles'] as const)
      expect((await odd(operation, { keyId, roles: ['granted'] }, narrow)).status).toBe(403);
    const grants = [...narrow, 'rbac.*.remove_role_from_key', 'rbac.*.add_role_to_key'];
    expect((await odd('keys.setRoles', { keyId, roles: ['granted'] }, grants)).status).toBe(200);
  },
  '`migrateKeys`: `failed` of none': async () => {
    expect((await migrate({})).data).toMatchObject({ failed: [] });
  },
  '`migrateKeys`: unknown roles': migrates(404, { roles: ['nobody'] }),
  '`migrateKeys`: unknown `migrationId`': migrates(200, {}),
  '`migrateKeys`: hash that is not base64 of 32 bytes': migrates(400, { hash: digestOf('sk').toString('hex') }),
  '`migrateKeys`: hash twice in a call': async () => {
    const { apiId } = await ok('apis.createApi', { name: 'doubled' });
    const hash = hashOf('sk_doubled');
    expect((await odd('keys.migrateKeys', { migrationId: 'm', apiId, keys: [{ hash }, { hash }] })).status).toBe(400);
  },
  '`migrateKeys`: `remaining: null`': async () => {
    const { key } = await migrate({ credits: { remaining: null } });
    expect(await verify(key)).not.toHaveProperty('credits');
  },
  '`migrateKeys`: more than 1000 keys': async () => {
    const keys = Array.from({ length: 1001 }, (_, index) => ({ hash: hashOf(`sk_many_${index}`) }));
    expect((await odd('keys.migrateKeys', { migrationId: 'm', apiId: 'api_none', keys })).status).toBe(400);
  },
  '`externalId` with other characters than `a-zA-Z0-9_.-`': migrates(400, { externalId: 'ada@example.com' }),
  'Order of lists': async () => {
    const made: string[] = [];
    for (const name of ['one', 'two', 'three'])
      made.push((await ok('apis.createApi', { name: `order ${name}` })).apiId);
    const found = await ok('apis.listApis', { search: 'order ' });
    expect(found.map(({ id }) => id)).toEqual(made);
  },
  '`cursor: ""`': async () => {
    const pages = await Promise.all([undefined, ''].map((cursor) => odd('apis.listApis', { limit: 2, cursor })));
    expect(pages[1]!.data).toEqual(pages[0]!.data);
    expect(pages[1]!.status).toBe(200);
  },
  Cursor: async () => {
    await Promise.all(['one', 'two'].map((name) => ok('apis.createApi', { name })));
    const { data, pagination } = await call('apis.listApis', { limit: 1 });
    expect(pagination.cursor).not.toBe(data[0]!.id);
  },
  '`apiId` of fewer than 8 characters': answers(404, ['apis.getApi', { apiId: 'api_1' }]),
  '`listKeys`: `externalId` with other characters': async () => {
    const { apiId } = await ok('apis.createApi', { name: 'other' });
    expect((await odd('apis.listKeys', { apiId, externalId: 'ada@example.com' })).status).toBe(400);
  },
  'Cursor of another list': async () => {
    await Promise.all(['one', 'two'].map((name) => ok('apis.createApi', { name })));
    const { pagination } = await call('apis.listApis', { limit: 1 });
    expect((await odd('identities.listIdentities', { cursor: pagination!.cursor })).status).toBe(400);
  },
  'Empty `meta`, `ratelimits`, `permissions` of identities and roles': async () => {
    await ok('identities.createIdentity', { externalId: 'empty' });
    expect(await ok('identities.getIdentity', { identity: 'empty' })).toMatchObject({ meta: {}, ratelimits: [] });
    const { roleId } = await ok('permissions.createRole', { name: 'empty' });
    expect(await ok('permissions.getRole', { role: roleId })).toMatchObject({ permissions: [] });
  },
  '`updateIdentity`: `meta` in the response': async () => {
    await ok('identities.createIdentity', { externalId: 'kept', meta: { plan: 'pro' } });
    expect(await ok('identities.updateIdentity', { identity: 'kept', ratelimits: [] })).toMatchObject({
      meta: { plan: 'pro' },
    });
  },
  'Empty `description`': async () => {
    await ok('permissions.createPermission', { name: 'no text', slug: 'no.text', description: '' });
    expect(await ok('permissions.getPermission', { permission: 'no.text' })).toMatchObject({ description: '' });
  },
  '`deleteIdentity`: `data`': async () => {
    await ok('identities.createIdentity', { externalId: 'gone' });
    expect(await ok('identities.deleteIdentity', { identity: 'gone' })).toEqual({});
  },
  'Grant of one identity: update and delete it': async () => {
    const { identityId } = await ok('identities.createIdentity', { externalId: 'mine' });
    const grants = ['update', 'delete'].map((action) => `identity.${identityId}.${action}_identity`);
    expect((await odd('identities.updateIdentity', { identity: 'mine', meta: {} }, grants)).status).toBe(200);
    expect((await odd('identities.deleteIdentity', { identity: 'mine' }, grants)).status).toBe(200);
  },
  '`setRolePermissions` by name': answers(
    200,
    ['permissions.createRole', { name: 'by name' }],
    ['permissions.setRolePermissions', { roleId: 'by name', permissions: ['docs.read'] }],
  ),
  '`setOverride` in an unknown namespace': answers(200, [
    'ratelimits.setOverride',
    { namespace: 'new one', identifier: 'ada', limit: 1, duration: 5000 },
  ]),
  'Override with `limit: 0`': async () => {
    await ok('ratelimits.setOverride', { namespace: 'zero', identifier: 'ada', limit: 0, duration: 5000 });
    const request = { namespace: 'zero', identifier: 'ada', limit: 5, duration: 5000 };
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
  },
  'Override of more than 30 days': async () => {
    const duration = 400 * 24 * hourMs;
    await ok('ratelimits.setOverride', { namespace: 'long', identifier: 'ada', limit: 2, duration });
    const request = { namespace: 'long', identifier: 'ada', limit: 9, duration: 5000 };
    for (const success of [true, true, false]) expect(await ok('ratelimits.limit', request)).toMatchObject({ success });
    clock.advance(399 * 24 * hourMs);
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
    clock.advance(2 * 24 * hourMs + duration / 64);
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true });
  },
  '`getOverride` of an identifier that a wildcard matches': async () => {
    await ok('ratelimits.setOverride', { namespace: 'wild', identifier: 'a*', limit: 1, duration: 5000 });
    expect((await call('ratelimits.getOverride', { namespace: 'wild', identifier: 'ada' })).status).toBe(404);
  },
  'Several wildcards match': async () => {
    for (const [identifier, limit] of [
      ['*', 1],
      ['ad*', 2],
      ['a*', 3],
    ] as const)
      await ok('ratelimits.setOverride', { namespace: 'several', identifier, limit, duration: 5000 });
    const request = { namespace: 'several', identifier: 'ada', limit: 9, duration: 5000 };
    expect(await ok('ratelimits.limit', request)).toMatchObject({ limit: 2 });
  },
  'Wildcard `*` and a line break in an identifier': async () => {
    await ok('ratelimits.setOverride', { namespace: 'lines', identifier: 'a*b', limit: 7, duration: 5000 });
    const request = { namespace: 'lines', identifier: 'a\nb', limit: 9, duration: 5000 };
    expect(await ok('ratelimits.limit', request)).toMatchObject({ limit: 7 });
  },
  'Record of an override': async () => {
    await ok('ratelimits.setOverride', { namespace: 'record', identifier: 'ada', limit: 1, duration: 5000 });
    expect(await ok('ratelimits.getOverride', { namespace: 'record', identifier: 'ada' })).toMatchObject({
      namespace: 'record',
      namespaceId: expect.any(String),
      createdAt: clock.now,
    });
  },
  '`getOverride` without the grant': async () => {
    await ok('ratelimits.setOverride', { namespace: 'closed', identifier: 'ada', limit: 1, duration: 5000 });
    const named = { namespace: 'closed', identifier: 'ada' };
    expect((await odd('ratelimits.getOverride', named, ['api.*.verify_key'])).status).toBe(403);
  },
  'Paths below `ratelimits`, in the plural': async () => {
    const body = JSON.stringify({ namespace: 'plural', identifier: 'ada', limit: 1, duration: 5000 });
    for (const service of ['ratelimit', 'ratelimits'])
      expect((await send(`/v2/${service}.limit`, { body })).status).toBe(200);
  },
  '`multiLimit`, a counter several times and refused: `remaining`': async () => {
    const item = { namespace: 'repeated', identifier: 'ada', limit: 3, duration: 5000 };
    const answer = await ok('ratelimits.multiLimit', [item, item, item, item]);
    expect(answer.limits.map(({ remaining }) => remaining)).toEqual([3, 3, 3, 3]);
  },
  'Unknown namespace id in `limit`': answers(404, [
    'ratelimits.limit',
    { namespace: 'rlns_1111111111111111', identifier: 'ada', limit: 9, duration: 5000 },
  ]),
  'Deleted API: new keys': async () => {
    const { apiId } = await ok('apis.createApi', { name: 'deleted' });
    await ok('apis.deleteApi', { apiId });
    expect((await call('keys.createKey', { apiId })).status).toBe(404);
  },
  '`keyspaceId` in a verification': async () => {
    const { key, apiId } = await createKey();
    expect(await verify(key)).not.toHaveProperty('keyspaceId');
    expect(await verify(key, { keyspaces: [apiId] })).toMatchObject({ keyspaceId: apiId });
  },
  '`rootKeys.listKeys`: `end`': async () => {
    for (const { end } of await ok('rootKeys.listKeys', {})) expect(end).toBe('');
  },
  '`workspace.getUsage`: verifications by a gateway': async () => {
    const used = async () => (await ok('workspace.getUsage', {})).totals;
    const before = await used();
    const { key } = await createKey();
    const log = logOfCauses(new Map());
    const check = createGateway({ store: h.store, log, keyHeader: 'X-Key', rootKey: h.rootKey, meta: [] });
    const headers = new Map([['x-key', [key]]]);
    const request = { ...requestTo(gatewayPath, '', { method: 'GET' }), headers };
    expect(await check(request)).toMatchObject({ status: 200 });
    const after = await used();
    expect(after.api.verifications).toBe(before.api.verifications + 1);
    expect(after.gateway).toEqual({ activeKeys: 0 });
  },
};

/** The error of a server with ERROR_TYPES=unkey. */
async function asUnkey(path: string, input: object) {
  const log = logOfCauses(new Map());
  const answer = createPipeline(operations, { store: h.store, log, metaBytesMax: 10_240, unkeyTypes: true });
  return JSON.parse((await answer(requestTo(path, h.rootKey, { body: JSON.stringify(input) }))).body).error;
}

const page = readFileSync(new URL('../docs/unkey-differences.md', import.meta.url), 'utf8');
const [, table] = /^## Every difference$([\s\S]*?)^## /m.exec(page)!;
const rows = [...table!.matchAll(/^\| (.+?) \| /gm)].map(([, first]) => first!).filter((first) => first !== 'What');

test('every row of the table has a test, and every test a row', () => {
  expect(Object.keys(tests)).toEqual(rows);
});

test.each(Object.entries(tests))('%s', async (_row, run) => void (await run()));
