// Every operation with: no grant, grants for another id, for exactly its id, for any id, in the other spelling, and the
// grant `*`. The grants of its example are in test/support/examples.ts. Other inputs and special cases are below.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { actions, type Resource } from '../../src/domain/grants.ts';
import type { ErrorCode } from '../../src/errors.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { auditKey, workspaceKey } from '../../src/redis/names.ts';
import { exampleOf, examples, freshName, hash, makeThings, type Need, type Things } from '../support/examples.ts';
import { harness, type InputOf } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';
import { testIf } from '../support/testIf.ts';

const tollgate = harness();
const { call, ok } = tollgate;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));
const events = () => auditKey(workspaceKey(tollgate.workspaceId));

interface Row<Name extends OperationName> {
  /** All the grants that the call needs; those of the example by default. */
  needs?: Need[];
  input?(things: Things): InputOf<Name>;
  /** The difference of the input from the example. */
  what?: string;
  /** The response to a caller with grants for other ids; `any id only` if no grant for an id is enough. */
  elsewhere?: ErrorCode | 'NOT_FOUND' | 'unknown' | 'no rows' | 'no events' | 'any id only';
  /** The response to a caller without any grant. */
  refused?: ErrorCode;
}

const newCheck = () => ({ namespace: freshName(), identifier: 'a', limit: 1, duration: 1000 });
const anyIdOnly = { elsewhere: 'any id only' } as const;

