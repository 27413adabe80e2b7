// The table of docs/contract.md §5, walked: for every operation no grant, another id, exactly its id, any id, the other spelling,
// and the grant of everything. An operation that is missing here does not compile.

import { beforeAll, describe, expect, test } from 'vitest';
import { type Action, actions, type Resource } from '../../src/domain/grants.ts';
import type { ErrorCode } from '../../src/errors.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { examples, freshName, hash, makeThings, type Things } from '../support/examples.ts';
import { harness, type InputOf } from '../support/harness.ts';

const tollgate = harness();
const { call, ok } = tollgate;

/** `api.create_key`: a grant without its id. */
type Need = { [R in Resource]: `${R}.${Action<R>}` }[Resource];

interface Row<Name extends OperationName> {
  /** All that the call needs, and no more. */
  needs: Need[];
  input?(things: Things): InputOf<Name>;
  /** Of what the input is about, where it is not the example. */
  what?: string;
  /** What comes of grants that are for other ids; `any id only` where no id will do. */
  elsewhere?: ErrorCode | 'NOT_FOUND' | 'no rows' | 'any id only';
  /** What comes of no grant at all. */
  refused?: ErrorCode;
}

const newCheck = () => ({ namespace: freshName(), identifier: 'a', limit: 1, duration: 1000 });
const anyIdOnly = { elsewhere: 'any id only' } as const;

