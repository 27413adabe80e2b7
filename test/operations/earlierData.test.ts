// What data of version 5 cannot have is refused with 412 until it is migrated, and then nothing changes.

import { beforeAll, expect, test } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import { dayMs, harness } from '../support/harness.ts';

const { call, ok, clock, createKey } = harness(undefined, {
  leaseMs: 0,
  dataVersion: { current: 5, migration: undefined },
});

const plain = { name: 'requests', limit: 10, duration: 60_000 };
const slots = { ...plain, type: 'concurrency' as const };
const temporary = { ...plain, limit: 20, until: clock.now + dayMs };
const quota = { name: 'requests', limit: 10, period: 'month' as const };
const credits = { remaining: 1 };
const allowedIps = ['203.0.113.0/24'];
const identity = 'old.data';
const override = { namespace: 'old', identifier: 'ada', limit: 50, duration: 60_000 };

let of: { apiId: string; keyId: string; key: string };
beforeAll(async () => {
  await ok('identities.createIdentity', { externalId: identity, ratelimits: [plain] });
  of = await createKey({ ratelimits: [plain] });
});
const migrationOf = (fields: object) => ({
  migrationId: 'old',
  apiId: of.apiId,
  keys: [{ hash: Buffer.alloc(32, 7).toString('base64'), ...fields }],
});

type Row = [what: string, operation: OperationName, input: () => object, since?: number];
const ofKeys = (what: string, fields: object): Row[] => [
  [what, 'keys.createKey', () => ({ apiId: of.apiId, ...fields })],
  [what, 'keys.updateKey', () => ({ keyId: of.keyId, name: 'changed', ...fields })],
  [what, 'keys.migrateKeys', () => migrationOf(fields)],
];
const ofLimits = (what: string, limit: object): Row[] => [
  ...ofKeys(what, { ratelimits: [limit] }),
  [what, 'keys.updateKey', () => ({ keyId: of.keyId, ratelimit: limit })],
  [what, 'identities.createIdentity', () => ({ externalId: 'new.data', ratelimits: [limit] })],
  [what, 'identities.updateIdentity', () => ({ identity, ratelimits: [limit] })],
  [what, 'identities.updateIdentity', () => ({ identity, ratelimit: limit })],
];
const quotaCheck = { namespace: 'old', identifier: 'ada', limit: 50, period: 'month' };
const quotas: [OperationName, () => object][] = [
  ['keys.verifyKey', () => ({ key: of.key, ratelimits: [quota] })],
  ['ratelimits.limit', () => quotaCheck],
  ['ratelimits.multiLimit', () => [quotaCheck]],
  ['ratelimits.setOverride', () => quotaCheck],
];
const refused: Row[] = [
  ...ofKeys('allowedIps', { allowedIps }),
  ...ofLimits('a limit of type concurrency', slots),
  ...ofLimits('a limit with until', temporary),
  ...ofLimits('a limit with a period', quota).map(([what, operation, input]): Row => [what, operation, input, 8]),
  ...quotas.map(([operation, input]): Row => ['a limit with a period', operation, input, 8]),
  ['hold', 'keys.verifyKey', () => ({ key: of.key, hold: { ttl: 60_000 } })],
  ['credits of an identity', 'identities.createIdentity', () => ({ externalId: 'new.data', credits })],
  ['credits of an identity', 'identities.updateIdentity', () => ({ identity, meta: { a: 1 }, credits })],
  ['credits of an identity', 'identities.updateCredits', () => ({ identity, operation: 'set', value: 1 })],
  ['planId', 'keys.changeKeys', () => ({ keyIds: [of.keyId], change: { planId: 'pro' } }), 8],
  ['until', 'ratelimits.setOverride', () => ({ ...override, until: clock.now + 1000 })],
];

const stored = async () => [
  await ok('keys.getKey', { keyId: of.keyId }),
  await ok('apis.listKeys', { apiId: of.apiId }),
  await ok('identities.listIdentities', {}),
  await ok('ratelimits.listNamespaces', {}),
];

test.each(refused)('%s by %s', async (what, operation, input, since = 6) => {
  const before = await stored();
  const { status, code, error } = await call(operation, input() as never);
  expect({ status, code }).toEqual({ status: 412, code: 'precondition_failed' });
  const why = `needs version ${since} of the stored data, and it has version 5 until all servers are upgraded and it is migrated`;
  expect(error.detail).toBe(`${what} ${why}.`);
  expect(await stored()).toEqual(before);
});

test.each<Row>([
  ['allowedIps: null', 'keys.updateKey', () => ({ keyId: of.keyId, allowedIps: null })],
  ['until: null', 'keys.updateKey', () => ({ keyId: of.keyId, ratelimits: [{ ...plain, until: null }] })],
  ['credits: null', 'identities.updateIdentity', () => ({ identity, credits: null })],
  ['limits without them', 'identities.createIdentity', () => ({ externalId: 'new.data', ratelimits: [plain] })],
  ['no until', 'ratelimits.setOverride', () => override],
])('but not %s by %s', async (_what, operation, input) => {
  expect((await call(operation, input() as never)).status).toBe(200);
});
