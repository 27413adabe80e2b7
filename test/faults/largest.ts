// The largest requests that each operation accepts, in a workspace that makes them as expensive as possible. They are
// bounded by the schemas, META_LIMIT_BYTES and BODY_LIMIT_BYTES, at their defaults.

import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { hash } from '../support/examples.ts';
import type { InputOf, OutputOf } from '../support/harness.ts';

type Ok = <Name extends OperationName>(name: Name, input: InputOf<Name>) => Promise<OutputOf<Name>>;

const hour = 3_600_000;
const day = 24 * hour;
const listed = 100;

const times = <Item>(count: number, make: (index: number) => Item) =>
  Array.from({ length: count }, (_, at) => make(at));
/** Different texts of this length. */
const texts = (count: number, characters: number, begin: string) =>
  times(count, (index) => `${begin}${index}.`.padEnd(characters, 'x'));

let made = 0;
/** A text that was not used before. */
const fresh = (characters = 100) => `f${++made}.`.padEnd(characters, 'x');

const slugs = texts(1000, 100, 's');
const roles = texts(100, 100, 'r');
const limits = texts(50, 128, 'l').map((name) => ({ name, limit: 1e9, duration: day, autoApply: true }));
/** The same limits with another duration, so that none keeps its window. */
const otherLimits = () => limits.map((limit) => ({ ...limit, duration: 1000 + ++made }));
const forADay = (some: typeof limits) => some.map((limit) => ({ ...limit, until: Date.now() + day }));
const meta = Object.fromEntries(texts(99, 90, 'm').map((name) => [name, 1]));
/** A hundred slugs in 1000 characters, which no key has, and whose parts a wildcard could cover. */
const queried = times(100, (index) => `a.${index}`.padEnd(6, 'b'));
const query = queried.join(' OR ').slice(0, 1000);
const namespace = 'n'.repeat(512);
/** The maximum that a check compares with: 16 with text between two `*`, and 16 KB in all. */
const wildcards = 210;
const wildcard = (index: number) => (index < 16 ? `*ab${index}*` : `${'a'.repeat(79)}${index}*`);

const wholeKey = {
  name: 'k'.repeat(255),
  externalId: 'e'.repeat(255),
  meta,
  credits: { remaining: 1e12, refill: { interval: 'monthly' as const, amount: 1e12, refillDay: 31 } },
  ratelimits: limits,
  roles,
  permissions: slugs,
};

const priceRule = (apiId: string, rule: number) => ({
  unit: 'verification' as const,
  apiId,
  planId: `p${rule}.`.padEnd(64, 'x'),
  steps: times(20, (from) => ({ from, price: '999999999.999999' })),
});

/** The largest plan. */
const plan = () => ({
  ratelimits: limits.slice(0, 25),
  permissions: slugs.slice(0, 100),
  roles: roles.slice(0, 20),
  meta,
});

/** An identity with a balance. */
const paid = 'p'.repeat(255);
const { credits } = wholeKey;

/**
 * Each of the first four refusals of a key in a minute has a row of analytics.listRefusals, with the longest texts that
 * it may have.
 */
const refusalsEach = 4;
const refused = {
  ratelimits: [{ name: 'x'.repeat(128), limit: 1, duration: hour, cost: 2 }],
  tags: texts(2, 120, 't'),
};

