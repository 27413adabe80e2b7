// One call of each operation that succeeds and makes use of all it takes: what the tests of the whole registry start
// from. `Things` are what such calls are about, made anew for every call, as some remove them.

import { randomBytes } from 'node:crypto';
import type { OperationName } from '../../src/operations/index.ts';
import type { Called, InputOf, OutputOf } from './harness.ts';

type Call = <Name extends OperationName>(
  name: Name,
  input: InputOf<Name>,
  as?: string | string[],
) => Promise<Called<OutputOf<Name>>>;

export type Things = Awaited<ReturnType<typeof makeThings>>;

let made = 0;
export const freshName = (): string => `things.${++made}`;
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
  // Counters and usage to be kept, moved and read.
  await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 2 }], tags: ['old'] });
  const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_api'] });
  const override = { namespace: name, identifier: name };
  await ok('ratelimits.setOverride', { ...override, limit: 5, duration: 1000 });
  await ok('ratelimits.setOverride', { ...override, identifier: 'user_*', limit: 5, duration: 1000 });
  await ok('ratelimits.limit', { ...override, identifier: 'counted', limit: 5, duration: 1000 });
  const { namespaceId } = await ok('ratelimits.getOverride', override);
  return { name, apiId, identityId, permissionId, roleId, keyId, key, rootKeyId, namespaceId };
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

export const examples: { [Name in OperationName]: (things: Things) => InputOf<Name> } = {
  'apis.createApi': () => ({ name: freshName() }),
  'apis.getApi': ({ apiId }) => ({ apiId }),
  'apis.listKeys': ({ apiId, name }) => ({ apiId, externalId: name }),
  'apis.deleteApi': ({ apiId }) => ({ apiId }),
  'keys.createKey': (things) => ({ apiId: things.apiId, ...key(things) }),
  'keys.verifyKey': ({ key, name }) => ({
    key,
    permissions: name,
    ratelimits: [
      { name: 'tokens', cost: 3 },
      { name: 'ad hoc', limit: 5, duration: hour },
    ],
    tags: ['old', 'new'],
  }),
  'keys.getKey': ({ keyId }) => ({ keyId }),
  'keys.whoami': ({ key }) => ({ key }),
  'keys.updateKey': (things) => ({ keyId: things.keyId, enabled: true, expires: null, ...key(things) }),
  'keys.updateCredits': ({ keyId }) => ({ keyId, operation: 'increment', value: 3 }),
  'keys.deleteKey': ({ keyId }) => ({ keyId }),
  'keys.rerollKey': ({ keyId }) => ({ keyId, expiration: 1000 }),
  'keys.migrateKeys': (things) => ({
    migrationId: things.name,
    apiId: things.apiId,
    keys: [{ hash: hash(), ...key(things) }, { hash: hash() }],
  }),
  'keys.addPermissions': ({ keyId, name }) => ({ keyId, permissions: [name, freshName()] }),
  'keys.removePermissions': ({ keyId, name }) => ({ keyId, permissions: [`${name}.direct`] }),
  'keys.setPermissions': ({ keyId, name }) => ({ keyId, permissions: [name, freshName()] }),
  'keys.addRoles': ({ keyId, name }) => ({ keyId, roles: [name] }),
  'keys.removeRoles': ({ keyId, name }) => ({ keyId, roles: [name] }),
  'keys.setRoles': ({ keyId, name }) => ({ keyId, roles: [name] }),
  'ratelimits.limit': (things) => check(things, 'user_1'),
  'ratelimits.multiLimit': (things) => [check(things, 'user_1'), check(things, things.name)],
  'ratelimits.setOverride': (things) => ({ ...check(things, 'org_*'), limit: 3 }),
  'ratelimits.getOverride': ({ namespaceId, name }) => ({ namespace: namespaceId, identifier: name }),
  'ratelimits.listOverrides': ({ namespaceId }) => ({ namespace: namespaceId }),
  'ratelimits.deleteOverride': ({ namespaceId, name }) => ({ namespace: namespaceId, identifier: name }),
  'identities.createIdentity': () => ({ externalId: freshName(), meta: { a: 1 }, ratelimits: newLimits() }),
  'identities.getIdentity': ({ identityId }) => ({ identity: identityId }),
  'identities.listIdentities': ({ name }) => ({ search: name }),
  'identities.updateIdentity': ({ identityId }) => ({ identity: identityId, meta: {}, ratelimits: newLimits() }),
  'identities.deleteIdentity': ({ identityId }) => ({ identity: identityId }),
  'permissions.createPermission': () => ({ name: 'new', slug: freshName(), description: 'new' }),
  'permissions.getPermission': ({ permissionId }) => ({ permission: permissionId }),
  'permissions.listPermissions': ({ name }) => ({ search: name }),
  'permissions.deletePermission': ({ permissionId }) => ({ permission: permissionId }),
  'permissions.createRole': ({ name }) => ({ name: freshName(), description: 'new', permissions: [name, freshName()] }),
  'permissions.getRole': ({ roleId }) => ({ role: roleId }),
  'permissions.listRoles': ({ name }) => ({ search: name }),
  'permissions.deleteRole': ({ roleId }) => ({ role: roleId }),
  'permissions.setRolePermissions': ({ roleId, name }) => ({ roleId, permissions: [freshName(), `${name}.direct`] }),
  'analytics.getVerifications': ({ keyId }) => ({ keyId, groupBy: ['outcome', 'externalId'] }),
  'analytics.getRatelimits': ({ namespaceId }) => ({ namespace: namespaceId }),
  'audit.listEvents': () => ({}),
  'rootKeys.createRootKey': ({ name }) => ({ name, permissions: ['api.*.read_api'], expires: 4_102_444_800_000 }),
  'rootKeys.listRootKeys': () => ({}),
  'rootKeys.updateRootKey': ({ rootKeyId }) => ({
    rootKeyId,
    name: null,
    permissions: ['*'],
    enabled: false,
    expires: null,
  }),
  'rootKeys.deleteRootKey': ({ rootKeyId }) => ({ rootKeyId }),
};
