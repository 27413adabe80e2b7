// One entry per operation, for the tests of the whole registry. A new operation does not compile without its entry.
// `Things` are the records that the calls name. They are created again for every call, as some calls delete them.

import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import type { Action, Resource } from '../../src/domain/grants.ts';
import { type RecordName, records, type UniqueRecord } from '../../src/domain/records.ts';
import type { ErrorCode } from '../../src/errors.ts';
import type { OperationName } from '../../src/operations/index.ts';
import type { Called, InputOf, OutputOf } from './harness.ts';

type Call = <Name extends OperationName>(
  name: Name,
  input: InputOf<Name>,
  as?: string,
) => Promise<Pick<Called<OutputOf<Name>>, 'status' | 'data' | 'error'>>;

export type Things = Awaited<ReturnType<typeof makeThings>>;

const pricesExample = {
  currency: 'EUR',
  decimals: 2,
  rules: [
    {
      unit: 'verification' as const,
      steps: [
        { from: 0, price: '0' },
        { from: 10_000, price: '0.0015' },
      ],
    },
  ],
};

let made = 0;
/** All names have one length: a search for one finds no other. */
export const freshName = (): string => `things.${`${++made}`.padStart(6, '0')}`;
const hour = 3_600_000;

export async function makeThings(call: Call, rootKey: string) {
  const ok = async <Name extends OperationName>(name: Name, input: InputOf<Name>) => {
    const { status, data, error } = await call(name, input, rootKey);
    if (status !== 200) throw new Error(`${name}: ${error.detail}`);
    return data;
  };
  const name = freshName();
  const limits = [
    { name: 'requests', limit: 9, duration: hour, autoApply: true },
    { name: 'tokens', limit: 99, duration: hour },
  ];
  const { apiId } = await ok('apis.createApi', { name });
  const { identityId } = await ok('identities.createIdentity', {
    externalId: name,
    ratelimits: limits,
    meta: { a: 1 },
  });
  const { permissionId } = await ok('permissions.createPermission', { name, slug: name });
  const { roleId } = await ok('permissions.createRole', { name, permissions: [name] });
  const { keyId, key } = await ok('keys.createKey', {
    apiId,
    externalId: name,
    meta: { a: 1 },
    credits: { remaining: 9, refill: { interval: 'daily', amount: 9 } },
    ratelimits: limits.map((limit) => ({ ...limit, name: `key ${limit.name}` })),
    roles: [name],
    permissions: [`${name}.direct`],
  });
  // Counters and usage, for calls that keep, move or read them.
  await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 2 }], tags: ['old'] });
  await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 200 }] });
  const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_api'] });
  const override = { namespace: name, identifier: name };
  await ok('ratelimits.setOverride', { ...override, limit: 5, duration: 1000 });
  await ok('ratelimits.setOverride', { ...override, identifier: 'user_*', limit: 5, duration: 1000 });
  await ok('ratelimits.limit', { ...override, identifier: 'counted', limit: 5, duration: 1000 });
  const { namespaceId, createdAt } = await ok('ratelimits.getOverride', override);
  // Earlier releases have no temporary overrides.
  const temporary = { ...override, limit: 50, duration: 1000, until: createdAt + 300 * 24 * hour };
  await call('ratelimits.setOverride', temporary, rootKey);
  await call('ratelimits.setOverride', { ...temporary, identifier: 'guest_*' }, rootKey);
  // Nor temporary limits.
  const { until } = temporary;
  await call('keys.updateKey', { keyId, ratelimit: { name: 'key tokens', limit: 500, until } }, rootKey);
  const ofIdentity = { identity: identityId, ratelimit: { name: 'tokens', limit: 500, duration: 2 * hour, until } };
  await call('identities.updateIdentity', ofIdentity, rootKey);
  // Nor plans.
  const planId = freshName();
  await call('plans.createPlan', { planId, ratelimits: [{ name: 'plan tokens', limit: 7, duration: hour }] }, rootKey);
  const deleted = await ok('keys.createKey', { apiId, name, externalId: name, ratelimits: limits });
  await ok('keys.verifyKey', { key: deleted.key });
  await ok('keys.deleteKey', { keyId: deleted.keyId });
  const { keyId: deletedKeyId, key: deletedKey } = deleted;
  const { apiId: deletedApiId } = await ok('apis.createApi', { name });
  await ok('keys.createKey', { apiId: deletedApiId, name });
  await ok('apis.deleteApi', { apiId: deletedApiId, confirm: name });
  const { identityId: deletedIdentityId } = await ok('identities.createIdentity', { externalId: `${name}.deleted` });
  await ok('identities.deleteIdentity', { identity: deletedIdentityId });
  const held = await ok('keys.createKey', { apiId, name, credits: { remaining: 100 }, ratelimits: limits });
  // Earlier releases have no holds.
  const { data } = await call('keys.verifyKey', { key: held.key, credits: { cost: 5 }, hold: { ttl: hour } }, rootKey);
  const holdId = data?.hold?.id ?? '';
  await call('keys.verifyKey', { key: held.key, hold: { ttl: hour } }, rootKey);
  return {
    heldKeyId: held.keyId,
    holdId,
    name,
    apiId,
    identityId,
    permissionId,
    roleId,
    keyId,
    key,
    deletedKeyId,
    deletedKey,
    deletedApiId,
    deletedIdentityId,
    rootKeyId,
    namespaceId,
    planId,
  };
}

