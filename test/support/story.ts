// The story of a small company, told by calling every operation once: where the examples of /openapi.json come from.

import type { OperationName } from '../../src/operations/index.ts';
import type { InputOf, OutputOf } from './harness.ts';

export type Tell = <Name extends OperationName>(name: Name, input: InputOf<Name>) => Promise<OutputOf<Name>>;

const minute = 60_000;
/** 2027-01-01. */
const nextYear = 1_798_761_600_000;

/** `newHash` is the SHA-256 of some other system's key, in base64. */
export async function tellStory(tell: Tell, newHash: string) {
  const { apiId } = await tell('apis.createApi', { name: 'payments' });
  await tell('apis.getApi', { apiId });
  await tell('permissions.createPermission', {
    name: 'Read documents',
    slug: 'documents.read',
    description: 'May open any document.',
  });
  await tell('permissions.getPermission', { permission: 'documents.read' });
  const { roleId } = await tell('permissions.createRole', {
    name: 'editor',
    description: 'Reads and writes documents.',
    permissions: ['documents.read'],
  });
  await tell('permissions.setRolePermissions', { roleId, permissions: ['documents.read', 'documents.write'] });
  await tell('permissions.getRole', { role: 'editor' });
  await tell('permissions.listPermissions', { limit: 10 });
  await tell('permissions.listRoles', { search: 'edit' });

  await tell('identities.createIdentity', {
    externalId: 'ada',
    meta: { plan: 'pro' },
    ratelimits: [{ name: 'tokens', limit: 20_000, duration: 60 * minute }],
  });
  await tell('identities.getIdentity', { identity: 'ada' });
  await tell('identities.listIdentities', { search: 'ad' });
  await tell('identities.updateIdentity', { identity: 'ada', meta: { plan: 'enterprise' } });

  const { keyId, key } = await tell('keys.createKey', {
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
  });
  await tell('keys.verifyKey', {
    key,
    permissions: 'documents.read AND invoices.read',
    credits: { cost: 5 },
    ratelimits: [{ name: 'tokens', cost: 350 }],
    tags: ['path=/v1/answers'],
  });
  await tell('keys.whoami', { key });
  await tell('keys.getKey', { keyId });
  await tell('apis.listKeys', { apiId, externalId: 'ada', limit: 10 });
  await tell('keys.updateKey', { keyId, name: "Ada's desktop", meta: { team: 'production' }, expires: null });
  await tell('keys.updateCredits', { keyId, operation: 'increment', value: 500 });
  await tell('keys.addPermissions', { keyId, permissions: ['invoices.write'] });
  await tell('keys.setPermissions', { keyId, permissions: ['invoices.read', 'reports.read'] });
  await tell('keys.removePermissions', { keyId, permissions: ['reports.read'] });
  await tell('keys.setRoles', { keyId, roles: [] });
  await tell('keys.addRoles', { keyId, roles: ['editor'] });
  await tell('keys.removeRoles', { keyId, roles: ['editor'] });
  await tell('keys.rerollKey', { keyId, expiration: 60 * minute });
  await tell('keys.migrateKeys', {
    migrationId: 'from-our-own',
    apiId,
    keys: [{ hash: newHash, name: 'Grace', externalId: 'grace', credits: { remaining: 50 } }],
  });

  const namespace = 'email.send';
  await tell('ratelimits.limit', { namespace, identifier: 'ada', limit: 10, duration: minute });
  await tell('ratelimits.multiLimit', [
    { namespace, identifier: 'ada', limit: 10, duration: minute, cost: 2 },
    { namespace: 'sms.send', identifier: 'ada', limit: 3, duration: minute },
  ]);
  await tell('ratelimits.setOverride', { namespace, identifier: 'partner_*', limit: 500, duration: minute });
  await tell('ratelimits.getOverride', { namespace, identifier: 'partner_*' });
  await tell('ratelimits.listOverrides', { namespace, limit: 10 });
  await tell('ratelimits.deleteOverride', { namespace, identifier: 'partner_*' });

  await tell('analytics.getVerifications', { apiId, groupBy: ['outcome', 'externalId'] });
  await tell('analytics.getRatelimits', { namespace });

  const { rootKeyId } = await tell('rootKeys.createRootKey', {
    name: 'gateway',
    permissions: ['api.*.verify_key'],
    expires: nextYear,
  });
  await tell('rootKeys.updateRootKey', { rootKeyId, permissions: ['api.*.verify_key', 'ratelimit.*.limit'] });
  await tell('rootKeys.listRootKeys', { limit: 10 });
  await tell('rootKeys.deleteRootKey', { rootKeyId });

  await tell('keys.deleteKey', { keyId });
  await tell('permissions.deleteRole', { role: 'editor' });
  await tell('permissions.deletePermission', { permission: 'documents.write' });
  await tell('identities.deleteIdentity', { identity: 'grace' });
  await tell('apis.deleteApi', { apiId });
  await tell('audit.listEvents', { limit: 3, order: 'desc' });
}
