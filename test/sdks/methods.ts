// Every method of the official SDK, each by a line of one table: it works, and it throws its own typed errors, with
// only `serverURL` changed. test/sdk.test.ts has the stories that several of them tell together.

import { createHash } from 'node:crypto';
import { Unkey } from '@unkey/api';
import * as errors from '@unkey/api/models/errors';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRootKeyString } from '../src/domain/keyString.ts';
import { createPipeline } from '../src/http/pipeline.ts';
import { listen, type Server } from '../src/http/server.ts';
import { operations } from '../src/operations/index.ts';
import { harness } from './support/harness.ts';

const tollgate = harness();

let server: Server;
let unkey: Unkey;
beforeAll(async () => {
  const log = pino({ level: 'silent' });
  const answer = createPipeline(operations, { store: tollgate.store, log, metaBytesMax: 10_240 });
  let requests = 0;
  const newRequestId = () => `req_${++requests}`;
  server = await listen({ host: '127.0.0.1', port: 0, answer, bodyBytesMax: 1_000_000, newRequestId });
  unkey = sdk(tollgate.rootKey);
});
afterAll(() => server.close());

const sdk = (rootKey: string) => new Unkey({ rootKey, serverURL: `http://127.0.0.1:${server.port}` });

type Services = {
  [Service in 'apis' | 'keys' | 'ratelimit' | 'identities' | 'permissions' | 'analytics']: Unkey[Service];
};
type Procedure<Service> = Exclude<Extract<keyof Service, string>, `_${string}`>;
type Method = { [S in keyof Services]: `${S}.${Procedure<Services[S]>}` }[keyof Services];
type InputOf<M extends Method> = M extends `${infer S extends keyof Services}.${infer P}`
  ? P extends keyof Services[S]
    ? Services[S][P] extends (input: infer Input, ...rest: never[]) => unknown
      ? Input
      : never
    : never
  : never;

/** Of the SDK but not of ours: what it has for deployments, gateways and portals. */
const foreignServices = [
  ...['apps', 'deployments', 'domains', 'environments', 'gateway', 'github', 'internal', 'portal', 'projects'],
];
type Foreign = 'analytics.getGatewayRequests' | 'analytics.getRuntimeLogs';
const foreignMethods: Foreign[] = ['analytics.getGatewayRequests', 'analytics.getRuntimeLogs'];
type Ours = Exclude<Method, Foreign>;

