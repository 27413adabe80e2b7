// The inputs and results of the methods of Unkey's SDKs, one line per method: the same table for every language. The
// methods and the types of their inputs are those of `@unkey/api`.

import { createHash } from 'node:crypto';
import type { Unkey } from '@unkey/api';
import { expect } from 'vitest';

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

/** Methods for Unkey's deployments and portal, which Tollgate does not serve. */
export const foreignMethods = ['analytics.getGatewayRequests', 'analytics.getRuntimeLogs'] as const;
export type Ours = Exclude<Method, (typeof foreignMethods)[number]>;

/** Calls a method and returns the `data` of its response. */
// biome-ignore lint/suspicious/noExplicitAny: each language returns what its SDK read
export type Call = <M extends Ours>(method: M, input: InputOf<M>) => Promise<any>;

let made = 0;
const fresh = () => `thing.${++made}`;
const id = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_[1-9A-HJ-NP-Za-km-z]{16,}$`));
const limit = { name: 'requests', limit: 10, duration: 60_000, autoApply: true };

type Made = 'apiId' | 'identityId' | 'permissionId' | 'roleId' | 'keyId' | 'key' | 'overrideId';
export type Things = Awaited<ReturnType<typeof makeThings>>;

/** Creates one record of each kind through the SDK, under names that no other test uses. */
export async function makeThings(call: Call) {
  const name = fresh();
  const identity = { externalId: name, meta: { plan: 'pro' }, ratelimits: [limit] };
  const permission = { name, slug: name, description: name };
  const override = { namespace: name, identifier: 'alice', limit: 3, duration: 5000 };
  const { apiId } = await call('apis.createApi', { name });
  const { identityId } = await call('identities.createIdentity', identity);
  const { permissionId } = await call('permissions.createPermission', permission);
  const { overrideId } = await call('ratelimit.setOverride', override);
  const { roleId } = await call('permissions.createRole', { name, description: name, permissions: [name] });
  const { keyId, key } = await call('keys.createKey', {
    apiId,
    prefix: 'test',
    name,
    externalId: name,
    meta: { a: [1, null] },
    credits: { remaining: 100, refill: { interval: 'monthly', amount: 50, refillDay: 31 } },
    ratelimits: [limit],
    roles: [name],
    permissions: ['direct.read'],
  });
  return {
    ...{ name, override },
    ...({ apiId, identityId, permissionId, roleId, keyId, key, overrideId } as Record<Made, string>),
    permission: { id: permissionId as string, ...permission },
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

/** A hash of a key that no other test uses. */
const newHash = () => createHash('sha256').update(fresh()).digest('base64');
const hash = newHash();

export interface Line<M extends Method> {
  /** The input, and the `data` of the response; without `answers` it is refused. */
  input(things: Things): InputOf<M>;
  answers?(things: Things): unknown;
  /** Changes of the input that cause errors. wrong: 400, absent: 404, taken: 409. */
  wrong: Partial<Record<string, unknown>> | unknown[];
  absent?: Partial<Record<string, unknown>> | unknown[];
  taken?(things: Things): InputOf<M>;
  /** The SDKs have no type of their own for its 404. */
  absentIsUntyped?: true;
}

const noKey = { keyId: 'key_unknown' };
const noApi = { apiId: 'api_unknown' };

export const methods: { [M in Ours]: Line<M> } = {
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
    answers: () => ({}),
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

  // The SDKs can send SQL only, which Tollgate refuses.
  'analytics.getVerifications': { input: () => ({ query: 'SELECT 1' }), wrong: {} },
  'analytics.getRatelimits': { input: () => ({ query: 'SELECT 1' }), wrong: {} },
};

/** A method that newer SDKs have and `@unkey/api` lacks, or a new input of one. */
export interface NewerLine {
  input(things: Things & { rootKeyId: string }): object;
  answers(things: Things & { rootKeyId: string }): unknown;
  /** As in Line. Without `wrong` no input is refused. */
  wrong?: object;
  absent?: object;
  taken?(things: Things): object;
  /** The SDKs have no type of their own for its 403. */
  forbiddenIsUntyped?: true;
}

const noRootKey = { keyId: 'root_unknown' };
const newRootKey = () => ({ keyId: id('root'), key: expect.stringMatching(/^root_/) });
const unlimited = { limit: null };

export const newerMethods: Record<string, NewerLine> = {
  'keys.verifyKey': {
    input: ({ key, apiId }) => ({ key, keyspaces: ['api_other', apiId] }),
    answers: ({ keyId, apiId }) => expect.objectContaining({ valid: true, keyId, keyspaceId: apiId, credits: 99 }),
    wrong: { keyspaces: ['api_1', 'api_2', 'api_3', 'api_4', 'api_5', 'api_6'] },
  },
  'permissions.updatePermission': {
    input: ({ name }) => ({ permission: name, slug: `${name}.renamed`, description: null }),
    answers: ({ permissionId, name }) => ({ id: permissionId, name, slug: `${name}.renamed` }),
    wrong: { slug: 'no slug' },
    absent: { permission: 'never.made' },
    taken: ({ name }) => ({ permission: name, slug: 'direct.read' }),
  },
  'permissions.updateRole': {
    input: ({ roleId, name }) => ({ role: roleId, name: `${name} renamed` }),
    answers: ({ roleId, name }) => ({ id: roleId, name: `${name} renamed`, description: name }),
    wrong: { name: '' },
    absent: { role: 'nobody' },
  },
  'rootKeys.createKey': {
    input: ({ name }) => ({ name, permissions: ['api.*.verify_key'], expires: null }),
    answers: newRootKey,
    wrong: { permissions: ['api.*.fly'] },
  },
  'rootKeys.listKeys': {
    input: () => ({ limit: 1 }),
    answers: () => [
      {
        ...{ keyId: id('root'), name: null, start: expect.stringMatching(/^root_/), end: '', enabled: true },
        ...{ createdAt: expect.any(Number), lastUsedAt: expect.any(Number), expires: null, permissions: ['*'] },
      },
    ],
    wrong: { limit: 101 },
    forbiddenIsUntyped: true,
  },
  'rootKeys.updateKey': {
    input: ({ rootKeyId }) => ({ keyId: rootKeyId, name: null, enabled: false, permissions: ['api.*.read_api'] }),
    answers: () => ({}),
    wrong: { permissions: ['api.*.fly'] },
    absent: noRootKey,
  },
  'rootKeys.rerollKey': {
    input: ({ rootKeyId }) => ({ keyId: rootKeyId, expiration: null }),
    answers: newRootKey,
    wrong: { expiration: -1 },
    absent: noRootKey,
  },
  'rootKeys.deleteKey': {
    input: ({ rootKeyId }) => ({ keyId: rootKeyId }),
    answers: () => ({}),
    wrong: { keyId: 'not an id' },
    absent: noRootKey,
  },
  'workspace.getUsage': {
    input: () => ({}),
    answers: () => ({
      period: { start: expect.any(Number), end: expect.any(Number) },
      totals: {
        api: { verifications: expect.any(Number), ratelimits: expect.any(Number) },
        compute: { cpuSeconds: 0, memoryGiBHours: 0, storageGiBHours: 0, egressGiB: 0 },
        gateway: { activeKeys: 0 },
      },
      breakdowns: { byEnvironment: [], byApp: [] },
    }),
    wrong: { period: { year: 2026, month: 13 } },
  },
  'workspace.getLimits': {
    input: () => ({}),
    answers: () => ({
      apiBillableOperationsCountMaxPerMonth: { limit: null, current: expect.any(Number) },
      apiRequestsCountMaxPerMinute: unlimited,
      logsRetentionDaysMax: { limit: 90 },
      logsAuditRetentionDaysMax: unlimited,
      logdrainsMax: { limit: 0, current: 0 },
    }),
  },
};

/** The number of items in a list besides the one that `makeThings` created. */
export const more = [1, 2, 3, 4];

/** The lists, which the SDKs read page by page: a function that adds items, and the input that lists only these. */
export const lists: [
  Ours,
  (call: Call, things: Things, name: string) => Promise<unknown>,
  (things: Things) => object,
][] = [
  ['apis.listKeys', (call, { apiId }, name) => call('keys.createKey', { apiId, name }), ({ apiId }) => ({ apiId })],
  [
    'identities.listIdentities',
    (call, _things, externalId) => call('identities.createIdentity', { externalId }),
    ({ name }) => ({ search: name }),
  ],
  [
    'permissions.listPermissions',
    (call, _things, slug) => call('permissions.createPermission', { name: slug, slug }),
    ({ name }) => ({ search: name }),
  ],
  [
    'permissions.listRoles',
    (call, _things, name) => call('permissions.createRole', { name }),
    ({ name }) => ({ search: name }),
  ],
  [
    'ratelimit.listOverrides',
    (call, { override }, identifier) => call('ratelimit.setOverride', { ...override, identifier }),
    ({ name }) => ({ namespace: name }),
  ],
];