const table: { [Name in OperationName]: Row<Name>[] } = {
  'apis.createApi': [{ needs: ['api.create_api'], ...anyIdOnly }],
  'apis.getApi': [{ needs: ['api.read_api'] }],
  'apis.deleteApi': [{ needs: ['api.delete_api'] }],
  'apis.listKeys': [{ needs: ['api.read_key', 'api.read_api'] }],
  'keys.createKey': [
    { needs: ['api.create_key', 'rbac.create_permission'], what: 'with a new permission' },
    {
      needs: ['api.create_key'],
      what: 'with nothing new',
      input: ({ apiId, name }) => ({ apiId, permissions: [name] }),
    },
  ],
  'keys.migrateKeys': [
    { needs: ['api.create_key', 'rbac.create_permission'], what: 'with a new permission' },
    {
      needs: ['api.create_key'],
      what: 'with nothing new',
      input: ({ apiId, name }) => ({ apiId, migrationId: name, keys: [{ hash: hash(), roles: [name] }] }),
    },
  ],
  'keys.verifyKey': [{ needs: ['api.verify_key'], elsewhere: 'NOT_FOUND' }],
  'keys.getKey': [{ needs: ['api.read_key'] }],
  'keys.whoami': [{ needs: ['api.read_key'], elsewhere: 'key_not_found', refused: 'key_not_found' }],
  'keys.updateKey': [
    { needs: ['api.update_key', 'rbac.create_permission'], what: 'with a new permission' },
    { needs: ['api.update_key'], what: 'with nothing new', input: ({ keyId }) => ({ keyId, permissions: [] }) },
  ],
  'keys.updateCredits': [{ needs: ['api.update_key'] }],
  'keys.deleteKey': [{ needs: ['api.delete_key'] }],
  'keys.rerollKey': [{ needs: ['api.create_key'] }],
  'keys.addPermissions': [
    { needs: ['api.update_key', 'rbac.add_permission_to_key', 'rbac.create_permission'], what: 'a new one' },
    {
      needs: ['api.update_key', 'rbac.add_permission_to_key'],
      what: 'a known one',
      input: ({ keyId, name }) => ({ keyId, permissions: [name] }),
    },
  ],
  'keys.removePermissions': [{ needs: ['api.update_key', 'rbac.remove_permission_from_key'] }],
  'keys.setPermissions': [
    {
      needs: [
        'api.update_key',
        'rbac.add_permission_to_key',
        'rbac.remove_permission_from_key',
        'rbac.create_permission',
      ],
      what: 'a new one',
    },
    {
      needs: ['api.update_key', 'rbac.add_permission_to_key', 'rbac.remove_permission_from_key'],
      what: 'none',
      input: ({ keyId }) => ({ keyId, permissions: [] }),
    },
  ],
  'keys.addRoles': [{ needs: ['api.update_key', 'rbac.add_role_to_key'] }],
  'keys.removeRoles': [{ needs: ['api.update_key', 'rbac.remove_role_from_key'] }],
  'keys.setRoles': [{ needs: ['api.update_key', 'rbac.add_role_to_key', 'rbac.remove_role_from_key'] }],
  'ratelimits.limit': [
    { needs: ['ratelimit.limit'] },
    {
      needs: ['ratelimit.limit', 'ratelimit.create_namespace'],
      what: 'a new namespace',
      input: newCheck,
      ...anyIdOnly,
    },
  ],
  'ratelimits.multiLimit': [
    { needs: ['ratelimit.limit'] },
    {
      needs: ['ratelimit.limit', 'ratelimit.create_namespace'],
      what: 'a new namespace beside a known one',
      input: (things) => [examples['ratelimits.limit'](things), newCheck()],
      ...anyIdOnly,
    },
  ],
  'ratelimits.setOverride': [
    { needs: ['ratelimit.set_override'] },
    {
      needs: ['ratelimit.set_override', 'ratelimit.create_namespace'],
      what: 'in a new namespace',
      input: newCheck,
      ...anyIdOnly,
    },
  ],
  'ratelimits.getOverride': [{ needs: ['ratelimit.read_override'] }],
  'ratelimits.listOverrides': [{ needs: ['ratelimit.read_override'] }],
  'ratelimits.deleteOverride': [{ needs: ['ratelimit.delete_override'] }],
  'identities.createIdentity': [{ needs: ['identity.create_identity'], ...anyIdOnly }],
  'identities.getIdentity': [{ needs: ['identity.read_identity'] }],
  'identities.listIdentities': [{ needs: ['identity.read_identity'], ...anyIdOnly }],
  'identities.updateIdentity': [{ needs: ['identity.update_identity'] }],
  'identities.deleteIdentity': [{ needs: ['identity.delete_identity'] }],
  'permissions.createPermission': [{ needs: ['rbac.create_permission'] }],
  'permissions.getPermission': [{ needs: ['rbac.read_permission'] }],
  'permissions.listPermissions': [{ needs: ['rbac.read_permission'] }],
  'permissions.deletePermission': [{ needs: ['rbac.delete_permission'] }],
  'permissions.createRole': [
    {
      needs: ['rbac.create_role', 'rbac.add_permission_to_role', 'rbac.create_permission'],
      what: 'with a new permission',
    },
    {
      needs: ['rbac.create_role', 'rbac.add_permission_to_role'],
      what: 'with a known permission',
      input: ({ name }) => ({ name: freshName(), permissions: [name] }),
    },
    { needs: ['rbac.create_role'], what: 'with none', input: () => ({ name: freshName() }) },
  ],
  'permissions.getRole': [{ needs: ['rbac.read_role'] }],
  'permissions.listRoles': [{ needs: ['rbac.read_role'] }],
  'permissions.deleteRole': [{ needs: ['rbac.delete_role'] }],
  'permissions.setRolePermissions': [
    {
      needs: ['rbac.add_permission_to_role', 'rbac.remove_permission_from_role', 'rbac.create_permission'],
      what: 'a new one',
    },
    {
      needs: ['rbac.add_permission_to_role', 'rbac.remove_permission_from_role'],
      what: 'none',
      input: ({ roleId }) => ({ roleId, permissions: [] }),
    },
  ],
  'analytics.getVerifications': [{ needs: ['api.read_analytics'], elsewhere: 'no rows' }],
  'analytics.getRatelimits': [{ needs: ['ratelimit.read_analytics'], elsewhere: 'no rows' }],
  'audit.listEvents': [{ needs: ['audit.read_audit'] }],
  // A root key gives, changes and takes away only what it holds itself: the examples are about `api.*.read_api`.
  'rootKeys.createRootKey': [{ needs: ['root_key.create_root_key', 'api.read_api'], ...anyIdOnly }],
  'rootKeys.listRootKeys': [{ needs: ['root_key.read_root_key'] }],
  'rootKeys.updateRootKey': [
    {
      needs: ['root_key.update_root_key', 'api.read_api'],
      input: ({ rootKeyId }) => ({ rootKeyId, name: 'new' }),
      ...anyIdOnly,
    },
  ],
  'rootKeys.deleteRootKey': [{ needs: ['root_key.delete_root_key', 'api.read_api'], ...anyIdOnly }],
};

const rows = operations.flatMap(({ name }) =>
  (table[name] as Row<OperationName>[]).map((row) => ({
    ...row,
    name,
    title: row.what === undefined ? name : `${name}, ${row.what}`,
    input: row.input ?? (examples[name] as (things: Things) => InputOf<OperationName>),
  })),
);

const everyNeed = Object.entries(actions).flatMap(([resource, named]) =>
  named.map((action) => `${resource}.${action}` as Need),
);
const scoped = ['api', 'ratelimit', 'identity'];