/** Operations whose example is not enough: inputs that need other grants, and responses other than 403. */
const exceptions: { [Name in OperationName]?: Row<Name>[] } = {
  'keys.createKey': [
    { what: 'with a new permission' },
    {
      needs: ['api.create_key'],
      what: 'with nothing new',
      input: ({ apiId, name }) => ({ apiId, permissions: [name] }),
    },
  ],
  'keys.migrateKeys': [
    { what: 'with a new permission' },
    {
      needs: ['api.create_key'],
      what: 'with nothing new',
      input: ({ apiId, name }) => ({ apiId, migrationId: name, keys: [{ hash: hash(), roles: [name] }] }),
    },
  ],
  'keys.verifyKey': [{ elsewhere: 'NOT_FOUND' }],
  'keys.settleHold': [{ elsewhere: 'hold_not_found' }],
  'keys.extendHold': [{ elsewhere: 'hold_not_found' }],
  'keys.releaseHold': [{ elsewhere: 'hold_not_found' }],
  'keys.explainKey': [{ elsewhere: 'unknown' }],
  'keys.whoami': [{ elsewhere: 'key_not_found', refused: 'key_not_found' }],
  'keys.updateKey': [
    { what: 'with a new permission' },
    { needs: ['api.update_key'], what: 'with nothing new', input: ({ keyId }) => ({ keyId, permissions: [] }) },
  ],
  'keys.changeKeys': [
    { what: 'enabled', elsewhere: 'no rows' },
    {
      needs: ['api.delete_key'],
      what: 'deleted',
      input: ({ keyId }) => ({ keyIds: [keyId], change: { deleted: true } }),
      elsewhere: 'no rows',
    },
    {
      needs: ['api.create_key', 'api.delete_key'],
      what: 'restored',
      input: ({ deletedKeyId }) => ({ keyIds: [deletedKeyId], change: { deleted: false } }),
      elsewhere: 'no rows',
    },
  ],
  'keys.addPermissions': [
    { what: 'with a new permission' },
    {
      needs: ['api.update_key', 'rbac.add_permission_to_key'],
      what: 'with an existing permission',
      input: ({ keyId, name }) => ({ keyId, permissions: [name] }),
    },
  ],
  'keys.setPermissions': [
    { what: 'with a new permission' },
    {
      needs: ['api.update_key', 'rbac.add_permission_to_key', 'rbac.remove_permission_from_key'],
      what: 'with none',
      input: ({ keyId }) => ({ keyId, permissions: [] }),
    },
  ],
  'ratelimits.limit': [
    {},
    {
      needs: ['ratelimit.limit', 'ratelimit.create_namespace'],
      what: 'in a new namespace',
      input: newCheck,
      ...anyIdOnly,
    },
  ],
  'ratelimits.multiLimit': [
    {},
    {
      needs: ['ratelimit.limit', 'ratelimit.create_namespace'],
      what: 'in a new namespace and an existing one',
      input: (things) => [examples['ratelimits.limit'].input(things), newCheck()],
      ...anyIdOnly,
    },
  ],
  'ratelimits.setOverride': [
    {},
    {
      needs: ['ratelimit.set_override', 'ratelimit.create_namespace'],
      what: 'in a new namespace',
      input: newCheck,
      ...anyIdOnly,
    },
  ],
  'permissions.createRole': [
    { what: 'with a new permission' },
    {
      needs: ['rbac.create_role', 'rbac.add_permission_to_role'],
      what: 'with an existing permission',
      input: ({ name }) => ({ name: freshName(), permissions: [name] }),
    },
    { needs: ['rbac.create_role'], what: 'with none', input: () => ({ name: freshName(), permissions: [] }) },
  ],
  'permissions.setRolePermissions': [
    { what: 'with a new permission' },
    {
      needs: ['rbac.add_permission_to_role', 'rbac.remove_permission_from_role'],
      what: 'with none',
      input: ({ roleId }) => ({ roleId, permissions: [] }),
    },
  ],
  'plans.createPlan': [
    { what: 'with a new permission' },
    {
      needs: ['plan.create_plan', 'rbac.add_permission_to_role'],
      what: 'with an existing permission',
      input: ({ name }) => ({ planId: freshName(), permissions: [name] }),
    },
    {
      needs: ['plan.create_plan'],
      what: 'with none',
      input: ({ name }) => ({ planId: freshName(), permissions: [], roles: [name] }),
    },
  ],
  'plans.updatePlan': [
    { what: 'with a new permission' },
    {
      needs: ['plan.update_plan', 'rbac.add_permission_to_role', 'rbac.remove_permission_from_role'],
      what: 'with none',
      input: ({ planId }) => ({ planId, permissions: [] }),
    },
    {
      needs: ['plan.update_plan'],
      what: 'without permissions',
      input: ({ planId, name }) => ({ planId, roles: [name], meta: null }),
    },
  ],
  'ratelimits.listTemporary': [
    { what: 'of an API' },
    {
      needs: ['ratelimit.read_override'],
      what: 'of a namespace',
      input: ({ namespaceId }) => ({ namespace: namespaceId }),
    },
    { needs: ['identity.read_identity'], what: 'of identities', input: () => ({ kinds: ['identity'] }), ...anyIdOnly },
    {
      needs: ['api.read_key', 'api.read_api', 'identity.read_identity', 'ratelimit.read_override'],
      what: 'of all kinds',
      input: () => ({}),
      ...anyIdOnly,
    },
  ],
  'analytics.getVerifications': [{ elsewhere: 'no rows' }],
  'analytics.getRatelimits': [{ elsewhere: 'no rows' }],
  'analytics.getTop': [
    { elsewhere: 'no rows' },
    {
      needs: ['ratelimit.read_analytics'],
      what: 'of identifiers',
      input: ({ namespaceId }) => ({ of: 'identifiers', namespace: namespaceId }),
      elsewhere: 'no rows',
    },
  ],
  'analytics.listCustomers': [{ elsewhere: 'no rows' }],
  'analytics.listRefusals': [{ elsewhere: 'no rows' }],
  'analytics.tail': [{ elsewhere: 'no events' }],
  // A root key grants, changes and deletes only grants that it holds itself.
  'rootKeys.updateRootKey': [
    { what: 'its grants' },
    { what: 'its name', input: ({ rootKeyId }) => ({ rootKeyId, name: 'new' }) },
  ],
};

/** The rows of a response: a list, or the list in it. */
const rowsIn = (data: unknown) => {
  const { top, changed } = data as { top?: unknown[]; changed?: unknown[] };
  return Array.isArray(data) ? data : (top ?? changed);
};

/** Resources whose grants may name an id. */
const scoped = ['api', 'ratelimit', 'identity'];
const kindOf = (name: OperationName) => operations.find((each) => each.name === name)!.kind;
const resourceOf = (need: Need) => need.split('.')[0]!;