/** Creates the records that the largest requests name. */
export async function makeLargest(ok: Ok) {
  const { apiId } = await ok('apis.createApi', { name: 'a'.repeat(255) });
  const { externalId } = wholeKey;
  const { identityId } = await ok('identities.createIdentity', { externalId, meta, ratelimits: limits });
  await ok('identities.createIdentity', { externalId: paid, meta, ratelimits: limits, credits });
  const description = 'd'.repeat(512);
  for (const slug of slugs) await ok('permissions.createPermission', { slug, name: 'p'.repeat(512), description });
  for (const slug of queried) await ok('permissions.createPermission', { slug, name: slug });
  for (const name of roles) await ok('permissions.createRole', { name, description, permissions: slugs });
  let { keyId, key } = { keyId: '', key: '' };
  /** Each may be rotated once with its credits. */
  const others: string[] = [];
  for (let index = 0; index <= listed; index++) {
    if (keyId) others.push(keyId);
    ({ keyId, key } = await ok('keys.createKey', { apiId, ...wholeKey }));
    for (let times = 0; times < refusalsEach; times++) await ok('keys.verifyKey', { key, ...refused });
    await ok('identities.createIdentity', { externalId: fresh(255), meta, ratelimits: limits });
  }
  const [planId, usedPlanId] = ['unused', 'used'];
  for (const each of [planId, usedPlanId]) await ok('plans.createPlan', { planId: each, ...plan() });
  for (let index = 2; index < listed; index++) await ok('plans.createPlan', { planId: fresh(64), ...plan() });
  /** Keys that may have a plan besides. */
  const planned: string[] = [];
  for (let index = 0; index < listed; index++)
    planned.push((await ok('keys.createKey', { apiId, ratelimits: limits.slice(0, 25) })).keyId);
  // A key with a hundred thousand different permissions of its own: responses of several megabytes.
  const wideRoles = texts(100, 100, 'w');
  for (const [index, name] of wideRoles.entries()) {
    await ok('permissions.createRole', { name, permissions: texts(1000, 100, `w${index}.`) });
  }
  const wideApi = await ok('apis.createApi', { name: 'wide' });
  const wide = { ...wideApi, ...(await ok('keys.createKey', { ...wideApi, roles: wideRoles })) };
  for (const index of times(wildcards, Number)) {
    await ok('ratelimits.setOverride', { namespace, identifier: wildcard(index), limit: 1e9, duration: day });
  }
  // 64 KiB of grants.
  const grants = times(1000, (index) => `api.api_${index}_${'0'.repeat(40)}.read_key`);
  let [rootKeyId, otherRootKeyId] = ['', ''];
  for (let index = 0; index <= listed; index++) {
    otherRootKeyId = rootKeyId;
    ({ rootKeyId } = await ok('rootKeys.createRootKey', { name: 'r'.repeat(255), permissions: grants }));
  }
  const refs = { identity: identityId, permission: slugs[0]!, role: roles[0]! };
  const keyIds = [...others];
  return {
    ...refs,
    planId,
    usedPlanId,
    apiId,
    identityId,
    externalId,
    keyId,
    key,
    keyIds,
    planned,
    others,
    wide,
    grants,
    rootKeyId,
    otherRootKeyId,
  };
}

export type Largest = Awaited<ReturnType<typeof makeLargest>>;

/** Operations whose request is refused the second time. */
export const runsOnce = /\.(delete|restore)/;

const migrationId = 'm'.repeat(255);
const check = (index: number) => ({ namespace, identifier: `${'a'.repeat(500)}${index}`, limit: 1e9, duration: day });

/** The ways in which an operation is expensive. */
type Ways<Name extends OperationName> = Record<string, (things: Largest) => InputOf<Name>>;

/**
 * Inputs by operation, created again for each call. An operation that can be expensive in several ways has several. One
 * that takes only a reference to a record, or nothing, needs none.
 */
