// The story of a small company in one call of each operation, in this order: the source of the examples of /openapi.json.

import type { OperationName } from '../../src/operations/index.ts';
import type { InputOf, OutputOf } from './harness.ts';

/** Operations whose responses have the ids that later requests name. */
export const makers = [
  'apis.createApi',
  'permissions.createRole',
  'keys.createKey',
  'rootKeys.createRootKey',
] as const satisfies OperationName[];

export type Made = OutputOf<'apis.createApi'> &
  OutputOf<'permissions.createRole'> &
  Pick<OutputOf<'keys.createKey'>, 'keyId' | 'key'> &
  Pick<OutputOf<'rootKeys.createRootKey'>, 'rootKeyId'> & {
    /** The SHA-256 of another system's key, in base64. */
    newHash: string;
  };

const minute = 60_000;
/** 2027-01-01. */
const nextYear = 1_798_761_600_000;
const namespace = 'email.send';

export const story: { [Name in OperationName]: (made: Made) => InputOf<Name> } = {
  'apis.createApi': () => ({ name: 'payments' }),
  'apis.getApi': ({ apiId }) => ({ apiId }),
  'permissions.createPermission': () => ({
    name: 'Read documents',
    slug: 'documents.read',
    description: 'May open any document.',
  }),
  'permissions.getPermission': () => ({ permission: 'documents.read' }),
  'permissions.createRole': () => ({
    name: 'editor',
    description: 'Reads and writes documents.',
    permissions: ['documents.read'],
  }),
  'permissions.setRolePermissions': ({ roleId }) => ({
    roleId,
    permissions: ['documents.read', 'documents.write'],
  }),
  'permissions.getRole': () => ({ role: 'editor' }),
  'permissions.listPermissions': () => ({ limit: 10 }),
  'permissions.listRoles': () => ({ search: 'edit' }),
  'identities.createIdentity': () => ({
    externalId: 'ada',
    meta: { plan: 'pro' },
    ratelimits: [{ name: 'tokens', limit: 20_000, duration: 60 * minute }],
  }),
  'identities.getIdentity': () => ({ identity: 'ada' }),
  'identities.listIdentities': () => ({ search: 'ad' }),
  'identities.updateIdentity': () => ({ identity: 'ada', meta: { plan: 'enterprise' } }),
  'keys.createKey': ({ apiId }) => ({
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
  'keys.verifyKey': ({ key }) => ({
    key,
    permissions: 'documents.read AND invoices.read',
    credits: { cost: 5 },
    ratelimits: [{ name: 'tokens', cost: 350 }],
    tags: ['path=/v1/answers'],
  }),
  'keys.whoami': ({ key }) => ({ key }),
  'keys.getKey': ({ keyId }) => ({ keyId }),
  'apis.listKeys': ({ apiId }) => ({ apiId, externalId: 'ada', limit: 10 }),
  'keys.updateKey': ({ keyId }) => ({
    keyId,
    name: "Ada's desktop",
    meta: { team: 'production' },
    expires: null,
  }),
  'keys.updateCredits': ({ keyId }) => ({ keyId, operation: 'increment', value: 500 }),
  'keys.addPermissions': ({ keyId }) => ({ keyId, permissions: ['invoices.write'] }),
  'keys.setPermissions': ({ keyId }) => ({
    keyId,
    permissions: ['invoices.read', 'reports.read'],
  }),
  'keys.removePermissions': ({ keyId }) => ({ keyId, permissions: ['reports.read'] }),
  'keys.setRoles': ({ keyId }) => ({ keyId, roles: [] }),
  'keys.addRoles': ({ keyId }) => ({ keyId, roles: ['editor'] }),
  'keys.removeRoles': ({ keyId }) => ({ keyId, roles: ['editor'] }),
  'keys.rerollKey': ({ keyId }) => ({ keyId, expiration: 60 * minute }),
  'keys.migrateKeys': ({ apiId, newHash }) => ({
    migrationId: 'from-our-own',
    apiId,
    keys: [{ hash: newHash, name: 'Grace', externalId: 'grace', credits: { remaining: 50 } }],
  }),
  'ratelimits.limit': () => ({ namespace, identifier: 'ada', limit: 10, duration: minute }),
  'ratelimits.multiLimit': () => [
    { namespace, identifier: 'ada', limit: 10, duration: minute, cost: 2 },
    { namespace: 'sms.send', identifier: 'ada', limit: 3, duration: minute },
  ],
  'ratelimits.setOverride': () => ({ namespace, identifier: 'partner_*', limit: 500, duration: minute }),
  'ratelimits.getOverride': () => ({ namespace, identifier: 'partner_*' }),
  'ratelimits.listOverrides': () => ({ namespace, limit: 10 }),
  'ratelimits.deleteOverride': () => ({ namespace, identifier: 'partner_*' }),
  'analytics.getVerifications': ({ apiId }) => ({ apiId, groupBy: ['outcome', 'externalId'] }),
  'analytics.getRatelimits': () => ({ namespace }),
  'rootKeys.createRootKey': () => ({
    name: 'gateway',
    permissions: ['api.*.verify_key'],
    expires: nextYear,
  }),
  'rootKeys.updateRootKey': ({ rootKeyId }) => ({
    rootKeyId,
    permissions: ['api.*.verify_key', 'ratelimit.*.limit'],
  }),
  'rootKeys.listRootKeys': () => ({ limit: 10 }),
  'rootKeys.deleteRootKey': ({ rootKeyId }) => ({ rootKeyId }),
  'keys.deleteKey': ({ keyId }) => ({ keyId }),
  'permissions.deleteRole': () => ({ role: 'editor' }),
  'permissions.deletePermission': () => ({ permission: 'documents.write' }),
  'identities.deleteIdentity': () => ({ identity: 'grace' }),
  'apis.deleteApi': ({ apiId }) => ({ apiId }),
  'audit.listEvents': () => ({ limit: 3, order: 'desc' }),
};