function rowsOf(name: OperationName) {
  const example = exampleOf(name);
  // A grant for an id is enough if the input names a record with such an id.
  const byId = example.elsewhere !== null && scoped.includes(resourceOf(example.needs[0]!));
  return ((exceptions[name] ?? [{}]) as Row<OperationName>[]).map((row) => ({
    needs: example.needs,
    input: example.input,
    elsewhere: byId ? ('insufficient_permissions' as const) : anyIdOnly.elsewhere,
    ...row,
    name,
    title: row.what === undefined ? name : `${name}, ${row.what}`,
  }));
}

const everyNeed = Object.entries(actions).flatMap(([resource, named]) =>
  named.map((action) => `${resource}.${action}` as Need),
);

let others: Things;
/** What reads and refused calls name. */
let unchanged: Things;
/** Records of another workspace. */
let elsewhereThings: Things;
beforeAll(async () => {
  others = await makeThings(call, tollgate.rootKey);
  unchanged = await makeThings(call, tollgate.rootKey);
  elsewhereThings = await makeThings(call, (await tollgate.createWorkspace()).rootKey);
});

/** The needs as grants: with the ids of these things where a grant may have one, or for any id. */
function grantsFor(needs: readonly Need[], things?: Pick<Things, 'apiId' | 'namespaceId' | 'identityId'>): string[] {
  const ids = things && { api: things.apiId, ratelimit: things.namespaceId, identity: things.identityId };
  return needs.map((need) => {
    const [resource, action] = need.split('.') as [string, string];
    return `${resource}.${ids && scoped.includes(resource) ? ids[resource as 'api'] : '*'}.${action}`;
  });
}

const otherSpelling = (grants: string[]) =>
  grants.map((grant) => grant.replace(/^api\./, 'apis.').replace(/^ratelimit\./, 'ratelimits.'));

describe.each(operations.flatMap(({ name }) => rowsOf(name)))('$title', (row) => {
  const { name, needs, input, elsewhere, refused } = row;
  const isRead = exampleOf(name).changes === null && kindOf(name) === 'manages';
  const takesIds = needs.some((need) => scoped.includes(resourceOf(need)));
  const isScoped = takesIds && elsewhere !== 'any id only';

  /** Calls with a new root key with these grants, created through the API. */
  const callAs = async (grants: string[], things: Things) => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: grants });
    return call(name, input(things), key);
  };
  const things = async () => (isRead ? unchanged : makeThings(call, tollgate.rootKey));
  /** The ids that the input names. */
  const namedIn = (about: Things): Things => ({
    ...about,
    ...(name === 'apis.restoreApi' && { apiId: about.deletedApiId }),
    ...(name === 'identities.restoreIdentity' && { identityId: about.deletedIdentityId }),
  });

  /**
   * Checks that the call was permitted. Some operations respond with 200 but omit data that the caller may not read.
   */
  function expectPermitted(answer: Awaited<ReturnType<typeof callAs>>) {
    expect(answer.status, answer.error?.detail).toBe(200);
    if (elsewhere === 'NOT_FOUND') expect(answer.data).toMatchObject({ valid: true, code: 'VALID' });
    if (elsewhere === 'unknown') expect(answer.data).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    if (elsewhere === 'no rows') expect(rowsIn(answer.data)).not.toEqual([]);
  }

  test.each(needs)(
    'all other grants without %s are not enough, and the error names it, whether or not the record exists',
    async (missing) => {
      const grants = grantsFor(everyNeed.filter((need) => need !== missing));
      const about = await things();
      const before = await redis.xlen(events());
      const answer = await callAs(grants, about);
      // Nothing but the root key was created or changed.
      expect(await redis.xlen(events())).toBe(before + 1);
      expect(answer).toMatchObject(
        refused ? { status: 404, code: refused } : { status: 403, code: 'insufficient_permissions' },
      );
      // The other needs depend on the record.
      const [resource, action] = missing.split('.') as [Resource, string];
      const operation: AnyOperation = operations.find((each) => each.name === name)!;
      if (!operation.needs[resource]?.some((named) => named === action)) return;
      if (answer.status === 403) expect(answer.error!.detail).toContain(grantsFor([missing])[0]);
      const absent = await callAs(grants, elsewhereThings);
      const withoutIds = ({ error }: typeof answer) => JSON.stringify(error).replaceAll(/_[1-9A-Za-z]{16}/g, '_<id>');
      expect(withoutIds(absent)).toBe(withoutIds(answer));
    },
  );

  testIf(isScoped)('grants for another id are not enough', async () => {
    const answer = await callAs(grantsFor(needs, others), unchanged);
    if (elsewhere === 'NOT_FOUND') {
      expect(answer).toMatchObject({ status: 200, data: { valid: false, code: 'NOT_FOUND' } });
      expect(Object.keys(answer.data)).toEqual(['valid', 'code']);
    } else if (elsewhere === 'unknown') {
      expect(answer).toMatchObject({
        status: 200,
        data: { code: 'NOT_FOUND', rules: [{ reason: 'unknown' }, {}, {}, {}, {}, {}, {}, {}] },
      });
      expect(answer.data).not.toHaveProperty('keyId');
    } else if (elsewhere === 'no events') expect(answer.status).toBe(200);
    else if (elsewhere === 'no rows') {
      expect(answer).toMatchObject({ status: 200 });
      expect(rowsIn(answer.data)).toEqual([]);
    } else expect(answer).toMatchObject({ status: elsewhere.endsWith('not_found') ? 404 : 403, code: elsewhere });
    if (answer.status !== 403) return;
    const either = grantsFor(needs, namedIn(unchanged)).map(
      (grant) => `${grant.replace(/\.\w+\./, '.*.')} or ${grant}.`,
    );
    expect(either.filter((text) => answer.error.detail.includes(text))).toHaveLength(1);
  });

  testIf(takesIds && !isScoped)('grants for one id are not enough', async () => {
    const grants = grantsFor(needs, unchanged);
    expect(await callAs(grants, unchanged)).toMatchObject({ status: 403, code: 'insufficient_permissions' });
  });

  testIf(isScoped)('grants for exactly this id, in either spelling', async () => {
    for (const spelling of [(grants: string[]) => grants, otherSpelling]) {
      const about = await things();
      expectPermitted(await callAs(spelling(grantsFor(needs, namedIn(about))), about));
    }
  });

  // Without needs there is no such root key: one has a grant.
  testIf(needs.length > 0)('grants for any id, in either spelling', async () => {
    expectPermitted(await callAs(grantsFor(needs), await things()));
    expectPermitted(await callAs(otherSpelling(grantsFor(needs)), await things()));
  });

  test('the grant of everything', async () => {
    expectPermitted(await callAs(['*'], await things()));
  });
});