export const hash = (): string => randomBytes(32).toString('base64');

const newLimits = () => [
  { name: 'key requests', limit: 3, duration: hour },
  { name: 'another', limit: 3, duration: 2 * hour, autoApply: true },
];
const check = ({ namespaceId }: Things, identifier: string) => ({
  namespace: namespaceId,
  identifier,
  limit: 1,
  duration: 1000,
});
const key = ({ name }: Things) => ({
  name,
  externalId: freshName(),
  meta: { a: 1 },
  credits: { remaining: 9, refill: { interval: 'monthly' as const, amount: 9, refillDay: 3 } },
  ratelimits: newLimits(),
  roles: [name],
  permissions: [name, freshName()],
});

/** Operations whose responses have the ids that later requests name. */
export const makers = [
  'apis.createApi',
  'identities.createIdentity',
  'permissions.createRole',
  'keys.createKey',
  'keys.verifyKey',
  'rootKeys.createRootKey',
] as const satisfies OperationName[];

export type Made = OutputOf<'apis.createApi'> &
  OutputOf<'identities.createIdentity'> &
  OutputOf<'permissions.createRole'> &
  Pick<OutputOf<'keys.createKey'>, 'keyId' | 'key'> &
  Pick<OutputOf<'keys.verifyKey'>, 'hold'> &
  Pick<OutputOf<'rootKeys.createRootKey'>, 'rootKeyId'> & {
    /** The SHA-256 of another system's key, in base64. */
    newHash: string;
    /** The id of the root key that replaced another. */
    successorId: string;
  };

const minute = 60_000;
/** 2027-01-01. */
const nextYear = 1_798_761_600_000;
const emails = 'email.send';

/** `api.create_key`: a grant without its id. */
export type Need = { [R in Resource]: `${R}.${Action<R>}` }[Resource];

export interface Example<Name extends OperationName> {
  /** A valid input with all members of the operation. */
  input(things: Things): InputOf<Name>;
  /** The grants that this input needs, all of them. Inputs that need others are in permissionTable.test.ts. */
  needs: Need[];
  /** The error for ids of another workspace in `input`; null if `input` has no ids, or if these are no error. */
  elsewhere: ErrorCode | null;
  /** The resource that its audit event names; null for an operation that changes nothing. */
  changes: ((things: Things, data: OutputOf<Name>) => [type: string, id: string]) | null;
  /** The request in the API reference. In the order of this file, they use one set of records of a small company. */
  documented(made: Made): InputOf<Name>;
}

/** The id of a record of this kind in things or in a response. */
const idIn = (ids: object, kind: RecordName): string =>
  (ids as Record<string, string>)[`${kind.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())}Id`]!;

/** The inputs of an operation that takes the id of a record or the name that it has besides. */
const byReference = <Kind extends UniqueRecord>(kind: Kind, documented: string) => ({
  input: (things: Things) => ({ [kind]: idIn(things, kind) }) as Record<Kind, string>,
  documented: () => ({ [kind]: documented }) as Record<Kind, string>,
});

/** The inputs of an operation that finds records by a text. */
const bySearch = (documented: string) => ({
  input: ({ name }: Things) => ({ search: name }),
  documented: () => ({ search: documented }),
});