let made = 0;
const fresh = () => `thing.${++made}`;
const id = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_[1-9A-HJ-NP-Za-km-z]{16,}$`));
const limit = { name: 'requests', limit: 10, duration: 60_000, autoApply: true };

type Things = Awaited<ReturnType<typeof makeThings>>;

/** One of everything, made through the SDK: what no other test has. */
async function makeThings() {
  const name = fresh();
  const identity = { externalId: name, meta: { plan: 'pro' }, ratelimits: [limit] };
  const permission = { name, slug: name, description: name };
  const override = { namespace: name, identifier: 'alice', limit: 3, duration: 5000 };
  const [{ apiId }, { identityId }, { permissionId }, { overrideId }] = await Promise.all([
    unkey.apis.createApi({ name }).then(({ data }) => data),
    unkey.identities.createIdentity(identity).then(({ data }) => data),
    unkey.permissions.createPermission(permission).then(({ data }) => data),
    unkey.ratelimit.setOverride(override).then(({ data }) => data),
  ]);
  const { roleId } = (await unkey.permissions.createRole({ name, description: name, permissions: [name] })).data;
  const { keyId, key } = (
    await unkey.keys.createKey({
      apiId,
      prefix: 'test',
      name,
      externalId: name,
      meta: { a: [1, null] },
      credits: { remaining: 100, refill: { interval: 'monthly', amount: 50, refillDay: 31 } },
      ratelimits: [limit],
      roles: [name],
      permissions: ['direct.read'],
    })
  ).data;
  return {
    ...{ name, apiId, identityId, permissionId, roleId, keyId, key, overrideId, override },
    permission: { id: permissionId, ...permission },
  };
}

const roleOf = ({ roleId, name, permission }: Things) => ({
  id: roleId,
  name,
  description: name,
  permissions: [permission],
});
const identityOf = ({ identityId, name }: Things) => ({
  id: identityId,
  externalId: name,
  meta: { plan: 'pro' },
  ratelimits: [{ id: id('rl'), ...limit }],
});
const recordOf = (things: Things) => ({
  keyId: things.keyId,
  start: expect.stringMatching(/^test_.{4}$/),
  enabled: true,
  name: things.name,
  meta: { a: [1, null] },
  createdAt: expect.any(Number),
  roles: [things.name],
  permissions: ['direct.read', things.name],
  credits: { remaining: 100, refill: { interval: 'monthly', amount: 50, refillDay: 31 } },
  identity: identityOf(things),
  ratelimits: [{ id: id('rl'), ...limit }],
});
const permissionsOf = (...slugs: string[]) => slugs.map((slug) => expect.objectContaining({ id: id('perm'), slug }));
const checkOf = ({ name }: Things) => ({ namespace: name, identifier: 'bob', limit: 2, duration: 1000 });

/** A hash of a key that nobody else has. */
const newHash = () => createHash('sha256').update(fresh()).digest('base64');
const hash = newHash();

interface Line<M extends Method> {
  /** What it is called with, and the `data` that comes back; without `answers` it is refused. */
  input(things: Things): InputOf<M>;
  answers?(things: Things): unknown;
  /** Changes of the input that make it wrong: 400, and absent: 404, and taken: 409. */
  wrong: Partial<Record<string, unknown>> | unknown[];
  absent?: Partial<Record<string, unknown>> | unknown[];
  taken?(things: Things): InputOf<M>;
  /** The SDK has no type of its own for this one's 404. */
  absentIsUntyped?: true;
}

const noKey = { keyId: 'key_unknown' };
const noApi = { apiId: 'api_unknown' };

const methods: { [M in Ours]: Line<M> } = {
  'apis.createApi': {
    input: () => ({ name: fresh() }),
    answers: () => ({ apiId: id('api') }),
    wrong: { name: 'ab' },
  },
  'apis.getApi': {
    input: ({ apiId }) => ({ apiId }),
    answers: ({ apiId, name }) => ({ id: apiId, name }),
    wrong: { apiId: 'not an id' },
    absent: noApi,
  },
  'apis.listKeys': {
    input: ({ apiId, name }) => ({ apiId, externalId: name, limit: 5 }),
    answers: (things) => [recordOf(things)],
    wrong: { cursor: 'none' },
    absent: noApi,
  },
  'apis.deleteApi': {
    input: ({ apiId }) => ({ apiId }),
    answers: () => ({}),
    wrong: { apiId: 'not an id' },
    absent: noApi,
  },

  'keys.createKey': {
    input: ({ apiId, name }) => ({ apiId, prefix: 'sk', byteLength: 32, externalId: name, roles: [name] }),
    answers: () => ({ keyId: id('key'), key: expect.stringMatching(/^sk_[1-9A-HJ-NP-Za-km-z]{40,}$/) }),
    wrong: { recoverable: true },
    absent: { roles: ['nobody'] },
  },
  'keys.verifyKey': {
    input: ({ key, name }) => ({
      key,
      permissions: `direct.read AND ${name}`,
      credits: { cost: 3 },
      ratelimits: [
        { name: 'requests', cost: 2 },
        { name: 'for this call', limit: 5, duration: 1000 },
      ],
      tags: ['path=/v1'],
    }),
    answers: (things) => ({
      valid: true,
      code: 'VALID',
      keyId: things.keyId,
      enabled: true,
      name: things.name,
      meta: { a: [1, null] },
      credits: 97,
      roles: [things.name],
      permissions: ['direct.read', things.name],
      identity: identityOf(things),
      ratelimits: [
        { id: id('rl'), ...limit, exceeded: false, remaining: 8, reset: expect.any(Number) },
        expect.objectContaining({ id: '', name: 'for this call', exceeded: false, remaining: 4, autoApply: false }),
      ],
    }),
    wrong: { permissions: 'a AND' },
  },
  'keys.getKey': {
    input: ({ keyId }) => ({ keyId }),
    answers: recordOf,
    wrong: { decrypt: true },
    absent: noKey,
  },
  'keys.whoami': {
    input: ({ key }) => ({ key }),
    answers: recordOf,
    wrong: { key: '' },
    absent: { key: 'test_nobodys' },
  },
  'keys.updateKey': {
    input: ({ keyId }) => ({
      keyId,
      name: null,
      credits: { remaining: 5, refill: null },
      expires: null,
      meta: { b: 1 },
    }),
    answers: () => ({}),
    wrong: { credits: { remaining: null, refill: { interval: 'daily', amount: 1 } } },
    absent: noKey,
  },
  'keys.updateCredits': {
    input: ({ keyId }) => ({ keyId, operation: 'decrement', value: 30 }),
    answers: () => ({ remaining: 70, refill: { interval: 'monthly', amount: 50, refillDay: 31 } }),
    wrong: { value: null },
    absent: noKey,
  },
  'keys.deleteKey': {
    input: ({ keyId }) => ({ keyId, permanent: true }),
    answers: () => ({}),
    wrong: { keyId: 'not an id' },
    absent: noKey,
  },
  'keys.rerollKey': {
    input: ({ keyId }) => ({ keyId, expiration: 60_000 }),
    answers: () => ({ keyId: id('key'), key: expect.stringMatching(/^test_/) }),
    wrong: { expiration: -1 },
    absent: noKey,
  },
  'keys.migrateKeys': {
    input: ({ apiId, name }) => ({
      migrationId: 'migration',
      apiId,
      keys: [{ hash, name: 'moved', externalId: name, credits: { remaining: 5 }, ratelimits: [limit], roles: [name] }],
    }),
    answers: () => ({ migrated: [{ hash, keyId: id('key') }], failed: [] }),
    wrong: { keys: [{ hash: 'not a hash' }] },
    absent: { keys: [{ hash: newHash(), roles: ['nobody'] }] },
  },
  'keys.addPermissions': {
    input: ({ keyId, name }) => ({ keyId, permissions: [name, 'brand.new'] }),
    answers: ({ name }) => permissionsOf('direct.read', name, 'brand.new'),
    wrong: { permissions: [] },
    absent: noKey,
  },
  'keys.removePermissions': {
    input: ({ keyId }) => ({ keyId, permissions: ['direct.read'] }),
    answers: () => [],
    wrong: { permissions: [] },
    absent: { permissions: ['never.made'] },
  },
  'keys.setPermissions': {
    input: ({ keyId, name }) => ({ keyId, permissions: [name] }),
    answers: ({ permission }) => [permission],
    wrong: { permissions: ['no slug'] },
    absent: noKey,
  },
  'keys.addRoles': {
    input: ({ keyId, name }) => ({ keyId, roles: [name] }),
    answers: (things) => [roleOf(things)],
    wrong: { roles: [] },
    absent: { roles: ['nobody'] },
  },
  'keys.removeRoles': {
    input: ({ keyId, name }) => ({ keyId, roles: [name] }),
    answers: () => [],
    wrong: { roles: [] },
    absent: { roles: ['nobody'] },
  },
  'keys.setRoles': {
    input: ({ keyId, name }) => ({ keyId, roles: [name] }),
    answers: (things) => [roleOf(things)],
    wrong: { roles: [''] },
    absent: { roles: ['nobody'] },
  },

  'ratelimit.limit': {
    input: ({ name }) => ({ namespace: name, identifier: 'alice', limit: 10, duration: 1000, cost: 2 }),
    answers: ({ overrideId }) => ({ success: true, limit: 3, remaining: 1, reset: expect.any(Number), overrideId }),
    wrong: { limit: 0 },
    absent: { namespace: 'rlns_unknown' },
  },
  'ratelimit.multiLimit': {
    input: (things) => [checkOf(things), { ...checkOf(things), identifier: 'carol', cost: 3 }],
    answers: ({ name }) => ({
      passed: false,
      limits: [
        { namespace: name, identifier: 'bob', limit: 2, remaining: 2, reset: expect.any(Number), passed: true },
        { namespace: name, identifier: 'carol', limit: 2, remaining: 2, reset: expect.any(Number), passed: false },
      ],
    }),
    wrong: [],
    absent: [{ namespace: 'rlns_unknown', identifier: 'bob', limit: 2, duration: 1000 }],
  },
  'ratelimit.setOverride': {
    input: ({ override }) => ({ ...override, limit: 0 }),
    answers: ({ overrideId }) => ({ overrideId }),
    wrong: { duration: 999 },
    absent: { namespace: 'rlns_unknown' },
  },
  'ratelimit.getOverride': {
    input: ({ name }) => ({ namespace: name, identifier: 'alice' }),
    answers: ({ overrideId }) => ({ overrideId, identifier: 'alice', limit: 3, duration: 5000 }),
    wrong: { identifier: '' },
    absent: { identifier: 'nobody' },
  },
  'ratelimit.listOverrides': {
    input: ({ name }) => ({ namespace: name }),
    answers: ({ overrideId }) => [{ overrideId, identifier: 'alice', limit: 3, duration: 5000 }],
    wrong: { limit: 101 },
    absent: { namespace: 'unknown' },
  },
  'ratelimit.deleteOverride': {
    input: ({ name }) => ({ namespace: name, identifier: 'alice' }),
    answers: () => ({}),
    wrong: { identifier: '' },
    absent: { identifier: 'nobody' },
  },

  'identities.createIdentity': {
    input: () => ({ externalId: fresh(), meta: { a: { b: [] } }, ratelimits: [limit] }),
    answers: () => ({ identityId: id('id') }),
    wrong: { externalId: 'no spaces' },
    taken: ({ name }) => ({ externalId: name }),
  },
  'identities.getIdentity': {
    input: ({ name }) => ({ identity: name }),
    answers: identityOf,
    wrong: { identity: '' },
    absent: { identity: 'nobody' },
  },
  'identities.listIdentities': {
    input: ({ identityId }) => ({ search: identityId, limit: 10 }),
    answers: (things) => [identityOf(things)],
    wrong: { cursor: 'none' },
  },
  'identities.updateIdentity': {
    input: ({ identityId }) => ({ identity: identityId, meta: { new: true }, ratelimits: [{ ...limit, limit: 11 }] }),
    answers: (things) => ({
      ...identityOf(things),
      meta: { new: true },
      ratelimits: [{ id: id('rl'), ...limit, limit: 11 }],
    }),
    wrong: { ratelimits: [limit, limit] },
    absent: { identity: 'nobody' },
  },
  'identities.deleteIdentity': {
    input: ({ name }) => ({ identity: name }),
    // Of this one the SDK shows no data.
    answers: () => undefined,
    wrong: { identity: '' },
    absent: { identity: 'nobody' },
  },

  'permissions.createPermission': {
    input: () => ({ name: 'Named', slug: fresh() }),
    answers: () => ({ permissionId: id('perm') }),
    wrong: { slug: 'no slug' },
    taken: ({ name }) => ({ name, slug: name }),
  },
  'permissions.getPermission': {
    input: ({ name }) => ({ permission: name }),
    answers: ({ permission }) => permission,
    wrong: { permission: '' },
    absent: { permission: 'never.made' },
  },
  'permissions.listPermissions': {
    input: ({ permissionId }) => ({ search: permissionId }),
    answers: ({ permission }) => [permission],
    wrong: { cursor: 'none' },
  },
  'permissions.deletePermission': {
    input: ({ permissionId }) => ({ permission: permissionId }),
    answers: () => ({}),
    wrong: { permission: '' },
    absent: { permission: 'never.made' },
  },
  'permissions.createRole': {
    input: ({ name }) => ({ name: fresh(), permissions: [name] }),
    answers: () => ({ roleId: id('role') }),
    wrong: { name: '' },
    taken: ({ name }) => ({ name }),
  },
  'permissions.getRole': {
    input: ({ name }) => ({ role: name }),
    answers: roleOf,
    wrong: { role: '' },
    absent: { role: 'nobody' },
  },
  'permissions.listRoles': {
    input: ({ roleId }) => ({ search: roleId }),
    answers: (things) => [roleOf(things)],
    wrong: { cursor: 'none' },
  },
  'permissions.deleteRole': {
    input: ({ roleId }) => ({ role: roleId }),
    answers: () => ({}),
    wrong: { role: '' },
    absent: { role: 'nobody' },
    absentIsUntyped: true,
  },
  'permissions.setRolePermissions': {
    input: ({ roleId }) => ({ roleId, permissions: ['set.one', 'set.two'] }),
    answers: () => permissionsOf('set.one', 'set.two'),
    wrong: { permissions: ['no slug'] },
    absent: { roleId: 'role_unknown' },
  },

  // The SDK can send SQL and nothing else, and there is no SQL here.
  'analytics.getVerifications': { input: () => ({ query: 'SELECT 1' }), wrong: {} },
  'analytics.getRatelimits': { input: () => ({ query: 'SELECT 1' }), wrong: {} },
};

/** The body of the answer, also where the SDK makes an iterator of it. */
async function call(client: Unkey, method: Method, input: unknown) {
  const [service, procedure] = method.split('.') as [keyof Services, string];
  const run = (client[service] as unknown as Record<string, (input: unknown) => Promise<unknown>>)[procedure]!;
  const answer = (await run.call(client[service], input)) as { result?: unknown };
  return ('result' in answer ? answer.result : answer) as { meta: { requestId: string }; data: unknown };
}

const changed = (input: unknown, change: object) =>
  Array.isArray(input) ? change : { ...(input as object), ...change };

/** What the SDK throws. */
async function refused(client: Unkey, method: Method, input: unknown): Promise<errors.UnkeyError> {
  const error = await call(client, method, input).then(
    ({ data }) => expect.unreachable(`${method} was not refused: ${JSON.stringify(data)}`),
    (reason: unknown) => reason,
  );
  expect(error, String(error)).toBeInstanceOf(errors.UnkeyError);
  return error as errors.UnkeyError;
}

const typed = {
  400: errors.BadRequestErrorResponse,
  401: errors.UnauthorizedErrorResponse,
  403: errors.ForbiddenErrorResponse,
  404: errors.NotFoundErrorResponse,
  409: errors.ConflictErrorResponse,
};

function expectTyped(error: errors.UnkeyError, status: keyof typeof typed) {
  expect(error, `${error.statusCode} ${error.body}`).toBeInstanceOf(typed[status]);
  const { meta, error: body } = error as errors.NotFoundErrorResponse;
  expect(meta.requestId).toMatch(/^req_/);
  expect(body).toMatchObject({
    status,
    title: expect.any(String),
    detail: expect.any(String),
    type: expect.any(String),
  });
  expect(error.statusCode).toBe(status);
}

test('the table has every method of the SDK', () => {
  const proceduresOf = (service: object) =>
    Object.getOwnPropertyNames(Object.getPrototypeOf(service)).filter((name) => name !== 'constructor');
  const getters = Object.entries(Object.getOwnPropertyDescriptors(Unkey.prototype)).filter(([, { get }]) => get);
  const services = getters.map(([name]) => name).filter((name) => !foreignServices.includes(name));
  const found = services.flatMap((service) =>
    proceduresOf(unkey[service as keyof Services]).map((procedure) => `${service}.${procedure}`),
  );
  expect(found.sort()).toEqual([...Object.keys(methods), ...foreignMethods].sort());
});

let shared: Things;
let weak: Unkey;
let unknown: Unkey;
beforeAll(async () => {
  shared = await makeThings();
  weak = sdk(await tollgate.createRootKey(['root_key.*.read_root_key']));
  unknown = sdk(createRootKeyString(tollgate.workspaceId).key);
});

describe.each(Object.entries(methods) as [Ours, Line<Ours>][])('%s', (method, line) => {
  const { answers, wrong, absent, taken, absentIsUntyped } = line;

  if (answers)
    test('works', async () => {
      const things = await makeThings();
      const { meta, data } = await call(unkey, method, line.input(things));
      expect(meta.requestId).toMatch(/^req_/);
      expect(data).toEqual(answers(things));
    });

  test('400', async () => {
    const error = await refused(unkey, method, changed(line.input(shared), wrong));
    expectTyped(error, 400);
    expect((error as errors.BadRequestErrorResponse).error.errors).toEqual([
      expect.objectContaining({ location: expect.stringMatching(/^body/), message: expect.any(String) }),
    ]);
  });

  test('401', async () => {
    // What is refused whoever asks is refused before it is asked who does, but for a header that is none.
    for (const client of answers ? [sdk('nonsense'), unknown] : [sdk('')]) {
      expectTyped(await refused(client, method, line.input(shared)), 401);
    }
  });

  if (answers)
    test('403', async () => {
      const error = await refused(weak, method, line.input(shared));
      // Who may not read keys is not told that there is one.
      if (method === 'keys.whoami') expectTyped(error, 404);
      else expectTyped(error, 403);
    });

  if (absent)
    test('404', async () => {
      const error = await refused(unkey, method, changed(line.input(shared), absent));
      if (!absentIsUntyped) return expectTyped(error, 404);
      expect(error).toBeInstanceOf(errors.APIError);
      expect(error.statusCode).toBe(404);
      expect(JSON.parse(error.body)).toMatchObject({ error: { status: 404, type: '/errors/role_not_found' } });
    });

  if (taken)
    test('409', async () => {
      expectTyped(await refused(unkey, method, taken(shared)), 409);
    });
});

describe('what has no type in the SDK is its general error', () => {
  test('412 of keys.verifyKey', async () => {
    const error = await refused(unkey, 'keys.verifyKey', {
      key: shared.key,
      ratelimits: [{ name: 'nobodys', cost: 1 }],
    });
    expect(error).toBeInstanceOf(errors.APIError);
    expect(error.statusCode).toBe(412);
  });

  test.each(foreignMethods)('404 of %s, which is not served', async (method) => {
    const error = await refused(unkey, method, { query: 'SELECT 1' });
    expect(error).toBeInstanceOf(errors.APIError);
    expect(error.statusCode).toBe(404);
  });
});

describe('the SDK reads lists to their end', () => {
  const lists: [Ours, (things: Things, names: string[]) => Promise<unknown>, (things: Things) => object][] = [
    [
      'apis.listKeys',
      async ({ apiId }, names) => {
        for (const name of names) await unkey.keys.createKey({ apiId, name });
      },
      ({ apiId }) => ({ apiId }),
    ],
    [
      'identities.listIdentities',
      async (_things, names) => {
        for (const externalId of names) await unkey.identities.createIdentity({ externalId });
      },
      ({ name }) => ({ search: name }),
    ],
    [
      'permissions.listPermissions',
      async (_things, names) => {
        for (const slug of names) await unkey.permissions.createPermission({ name: slug, slug });
      },
      ({ name }) => ({ search: name }),
    ],
    [
      'permissions.listRoles',
      async (_things, names) => {
        for (const name of names) await unkey.permissions.createRole({ name });
      },
      ({ name }) => ({ search: name }),
    ],
    [
      'ratelimit.listOverrides',
      async ({ override }, names) => {
        for (const identifier of names) await unkey.ratelimit.setOverride({ ...override, identifier });
      },
      ({ name }) => ({ namespace: name }),
    ],
  ];

  test.each(lists)('%s', async (method, make, input) => {
    const things = await makeThings();
    await make(
      things,
      [1, 2, 3, 4].map((index) => `${things.name}.more.${index}`),
    );
    const [service, procedure] = method.split('.') as ['apis', 'listKeys'];
    const sizes: number[] = [];
    const found: unknown[] = [];
    for await (const { result } of await unkey[service][procedure]({ ...input(things), limit: 2 } as never)) {
      sizes.push(result.data.length);
      found.push(...result.data.map((item) => JSON.stringify(item)));
    }
    expect(sizes).toEqual([2, 2, 1]);
    expect(new Set(found).size).toBe(5);
  });
});