test('stored grants have one spelling, and an id in a resource that has none is refused', async () => {
  const { rootKeyId } = await ok('rootKeys.createRootKey', {
    permissions: ['apis.*.read_api', 'api.*.read_api', `ratelimits.${others.namespaceId}.limit`],
  });
  const listed = (await ok('rootKeys.listRootKeys', {})) as { rootKeyId: string; permissions: string[] }[];
  let all = listed;
  // The list is longer than a page by now.
  for (let page = await call('rootKeys.listRootKeys', {}); page.pagination.hasMore; ) {
    page = await call('rootKeys.listRootKeys', { cursor: page.pagination.cursor! });
    all = [...all, ...page.data];
  }
  expect(all.find((item) => item.rootKeyId === rootKeyId)!.permissions).toEqual([
    'api.*.read_api',
    `ratelimit.${others.namespaceId}.limit`,
  ]);
  for (const grant of [
    'rbac.perm_1.read_role',
    'audit.x12.read_audit',
    'root_key.root_1.read_root_key',
    'apiss.*.read_api',
  ]) {
    expect(await call('rootKeys.createRootKey', { permissions: [grant] })).toMatchObject({ status: 400 });
  }
});

describe('a request that names an id gets 403 before 404', () => {
  test.each([
    'keys.createKey',
    'keys.migrateKeys',
    'keys.listKeys',
    'keys.getAttention',
    'apis.getApi',
    'apis.listKeys',
    'apis.updateApi',
    'apis.deleteApi',
  ] as const)('%s', async (name) => {
    const { needs, input } = rowsOf(name).at(-1)!;
    const nowhere = { ...others, apiId: 'api_unknown' };
    expect(await call(name, input(nowhere) as never, grantsFor(needs, others))).toMatchObject({ status: 403 });
    for (const grants of [grantsFor(needs), grantsFor(needs, nowhere)]) {
      const answer = await call(name, input(nowhere) as never, grants);
      expect(answer).toMatchObject({ status: 404, code: 'api_not_found' });
    }
  });
});