/** What operations need that read, list, change and create records of a kind, and have the usual errors. */
const ofKind = <Kind extends RecordName>(kind: Kind) => {
  const named = (ids: object): [string, string] => [kind, idIn(ids, kind)];
  const needs = (action: string) => [`${records[kind].resource}.${action}_${kind}` as Need];
  return {
    create: { needs: needs('create'), elsewhere: null, changes: (_things: Things, made: object) => named(made) },
    list: { needs: needs('read'), elsewhere: null, changes: null },
    read: { needs: needs('read'), elsewhere: `${kind}_not_found` as const, changes: null },
    update: { needs: needs('update'), elsewhere: `${kind}_not_found` as const, changes: named },
    delete: { needs: needs('delete'), elsewhere: `${kind}_not_found` as const, changes: named },
  };
};

export const examples: { [Name in OperationName]: Example<Name> } = {
  'apis.createApi': {
    input: () => ({ name: freshName() }),
    ...ofKind('api').create,
    documented: () => ({ name: 'payments' }),
  },
  'apis.getApi': {
    input: ({ apiId }) => ({ apiId }),
    ...ofKind('api').read,
    documented: ({ apiId }) => ({ apiId }),
  },
  'apis.listApis': {
    input: ({ name }) => ({ search: name, order: 'desc' }),
    ...ofKind('api').list,
    documented: () => ({ search: 'pay', order: 'desc', limit: 10 }),
  },
  'permissions.createPermission': {
    input: () => ({ name: 'new', slug: freshName(), description: 'new' }),
    ...ofKind('permission').create,
    documented: () => ({
      name: 'Read documents',
      slug: 'documents.read',
      description: 'May open any document.',
    }),
  },
  'permissions.getPermission': { ...ofKind('permission').read, ...byReference('permission', 'documents.read') },
  'permissions.updatePermission': {
    input: ({ name }) => ({ permission: name, slug: freshName(), name: 'renamed', description: null }),
    ...ofKind('permission').update,
    documented: () => ({ permission: 'documents.read', description: 'May open and search any document.' }),
  },
  'permissions.createRole': {
    input: ({ name }) => ({ name: freshName(), description: 'new', permissions: [name, freshName()] }),
    needs: ['rbac.create_role', 'rbac.add_permission_to_role', 'rbac.create_permission'],
    elsewhere: null,
    changes: (_things, { roleId }) => ['role', roleId],
    documented: () => ({
      name: 'editor',
      description: 'Reads and writes documents.',
      permissions: ['documents.read'],
    }),
  },
  'permissions.setRolePermissions': {
    input: ({ roleId, name }) => ({ roleId, permissions: [freshName(), `${name}.direct`] }),
    needs: ['rbac.add_permission_to_role', 'rbac.remove_permission_from_role', 'rbac.create_permission'],
    elsewhere: 'role_not_found',
    changes: ({ roleId }) => ['role', roleId],
    documented: ({ roleId }) => ({
      roleId,
      permissions: ['documents.read', 'documents.write'],
    }),
  },
  'permissions.getRole': { ...ofKind('role').read, ...byReference('role', 'editor') },
  'permissions.updateRole': {
    input: ({ name }) => ({ role: name, name: freshName(), description: 'renamed' }),
    ...ofKind('role').update,
    documented: () => ({ role: 'editor', description: 'Reads, writes and shares documents.' }),
  },
  'permissions.listPermissions': {
    input: ({ name }) => ({ search: name }),
    ...ofKind('permission').list,
    documented: () => ({ limit: 10 }),
  },
  'permissions.listRoles': { ...ofKind('role').list, ...bySearch('edit') },
  'plans.createPlan': {
    input: ({ name }) => ({
      planId: freshName(),
      ratelimits: newLimits(),
      permissions: [name, freshName()],
      roles: [name],
      meta: { a: 1 },
    }),
    needs: ['plan.create_plan', 'rbac.add_permission_to_role', 'rbac.create_permission'],
    elsewhere: 'role_not_found',
    changes: (_things, { planId }) => ['plan', planId],
    documented: () => ({
      planId: 'pro',
      ratelimits: [
        { name: 'requests', limit: 100, duration: minute, autoApply: true },
        { name: 'tokens', limit: 1_000_000, period: 'month', autoApply: true },
      ],
      permissions: ['documents.write'],
      meta: { seats: 5 },
    }),
  },
  'plans.getPlan': {
    input: ({ planId }) => ({ planId }),
    ...ofKind('plan').read,
    documented: () => ({ planId: 'pro' }),
  },
  'plans.listPlans': { ...ofKind('plan').list, ...bySearch('pro') },
  'plans.updatePlan': {
    input: ({ planId, name }) => ({
      planId,
      ratelimits: newLimits(),
      permissions: [name, freshName()],
      roles: [name],
      meta: { a: 2 },
    }),
    needs: [
      'plan.update_plan',
      'rbac.add_permission_to_role',
      'rbac.remove_permission_from_role',
      'rbac.create_permission',
    ],
    elsewhere: 'plan_not_found',
    changes: ({ planId }) => ['plan', planId],
    documented: () => ({
      planId: 'pro',
      ratelimits: [
        { name: 'requests', limit: 200, duration: minute, autoApply: true },
        { name: 'tokens', limit: 1_000_000, period: 'month', autoApply: true },
      ],
    }),
  },
  'identities.createIdentity': {
    input: () => ({
      externalId: freshName(),
      meta: { a: 1 },
      ratelimits: newLimits(),
      credits: { remaining: 7, refill: { interval: 'monthly', amount: 9, refillDay: 2 } },
    }),
    ...ofKind('identity').create,
    documented: () => ({
      externalId: 'ada',
      meta: { plan: 'pro' },
      ratelimits: [{ name: 'tokens', limit: 20_000, duration: 60 * minute }],
      credits: { remaining: 5000, refill: { interval: 'monthly', amount: 5000 } },
    }),
  },
  'identities.getIdentity': { ...ofKind('identity').read, ...byReference('identity', 'ada') },
  'identities.listIdentities': { ...ofKind('identity').list, ...bySearch('ad') },
  'identities.updateIdentity': {
    input: ({ identityId }) => ({ identity: identityId, meta: {}, ratelimits: newLimits() }),
    ...ofKind('identity').update,
    documented: () => ({ identity: 'ada', meta: { plan: 'enterprise' } }),
  },
  'identities.updateCredits': {
    input: ({ identityId }) => ({ identity: identityId, operation: 'set', value: 11 }),
    ...ofKind('identity').update,
    documented: () => ({ identity: 'ada', operation: 'increment', value: 1000 }),
  },
  'keys.createKey': {
    input: (things) => ({ apiId: things.apiId, ...key(things) }),
    needs: ['api.create_key', 'rbac.create_permission'],
    elsewhere: 'api_not_found',
    changes: (_things, { keyId }) => ['key', keyId],
    documented: ({ apiId }) => ({
      apiId,
      prefix: 'pay',
      name: "Ada's laptop",
      externalId: 'ada',
      meta: { team: 'research' },
      expires: nextYear,
      credits: { remaining: 1000, refill: { interval: 'monthly', amount: 1000, refillDay: 1 } },
      ratelimits: [{ name: 'requests', limit: 100, duration: minute, autoApply: true }],
      roles: ['editor'],
      permissions: ['invoices.read'],
    }),
  },
  'keys.verifyKey': {
    input: ({ key, name }) => ({
      key,
      permissions: name,
      ratelimits: [
        { name: 'tokens', cost: 3 },
        { name: 'ad hoc', limit: 5, duration: hour },
      ],
      tags: ['old', 'new'],
    }),
    needs: ['api.verify_key'],
    elsewhere: null,
    changes: null,
    documented: ({ key }) => ({
      key,
      permissions: 'documents.read AND invoices.read',
      credits: { cost: 5 },
      ratelimits: [{ name: 'tokens', cost: 350 }],
      tags: ['path=/v1/answers'],
      hold: { ttl: minute },
    }),
  },
  'keys.listHolds': {
    input: ({ heldKeyId }) => ({ keyId: heldKeyId }),
    ...ofKind('key').read,
    documented: ({ keyId }) => ({ keyId }),
  },
  'keys.extendHold': {
    input: ({ holdId }) => ({ holdId, ttl: 2 * hour }),
    needs: ['api.verify_key'],
    elsewhere: 'hold_not_found',
    changes: null,
    documented: ({ hold }) => ({ holdId: hold!.id, ttl: 2 * minute }),
  },
  'keys.releaseHold': {
    input: ({ holdId }) => ({ holdId }),
    needs: ['api.verify_key'],
    elsewhere: 'hold_not_found',
    changes: null,
    documented: ({ hold }) => ({ holdId: hold!.id }),
  },
  'keys.settleHold': {
    input: ({ holdId }) => ({ holdId, credits: { cost: 3 }, ratelimits: [{ name: 'requests', cost: 1 }] }),
    needs: ['api.verify_key'],
    elsewhere: 'hold_not_found',
    changes: null,
    documented: ({ hold }) => ({
      holdId: hold!.id,
      credits: { cost: 3 },
      ratelimits: [{ name: 'tokens', cost: 212 }],
    }),
  },
  'keys.explainKey': {
    input: ({ keyId, name }) => ({
      keyId,
      permissions: `${name} AND none`,
      credits: { cost: 2 },
      ratelimits: [
        { name: 'tokens', cost: 3 },
        { name: 'ad hoc', limit: 5, duration: hour },
      ],
      tags: ['old'],
    }),
    ...ofKind('key').list,
    documented: ({ keyId }) => ({
      keyId,
      permissions: 'documents.read AND (invoices.write OR billing.*)',
      credits: { cost: 5 },
    }),
  },
  'keys.whoami': {
    input: ({ key }) => ({ key }),
    ...ofKind('key').read,
    documented: ({ key }) => ({ key }),
  },
  'keys.getKey': {
    input: ({ keyId }) => ({ keyId }),
    ...ofKind('key').read,
    documented: ({ keyId }) => ({ keyId }),
  },
  'apis.listKeys': {
    input: ({ apiId, name }) => ({ apiId, externalId: name }),
    needs: ['api.read_key', 'api.read_api'],
    elsewhere: 'api_not_found',
    changes: null,
    documented: ({ apiId }) => ({ apiId, externalId: 'ada', limit: 10 }),
  },
  'keys.listKeys': {
    input: ({ apiId, name }) => ({
      apiId,
      order: 'desc',
      externalId: name,
      enabled: true,
      permission: name,
      role: name,
      creditsBelow: 100,
      rerolledInUse: false,
    }),
    needs: ['api.read_key', 'api.read_api'],
    elsewhere: 'api_not_found',
    changes: null,
    documented: () => ({ search: 'laptop', enabled: true, expiresBefore: nextYear + 1, order: 'desc', limit: 10 }),
  },
  'keys.getAttention': {
    input: ({ apiId }) => ({
      apiId,
      expiresBefore: nextYear + 1,
      creditsBelow: 100,
      unusedSince: nextYear,
      rerolledInUse: true,
    }),
    needs: ['api.read_key', 'api.read_api'],
    elsewhere: 'api_not_found',
    changes: null,
    documented: () => ({ limit: 1, expiresBefore: nextYear + 1, creditsBelow: 100 }),
  },
  'keys.updateKey': {
    input: (things) => ({ keyId: things.keyId, enabled: true, expires: null, ...key(things) }),
    needs: ['api.update_key', 'rbac.create_permission'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({
      keyId,
      name: "Ada's desktop",
      meta: { team: 'production' },
      expires: null,
      ratelimit: { name: 'requests', limit: 500, until: nextYear },
    }),
  },
  'keys.updateCredits': {
    input: ({ keyId }) => ({ keyId, operation: 'increment', value: 3 }),
    ...ofKind('key').update,
    documented: ({ keyId }) => ({ keyId, operation: 'increment', value: 500 }),
  },
  'keys.addPermissions': {
    input: ({ keyId, name }) => ({ keyId, permissions: [name, freshName()] }),
    needs: ['api.update_key', 'rbac.add_permission_to_key', 'rbac.create_permission'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyId, permissions: ['invoices.write'] }),
  },
  'keys.setPermissions': {
    input: ({ keyId, name }) => ({ keyId, permissions: [name, freshName()] }),
    needs: [
      'api.update_key',
      'rbac.add_permission_to_key',
      'rbac.remove_permission_from_key',
      'rbac.create_permission',
    ],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({
      keyId,
      permissions: ['invoices.read', 'reports.read'],
    }),
  },
  'keys.removePermissions': {
    input: ({ keyId, name }) => ({ keyId, permissions: [`${name}.direct`] }),
    needs: ['api.update_key', 'rbac.remove_permission_from_key'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyId, permissions: ['reports.read'] }),
  },
  'keys.setRoles': {
    input: ({ keyId, name }) => ({ keyId, roles: [name] }),
    needs: ['api.update_key', 'rbac.add_role_to_key', 'rbac.remove_role_from_key'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyId, roles: [] }),
  },
  'keys.addRoles': {
    input: ({ keyId, name }) => ({ keyId, roles: [name] }),
    needs: ['api.update_key', 'rbac.add_role_to_key'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyId, roles: ['editor'] }),
  },
  'keys.removeRoles': {
    input: ({ keyId, name }) => ({ keyId, roles: [name] }),
    needs: ['api.update_key', 'rbac.remove_role_from_key'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyId, roles: ['editor'] }),
  },
  'keys.rerollKey': {
    input: ({ keyId }) => ({ keyId, expiration: 1000 }),
    needs: ['api.create_key'],
    elsewhere: 'key_not_found',
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyId, expiration: 60 * minute, credits: 'move' }),
  },
  'keys.migrateKeys': {
    input: (things) => ({
      migrationId: things.name,
      apiId: things.apiId,
      keys: [{ hash: hash(), ...key(things) }, { hash: hash() }],
    }),
    needs: ['api.create_key', 'rbac.create_permission'],
    elsewhere: 'api_not_found',
    changes: ({ apiId }) => ['api', apiId],
    documented: ({ apiId, newHash }) => ({
      migrationId: 'from-our-own',
      apiId,
      keys: [{ hash: newHash, name: 'Grace', externalId: 'grace', credits: { remaining: 50 } }],
    }),
  },
  'ratelimits.limit': {
    input: (things) => check(things, 'user_1'),
    needs: ['ratelimit.limit'],
    elsewhere: 'namespace_not_found',
    changes: null,
    documented: () => ({ namespace: emails, identifier: 'ada', limit: 10, duration: minute }),
  },
  'ratelimits.multiLimit': {
    input: (things) => [check(things, 'user_1'), check(things, things.name)],
    needs: ['ratelimit.limit'],
    elsewhere: 'namespace_not_found',
    changes: null,
    documented: () => [
      { namespace: emails, identifier: 'ada', limit: 10, duration: minute, cost: 2 },
      { namespace: 'sms.send', identifier: 'ada', limit: 3, duration: minute },
    ],
  },
  'ratelimits.setOverride': {
    input: (things) => ({ ...check(things, 'org_*'), limit: 3 }),
    needs: ['ratelimit.set_override'],
    elsewhere: 'namespace_not_found',
    changes: (_things, { overrideId }) => ['override', overrideId],
    documented: () => ({ namespace: emails, identifier: 'partner_*', limit: 500, duration: minute }),
  },
  'ratelimits.listNamespaces': {
    input: ({ name }) => ({ search: name, order: 'desc' }),
    needs: ['ratelimit.read_namespace'],
    elsewhere: null,
    changes: null,
    documented: () => ({ order: 'asc', limit: 10 }),
  },
  'ratelimits.getOverride': {
    input: ({ namespaceId, name }) => ({ namespace: namespaceId, identifier: name }),
    needs: ['ratelimit.read_override'],
    elsewhere: 'namespace_not_found',
    changes: null,
    documented: () => ({ namespace: emails, identifier: 'partner_*' }),
  },
  'ratelimits.listOverrides': {
    input: ({ namespaceId }) => ({ namespace: namespaceId }),
    needs: ['ratelimit.read_override'],
    elsewhere: 'namespace_not_found',
    changes: null,
    documented: () => ({ namespace: emails, limit: 10 }),
  },
  'ratelimits.deleteOverride': {
    input: ({ namespaceId, name }) => ({ namespace: namespaceId, identifier: name }),
    needs: ['ratelimit.delete_override'],
    elsewhere: 'namespace_not_found',
    changes: () => ['override', expect.stringMatching(/^rlor_/)],
    documented: () => ({ namespace: emails, identifier: 'partner_*' }),
  },
  'ratelimits.listTemporary': {
    input: ({ apiId }) => ({ apiId, before: nextYear, limit: 10 }),
    needs: ['api.read_key', 'api.read_api'],
    elsewhere: 'api_not_found',
    changes: null,
    documented: () => ({ kinds: ['key', 'override'], limit: 10 }),
  },
  'analytics.getVerifications': {
    input: ({ keyId }) => ({ keyId, groupBy: ['outcome', 'externalId'] }),
    needs: ['api.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: ({ apiId }) => ({ apiId, groupBy: ['outcome', 'externalId'] }),
  },
  'analytics.getTop': {
    input: ({ apiId }) => ({ of: 'keys', apiId }),
    needs: ['api.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: ({ apiId }) => ({ of: 'keys', by: 'spentCredits', apiId, limit: 3 }),
  },
  'analytics.getRatelimits': {
    input: ({ namespaceId }) => ({ namespace: namespaceId }),
    needs: ['ratelimit.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: () => ({ namespace: emails }),
  },
  'analytics.listCustomers': {
    input: ({ apiId }) => ({ apiId, limit: 10 }),
    needs: ['api.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: ({ apiId }) => ({ apiId, limit: 1000 }),
  },
  'analytics.listRefusals': {
    input: ({ apiId, keyId, name }) => ({ apiId, keyId, externalId: name, outcome: 'RATE_LIMITED', limit: 10 }),
    needs: ['api.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: ({ apiId }) => ({ apiId, externalId: 'ada', limit: 10 }),
  },
  'analytics.tail': {
    input: ({ apiId, keyId, name }) => ({ apiId, keyId, externalId: name, outcome: 'VALID' }),
    needs: ['api.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: ({ apiId }) => ({ apiId, externalId: 'ada' }),
  },
  'rootKeys.createRootKey': {
    input: ({ name }) => ({ name, permissions: ['api.*.read_api'], expires: 4_102_444_800_000 }),
    needs: ['root_key.create_root_key', 'api.read_api'],
    elsewhere: null,
    changes: (_things, { rootKeyId }) => ['root_key', rootKeyId],
    documented: () => ({
      name: 'gateway',
      permissions: ['api.*.verify_key'],
      expires: nextYear,
    }),
  },
  'rootKeys.updateRootKey': {
    input: ({ rootKeyId }) => ({
      rootKeyId,
      name: null,
      permissions: ['api.*.read_api', 'root_key.*.update_root_key'],
      enabled: false,
      expires: null,
    }),
    needs: ['root_key.update_root_key', 'api.read_api'],
    elsewhere: 'root_key_not_found',
    changes: ({ rootKeyId }) => ['root_key', rootKeyId],
    documented: ({ rootKeyId }) => ({
      rootKeyId,
      permissions: ['api.*.verify_key', 'ratelimit.*.limit'],
    }),
  },
  'rootKeys.listRootKeys': {
    input: () => ({}),
    ...ofKind('root_key').list,
    documented: () => ({ limit: 10 }),
  },
  'rootKeys.whoami': {
    input: () => ({}),
    needs: [],
    elsewhere: null,
    changes: null,
    documented: () => ({}),
  },
  'rootKeys.createKey': {
    input: ({ name }) => ({ name, permissions: ['api.*.read_api'], expires: 4_102_444_800_000 }),
    needs: ['root_key.create_root_key', 'api.read_api'],
    elsewhere: null,
    changes: (_things, { keyId }) => ['root_key', keyId],
    documented: () => ({ name: 'worker', permissions: ['api.*.read_key'] }),
  },
  'rootKeys.updateKey': {
    input: ({ rootKeyId }) => ({ keyId: rootKeyId, name: 'new', enabled: false }),
    needs: ['root_key.update_root_key', 'api.read_api'],
    elsewhere: 'root_key_not_found',
    changes: ({ rootKeyId }) => ['root_key', rootKeyId],
    documented: ({ rootKeyId }) => ({ keyId: rootKeyId, name: 'edge gateway' }),
  },
  'rootKeys.listKeys': { input: () => ({}), ...ofKind('root_key').list, documented: () => ({ limit: 10 }) },
  'rootKeys.rerollKey': {
    input: ({ rootKeyId }) => ({ keyId: rootKeyId, expiration: hour }),
    needs: ['root_key.create_root_key', 'root_key.update_root_key', 'api.read_api'],
    elsewhere: 'root_key_not_found',
    changes: ({ rootKeyId }) => ['root_key', rootKeyId],
    documented: ({ rootKeyId }) => ({ keyId: rootKeyId, expiration: 60 * minute }),
  },
  'rootKeys.deleteKey': {
    input: ({ rootKeyId }) => ({ keyId: rootKeyId }),
    needs: ['root_key.delete_root_key', 'api.read_api'],
    elsewhere: 'root_key_not_found',
    changes: ({ rootKeyId }) => ['root_key', rootKeyId],
    documented: ({ successorId }) => ({ keyId: successorId }),
  },
  'rootKeys.deleteRootKey': {
    input: ({ rootKeyId }) => ({ rootKeyId }),
    needs: ['root_key.delete_root_key', 'api.read_api'],
    elsewhere: 'root_key_not_found',
    changes: ({ rootKeyId }) => ['root_key', rootKeyId],
    documented: ({ rootKeyId }) => ({ rootKeyId }),
  },
  'keys.deleteKey': {
    input: ({ keyId }) => ({ keyId }),
    ...ofKind('key').delete,
    documented: ({ keyId }) => ({ keyId }),
  },
  'keys.restoreKey': {
    input: ({ deletedKeyId }) => ({ keyId: deletedKeyId }),
    needs: ['api.create_key', 'api.delete_key'],
    elsewhere: 'key_not_found',
    changes: ({ deletedKeyId }) => ['key', deletedKeyId],
    documented: ({ keyId }) => ({ keyId }),
  },
  'keys.changeKeys': {
    input: ({ keyId, heldKeyId }) => ({ keyIds: [keyId, heldKeyId], change: { enabled: false } }),
    needs: ['api.update_key'],
    elsewhere: null,
    changes: ({ keyId }) => ['key', keyId],
    documented: ({ keyId }) => ({ keyIds: [keyId, `key_${'1'.repeat(24)}`], change: { enabled: false } }),
  },
  'system.find': {
    input: ({ name }) => ({ text: name }),
    needs: [],
    elsewhere: null,
    changes: null,
    documented: () => ({ text: 'ada' }),
  },
  'plans.deletePlan': {
    input: ({ planId }) => ({ planId }),
    ...ofKind('plan').delete,
    documented: () => ({ planId: 'pro' }),
  },
  'permissions.deleteRole': { ...ofKind('role').delete, ...byReference('role', 'editor') },
  'permissions.deletePermission': { ...ofKind('permission').delete, ...byReference('permission', 'documents.write') },
  'identities.deleteIdentity': { ...ofKind('identity').delete, ...byReference('identity', 'ada') },
  'apis.updateApi': {
    input: ({ apiId }) => ({ apiId, name: 'renamed' }),
    ...ofKind('api').update,
    documented: ({ apiId }) => ({ apiId, name: 'payments EU' }),
  },
  'apis.deleteApi': {
    input: ({ apiId, name }) => ({ apiId, confirm: name }),
    ...ofKind('api').delete,
    documented: ({ apiId }) => ({ apiId }),
  },
  'apis.restoreApi': {
    input: ({ deletedApiId }) => ({ apiId: deletedApiId }),
    needs: ['api.create_api', 'api.delete_api'],
    elsewhere: 'api_not_found',
    changes: ({ deletedApiId }) => ['api', deletedApiId],
    documented: ({ apiId }) => ({ apiId }),
  },
  'identities.restoreIdentity': {
    input: ({ deletedIdentityId }) => ({ identityId: deletedIdentityId }),
    needs: ['identity.create_identity', 'identity.delete_identity'],
    elsewhere: 'identity_not_found',
    changes: ({ deletedIdentityId }) => ['identity', deletedIdentityId],
    documented: ({ identityId }) => ({ identityId }),
  },
  'workspace.getSettings': {
    input: () => ({}),
    needs: ['workspace.read_settings'],
    elsewhere: null,
    changes: null,
    documented: () => ({}),
  },
  'workspace.updateSettings': {
    input: () => ({ name: freshName(), protectApis: true }),
    needs: ['workspace.update_settings'],
    elsewhere: null,
    changes: () => ['workspace', expect.stringMatching(/^ws_/)],
    documented: () => ({
      protectApis: true,
      me: { origins: ['https://app.example.com'], meta: ['tier'] },
      prices: pricesExample,
    }),
  },
  'workspace.getUsage': {
    input: () => ({}),
    needs: ['api.read_analytics', 'ratelimit.read_analytics'],
    elsewhere: null,
    changes: null,
    documented: () => ({}),
  },
  'workspace.getLimits': {
    input: () => ({}),
    needs: ['api.read_analytics', 'ratelimit.read_analytics', 'workspace.read_settings'],
    elsewhere: null,
    changes: null,
    documented: () => ({}),
  },
  'system.getStatus': {
    input: () => ({}),
    needs: ['system.read_status'],
    elsewhere: null,
    changes: null,
    documented: () => ({}),
  },
  'audit.listEvents': {
    input: () => ({}),
    needs: ['audit.read_audit'],
    elsewhere: null,
    changes: null,
    documented: () => ({ limit: 3, order: 'desc', resource: { type: 'key' } }),
  },
};

/** The entry of an operation whose name is not known to the compiler. */
export const exampleOf = (name: string): Example<OperationName> => examples[name as OperationName] as never;