let others: Things;
beforeAll(async () => {
  others = await makeThings(call, tollgate.rootKey);
});

/** The needs as grants: with the ids of these things where a grant may have one, or for any id. */
function grantsFor(needs: readonly Need[], things?: Things): string[] {
  const ids = things && { api: things.apiId, ratelimit: things.namespaceId, identity: things.identityId };
  return needs.map((need) => {
    const [resource, action] = need.split('.') as [string, string];
    return `${resource}.${ids && scoped.includes(resource) ? ids[resource as 'api'] : '*'}.${action}`;
  });
}

const otherSpelling = (grants: string[]) =>
  grants.map((grant) => grant.replace(/^api\./, 'apis.').replace(/^ratelimit\./, 'ratelimits.'));

describe.each(rows)('$title', ({ name, needs, input, elsewhere = 'insufficient_permissions', refused }) => {
  const isScoped = needs.some((need) => scoped.includes(need.split('.')[0]!)) && elsewhere !== 'any id only';

  /** As a root key with these grants, made as callers make them. */
  const callAs = async (grants: string[], things: Things) => {
    const { key } = await ok('rootKeys.createRootKey', { permissions: grants });
    return call(name, input(things), key);
  };
  const things = () => makeThings(call, tollgate.rootKey);

  /** That the call was permitted: some operations answer with 200 what they do not let one see. */
  function expectPermitted(answer: Awaited<ReturnType<typeof callAs>>) {
    expect(answer.status, answer.error?.detail).toBe(200);
    if (elsewhere === 'NOT_FOUND') expect(answer.data).toMatchObject({ valid: true, code: 'VALID' });
    if (elsewhere === 'no rows') expect(answer.data).not.toEqual([]);
  }

  test.each(needs)('every grant there is but %s is not enough', async (missing) => {
    const grants = grantsFor(everyNeed.filter((need) => need !== missing));
    expect(await callAs(grants, await things())).toMatchObject(
      refused ? { status: 404, code: refused } : { status: 403, code: 'insufficient_permissions' },
    );
  });

  const idsDoNot = elsewhere === 'any id only' && needs.some((need) => scoped.includes(need.split('.')[0]!));

  const testScoped = isScoped ? test : () => {};
  const testUnscoped = idsDoNot ? test : () => {};

  testScoped('grants for another id are not enough', async () => {
    const answer = await callAs(grantsFor(needs, others), await things());
    if (elsewhere === 'NOT_FOUND') {
      expect(answer).toMatchObject({ status: 200, data: { valid: false, code: 'NOT_FOUND' } });
      expect(Object.keys(answer.data)).toEqual(['valid', 'code']);
    } else if (elsewhere === 'no rows') expect(answer).toMatchObject({ status: 200, data: [] });
    else expect(answer).toMatchObject({ status: elsewhere.endsWith('not_found') ? 404 : 403, code: elsewhere });
  });

  testUnscoped('grants for one id are not enough', async () => {
    const about = await things();
    const grants = grantsFor(needs, about);
    expect(await callAs(grants, about)).toMatchObject({ status: 403, code: 'insufficient_permissions' });
  });

  testScoped('grants for exactly this id, in either spelling', async () => {
    for (const spelling of [(grants: string[]) => grants, otherSpelling]) {
      const about = await things();
      expectPermitted(await callAs(spelling(grantsFor(needs, about)), about));
    }
  });

  test('grants for any id, in either spelling', async () => {
    expectPermitted(await callAs(grantsFor(needs), await things()));
    expectPermitted(await callAs(otherSpelling(grantsFor(needs)), await things()));
  });

  test('the grant of everything', async () => {
    expectPermitted(await callAs(['*'], await things()));
  });
});

test('what is stored has one spelling, and an id in a resource that has none is refused', async () => {
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

describe('permission comes before existence where the request names the id', () => {
  test.each(['keys.createKey', 'keys.migrateKeys', 'apis.getApi', 'apis.listKeys', 'apis.deleteApi'] as const)(
    '%s',
    async (name) => {
      const { needs } = table[name].at(-1)!;
      const nowhere = { ...others, apiId: 'api_unknown' };
      const last = table[name].at(-1) as Row<OperationName>;
      const input = (last.input ?? examples[name])(nowhere) as InputOf<typeof name>;
      expect(await call(name, input, grantsFor(needs, others))).toMatchObject({ status: 403 });
      for (const grants of [grantsFor(needs), grantsFor(needs, nowhere)]) {
        expect(await call(name, input, grants)).toMatchObject({ status: 404, code: 'api_not_found' });
      }
    },
  );
});