const ways: { [Name in OperationName]?: Ways<Name> } = {
  'keys.verifyKey': {
    'a query of 100 slugs, 50 limits of its own, 20 tags': ({ key }) => ({
      key,
      permissions: query,
      ratelimits: texts(50, 128, 'ad hoc ').map((name) => ({ name, limit: 1e9, duration: day })),
      tags: texts(20, 512, 't'),
    }),
    '100 limits of key and identity': ({ key }) => ({ key }),
    // Another query each time, so that no result is cached.
    '100 000 permissions, a query of 50 of them': ({ wide }) => ({
      key: wide.key,
      permissions: times(50, () => `w${++made % 100}.`).join(' OR '),
    }),
  },
  'keys.settleHold': {},
  'keys.extendHold': {},
  'keys.releaseHold': {},
  'keys.listHolds': {},
  'keys.explainKey': {
    'a query of 100 slugs, 50 limits of its own': ({ keyId }) => ({
      keyId,
      permissions: query,
      ratelimits: texts(50, 128, 'ad hoc ').map((name) => ({ name, limit: 1e9, duration: day })),
    }),
    '100 000 permissions, a query of 50 of them': ({ wide }) => ({
      key: wide.key,
      permissions: times(50, () => `w${++made % 100}.`).join(' OR '),
    }),
  },
  'ratelimits.limit': { '210 wildcards': () => check(0) },
  'ratelimits.multiLimit': {
    '100 checks, 210 wildcards': () => times(100, check),
    '100 namespaces': () => times(100, (index) => ({ ...check(index), namespace: `n${index}`.padEnd(512, 'n') })),
  },
  'keys.createKey': {
    '1000 permissions, 50 limits, 100 roles': ({ apiId }) => ({ apiId, ...wholeKey, externalId: fresh(255) }),
    '1000 new permissions': ({ apiId }) => ({ apiId, permissions: times(1000, () => fresh()) }),
  },
  'keys.migrateKeys': {
    '1000 keys with identities': ({ apiId }) => ({
      migrationId,
      apiId,
      keys: times(1000, () => ({
        hash: hash(),
        externalId: fresh(255),
        name: 'k'.repeat(255),
        meta: { a: 'x'.repeat(200) },
      })),
    }),
    '10 000 limits': ({ apiId }) => ({
      migrationId,
      apiId,
      keys: times(200, () => ({
        hash: hash(),
        ratelimits: limits.map(({ name, ...limit }) => ({ ...limit, name: name.slice(0, 9) })),
      })),
    }),
    '1000 new permissions': ({ apiId }) => ({
      migrationId,
      apiId,
      keys: times(10, () => ({ hash: hash(), permissions: times(100, () => fresh()) })),
    }),
  },
  'keys.getKey': {
    '1000 permissions, 100 roles': ({ keyId }) => ({ keyId }),
    '100 000 permissions': ({ wide }) => ({ keyId: wide.keyId }),
  },
  'keys.updateKey': {
    'all fields': ({ keyId }) => ({ keyId, ...wholeKey, externalId: fresh(255), ratelimits: otherLimits() }),
    '1000 new permissions': ({ keyId }) => ({ keyId, permissions: times(1000, () => fresh()) }),
    '50 limits for a day': ({ keyId }) => ({ keyId, ratelimits: forADay(otherLimits()) }),
  },
  'keys.updateCredits': { '': ({ keyId }) => ({ keyId, operation: 'set', value: 1e12 }) },
  'keys.setPermissions': {
    '1000 new permissions': ({ keyId }) => ({ keyId, permissions: times(1000, () => fresh()) }),
    '1000 permissions': ({ keyId }) => ({ keyId, permissions: slugs }),
  },
  'keys.removePermissions': { '1000 permissions': ({ keyId }) => ({ keyId, permissions: slugs }) },
  'keys.addPermissions': { '1000 permissions': ({ keyId }) => ({ keyId, permissions: slugs }) },
  'keys.removeRoles': { '100 roles': ({ keyId }) => ({ keyId, roles }) },
  'keys.setRoles': { '100 roles': ({ keyId }) => ({ keyId, roles }) },
  'keys.addRoles': { '100 roles': ({ keyId }) => ({ keyId, roles }) },
  'keys.rerollKey': {
    '': ({ keyId }) => ({ keyId, expiration: 1e9 }),
    'its credits are moved': ({ others }) => ({ keyId: others.pop()!, expiration: 1e9, credits: 'move' }),
  },
  'apis.listKeys': {
    '100 keys': ({ apiId }) => ({ apiId, limit: listed }),
    '100 keys of an externalId': ({ apiId, externalId }) => ({ apiId, externalId, limit: listed }),
    'a key of 100 000 permissions': ({ wide }) => ({ apiId: wide.apiId }),
  },
  'keys.listKeys': {
    '100 keys': () => ({ limit: listed, order: 'desc' }),
    '100 keys of an externalId': ({ externalId }) => ({ externalId, limit: listed }),
    'a search that finds nothing': () => ({ search: 'no such text', permission: slugs[0]! }),
    'keys that expire': () => ({ expiresBefore: 4e12, limit: listed }),
    'keys that expire, with a search that finds nothing': () => ({ expiresBefore: 4e12, search: 'no such text' }),
    'a start of 64 characters': () => ({ start: 's'.repeat(64) }),
    'a start of many keys': ({ key }) => ({ start: key.slice(0, 1), limit: listed }),
  },
  'keys.getAttention': {
    '100 keys of each': () => ({
      limit: listed,
      expiresBefore: 4e12,
      creditsBelow: 1e12,
      unusedSince: 4e12,
      rerolledInUse: false,
    }),
    'filters that nothing matches': () => ({ expiresBefore: 1, creditsBelow: 0, unusedSince: 1, rerolledInUse: true }),
  },
  'apis.createApi': { '': () => ({ name: 'a'.repeat(255) }) },
  'apis.updateApi': { '': ({ apiId }) => ({ apiId, name: 'b'.repeat(255) }) },
  'apis.listApis': {
    '100 APIs': () => ({ limit: listed }),
    'a search that finds nothing': () => ({ limit: listed, search: 'no such' }),
  },
  'ratelimits.listNamespaces': { 'a search that finds nothing': () => ({ limit: listed, search: 'no such' }) },
  'permissions.createPermission': {
    '': () => ({ slug: fresh(), name: 'p'.repeat(512), description: 'd'.repeat(512) }),
  },
  'permissions.updatePermission': {
    '': () => ({ permission: queried[0]!, name: fresh(512), description: 'e'.repeat(512) }),
  },
  'permissions.updateRole': { '': () => ({ role: roles[1]!, description: 'e'.repeat(512) }) },
  'permissions.listPermissions': {
    '100 permissions': () => ({ limit: listed }),
    'a search that finds nothing': () => ({ limit: listed, search: 'no such' }),
  },
  'plans.createPlan': {
    '25 limits, 100 new permissions, 20 roles': () => ({
      planId: fresh(64),
      ...plan(),
      permissions: times(100, () => fresh()),
    }),
  },
  'plans.updatePlan': {
    '25 other limits, 100 new permissions': ({ planId }) => ({
      planId,
      ratelimits: otherLimits().slice(0, 25),
      permissions: times(100, () => fresh()),
    }),
  },
  'plans.listPlans': { '100 plans': () => ({ limit: listed }) },
  'permissions.createRole': {
    '1000 new permissions': () => ({ name: fresh(), permissions: times(1000, () => fresh()) }),
  },
  'permissions.setRolePermissions': {
    '1000 new permissions': () => ({ roleId: roles[0]!, permissions: times(1000, () => fresh()) }),
    '1000 permissions': () => ({ roleId: roles[0]!, permissions: slugs }),
  },
  'permissions.getRole': { '1000 permissions': () => ({ role: roles[0]! }) },
  'permissions.listRoles': {
    '100 roles of 1000 permissions': () => ({ limit: listed }),
    'a search that finds nothing': () => ({ limit: listed, search: 'no such' }),
  },
  'identities.createIdentity': { '': () => ({ externalId: fresh(255), meta, ratelimits: limits, credits }) },
  'identities.listIdentities': {
    '100 identities of 50 limits': () => ({ limit: listed }),
    'a balance that none has': () => ({ limit: listed, creditsBelow: 0 }),
    'a search that finds nothing': () => ({ limit: listed, search: 'no such' }),
  },
  'identities.updateIdentity': {
    '': ({ identityId }) => ({ identity: identityId, meta, ratelimits: otherLimits() }),
    '50 limits for a day': ({ identityId }) => ({ identity: identityId, ratelimits: forADay(otherLimits()) }),
    'with a balance': () => ({ identity: paid, meta, ratelimits: otherLimits(), credits }),
  },
  'identities.updateCredits': { '': () => ({ identity: paid, operation: 'set', value: 1e12 }) },
  'ratelimits.setOverride': {
    '': () => ({ namespace, identifier: fresh(512), limit: 1e9, duration: day }),
    'for a day': () => ({ namespace, identifier: fresh(512), limit: 1e9, duration: day, until: Date.now() + day }),
  },
  'ratelimits.getOverride': { '': () => ({ namespace, identifier: wildcard(0) }) },
  'ratelimits.listOverrides': { '100 overrides': () => ({ namespace, limit: listed }) },
  'ratelimits.listTemporary': {
    '100 limits and overrides': () => ({ limit: listed }),
    'of one namespace': () => ({ namespace, limit: listed }),
  },
  'analytics.getVerifications': {
    'by key and identity': ({ apiId }) => ({ apiId, groupBy: ['apiId', 'keyId', 'externalId', 'outcome'] }),
    '100 keys': ({ keyId }) => ({ keyIds: Array.from({ length: 100 }, () => keyId), groupBy: ['keyId'] }),
    '100 identities': ({ externalId }) => ({
      externalIds: Array.from({ length: 100 }, (_, number) => (number ? `none${number}` : externalId)),
      groupBy: ['externalId'],
    }),
    'by tag': ({ apiId }) => ({ apiId, groupBy: ['apiId', 'keyId', 'externalId', 'outcome', 'tag'] }),
  },
  'analytics.getTop': {
    keys: ({ apiId }) => ({ of: 'keys', apiId, limit: 100 }),
    identities: () => ({ of: 'identities', limit: 100 }),
    plans: () => ({ of: 'plans', limit: 100 }),
    tags: ({ apiId }) => ({ of: 'tags', apiId, limit: 100 }),
    identifiers: () => ({ of: 'identifiers', limit: 100 }),
  },
  'analytics.listCustomers': { '1000 rows': () => ({ limit: 1000 }) },
  'analytics.listRefusals': {
    '404 rows': () => ({ limit: 1000 }),
    'all filters, no rows': ({ apiId, keyId, externalId }) => ({
      apiId,
      keyId,
      externalId,
      outcome: 'DISABLED',
    }),
  },
  'analytics.tail': {
    'all filters of verifications': ({ apiId, keyId, externalId }) => ({
      apiId,
      keyId,
      externalId,
      outcome: 'RATE_LIMITED',
    }),
    'a namespace': () => ({ namespace }),
  },
  'analytics.getRatelimits': { '100 namespaces': () => ({}) },
  'audit.listEvents': { '100 events': () => ({ limit: listed }) },
  'rootKeys.createRootKey': { '1000 grants': ({ grants }) => ({ name: 'r'.repeat(255), permissions: grants }) },
  'rootKeys.listRootKeys': { '100 root keys of 1000 grants': () => ({ limit: listed }) },
  'rootKeys.createKey': { '1000 grants': ({ grants }) => ({ name: 'r'.repeat(255), permissions: grants }) },
  'rootKeys.updateKey': { '1000 grants': ({ rootKeyId, grants }) => ({ keyId: rootKeyId, permissions: grants }) },
  'rootKeys.deleteKey': { '': ({ otherRootKeyId }) => ({ keyId: otherRootKeyId }) },
  'rootKeys.rerollKey': { '1000 grants': ({ rootKeyId }) => ({ keyId: rootKeyId, expiration: null }) },
  'rootKeys.updateRootKey': { '1000 grants': ({ rootKeyId, grants }) => ({ rootKeyId, permissions: grants }) },
  'ratelimits.deleteOverride': { '': () => ({ namespace, identifier: wildcard(made++ % wildcards) }) },
  'permissions.deletePermission': { '': () => ({ permission: slugs[made++ % 1000]! }) },
  'permissions.deleteRole': { '': () => ({ role: roles[made++ % 100]! }) },
  'keys.deleteKey': { '': ({ keyId }) => ({ keyId }) },
  'keys.restoreKey': { '': ({ keyId }) => ({ keyId }) },
  'keys.changeKeys': {
    '100 keys of 50 limits': ({ keyIds }) => ({ keyIds, change: { expires: 4e12 + ++made } }),
    'a plan of 25 limits for 100 keys of 25': ({ planned, usedPlanId }) => ({
      keyIds: planned,
      change: { planId: ++made % 2 === 0 ? usedPlanId : null },
    }),
    '100 keys of 25 limits, deleted and restored': ({ planned }) => ({
      keyIds: planned,
      change: { deleted: ++made % 2 === 0 },
    }),
  },
  'system.find': {
    'a start of many keys': ({ key }) => ({ text: key.slice(0, 1) }),
    'a text of 256 characters': () => ({ text: 'x'.repeat(256) }),
  },
  'apis.deleteApi': { '': ({ apiId }) => ({ apiId }) },
  'workspace.updateSettings': {
    '50 prices of 20 steps': ({ apiId }) => ({
      name: 'w'.repeat(255),
      protectApis: false,
      me: {
        origins: times(20, (index) => `https://${`${'a'.repeat(60)}.`.repeat(3)}n${index}.example`),
        meta: times(20, (index) => `${index}`.padEnd(100, 'm')),
      },
      prices: { currency: 'EUR', decimals: 6, rules: times(50, (rule) => priceRule(apiId, rule)) },
    }),
  },
};

/** Requests with a reference to a record, or a page of a list, of the operations that have no others. */
const plain = (isOnce: boolean) =>
  (operations as readonly AnyOperation[])
    .filter(({ name }) => !(name in ways) && runsOnce.test(name) === isOnce)
    .map(({ name, input }) => {
      const { required: [member] = [], properties } = input as { required?: string[]; properties: { limit?: object } };
      const page = properties.limit && { limit: listed };
      return [name, { '': (things: Largest) => ({ ...(member && { [member]: things[member as never] }), ...page }) }];
    });

export const largest = { ...Object.fromEntries(plain(false)), ...ways, ...Object.fromEntries(plain(true)) } as {
  [Name in OperationName]: Ways<Name>;
};
