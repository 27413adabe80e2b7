// Lists of large items: a page ends before its size is reached, and no item is missing or duplicate. Imports that are
// too large for one call are refused completely.

import { describe, expect, test } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import { hash } from '../support/examples.ts';
import { dayMs, harness, type InputOf } from '../support/harness.ts';
import { onlyInvalidAt } from '../support/invalid.ts';
import { readPages } from '../support/lists.ts';
import { thoroughTest } from '../support/testIf.ts';

const tollgate = harness();
const { call, ok, createRootKey, createWorkspace } = tollgate;
const store = () => tollgate.store;

const times = <Item>(count: number, make: (index: number) => Item) =>
  Array.from({ length: count }, (_, at) => make(at));

/** Returns the sizes of the pages, and checks that they have these ids in this order. */
function sizesOf(pages: string[][], ids: string[]): number[] {
  expect(pages.flat()).toEqual(ids);
  return pages.map(({ length }) => length);
}

// The timeout is for tests that hang: on a busy machine, a hundred roles of a thousand permissions took 25 s.
describe('a page ends early', { timeout: 120_000 }, () => {
  test('of keys with 1000 permissions, in an API and of an externalId', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'large' });
    const permissions = times(1000, (index) => `large.${index}`);
    const ids: string[] = [];
    for (let index = 0; index < 30; index++) {
      ids.push((await ok('keys.createKey', { apiId, permissions, externalId: 'large' })).keyId);
    }
    for (const which of [{}, { externalId: 'large' }]) {
      const pages = await readPages((at) => call('apis.listKeys', { apiId, ...which, ...at }));
      expect(pages.flat().every(({ permissions: listed }) => (listed as string[]).length === 1000)).toBe(true);
      const sizes = sizesOf(
        pages.map((page) => page.map(({ keyId }) => keyId)),
        ids,
      );
      expect(Math.max(...sizes)).toBeLessThan(30);
      expect(sizes.length).toBeLessThan(5);
    }
    // A page of small items has the requested size.
    const small = await readPages((at) => call('apis.listKeys', { apiId, limit: 10, ...at }));
    expect(small.map(({ length }) => length)).toEqual([10, 10, 10]);
  });

  test('after a key of a hundred roles of a thousand permissions, which is returned and verified completely', async () => {
    const { rootKey } = await createWorkspace();
    const run = <Name extends OperationName>(name: Name, input: InputOf<Name>) => call(name, input, rootKey);
    const { apiId } = (await run('apis.createApi', { name: 'large' })).data;
    const roles = times(100, (role) => `role ${role}`);
    for (const [role, name] of roles.entries()) {
      await run('permissions.createRole', { name, permissions: times(1000, (index) => `large.${role}.${index}`) });
    }
    const large = (await run('keys.createKey', { apiId, roles, credits: { remaining: 10 } })).data;
    const plain = (await run('keys.createKey', { apiId, credits: { remaining: 10 } })).data;

    const all = new Set(roles.flatMap((_, role) => times(1000, (index) => `large.${role}.${index}`)));
    const expectAll = (permissions: string[] = []) => {
      expect(permissions).toHaveLength(all.size);
      expect(permissions.every((slug) => all.has(slug))).toBe(true);
    };
    // In one batch: each response has its own balance.
    const verified = await Promise.all([large, plain, large, plain].map(({ key }) => run('keys.verifyKey', { key })));
    expect(verified.map(({ status, data }) => [status, data.code, data.credits])).toEqual([
      [200, 'VALID', 9],
      [200, 'VALID', 9],
      [200, 'VALID', 8],
      [200, 'VALID', 8],
    ]);
    expectAll(verified[0]!.data.permissions);
    expectAll((await run('keys.verifyKey', { key: large.key })).data.permissions);
    expect((await run('keys.verifyKey', { key: large.key, permissions: 'large.99.999 AND large.0.0' })).data.code).toBe(
      'VALID',
    );
    expectAll((await run('keys.getKey', { keyId: large.keyId })).data.permissions as string[]);
    const pages = await readPages((at) => run('apis.listKeys', { apiId, ...at }));
    expect(pages.map((page) => page.map(({ keyId }) => keyId))).toEqual([[large.keyId], [plain.keyId]]);
    expectAll(pages[0]![0]!.permissions as string[]);

    await run('permissions.deletePermission', { permission: 'large.50.500' });
    all.delete('large.50.500');
    expectAll((await run('keys.verifyKey', { key: large.key })).data.permissions);
  });

  test('but not for identities with many limits, which are read in steps', async () => {
    const { rootKey } = await createWorkspace();
    const ratelimits = times(50, (index) => ({ name: `limit ${index}`, limit: 1, duration: dayMs }));
    const ids: string[] = [];
    for (let index = 0; index < 90; index++) {
      const { data } = await call('identities.createIdentity', { externalId: `large${index}`, ratelimits }, rootKey);
      ids.push(data.identityId);
    }
    const pages = await readPages((at) => call('identities.listIdentities', { limit: 80, ...at }, rootKey));
    expect(
      sizesOf(
        pages.map((page) => page.map(({ id }) => id)),
        ids,
      ),
    ).toEqual([80, 10]);
  });

  test('of roles with 1000 permissions', async () => {
    const { rootKey } = await createWorkspace();
    const permissions = times(1000, (index) => `large.${index}`);
    const ids: string[] = [];
    for (let index = 0; index < 12; index++) {
      ids.push((await call('permissions.createRole', { name: `large ${index}`, permissions }, rootKey)).data.roleId);
    }
    for (const search of [{}, { search: 'LARGE' }]) {
      const pages = await readPages((at) => call('permissions.listRoles', { ...search, ...at }, rootKey));
      expect(
        sizesOf(
          pages.map((page) => page.map(({ id }) => id)),
          ids,
        ),
      ).toEqual([5, 5, 2]);
    }
  });

  thoroughTest(
    'of roles whose permissions have long names, in bytes; responses about a key omit them beyond 10 MB',
    async () => {
      const { rootKey } = await createWorkspace();
      const run = <Name extends OperationName>(name: Name, input: InputOf<Name>) => call(name, input, rootKey);
      const long = '\u{1f511}'.repeat(512);
      const permissions = times(1000, (index) => `long.${index}`);
      for (const slug of permissions) {
        await run('permissions.createPermission', { slug, name: long, description: long });
      }
      const roles = times(12, (index) => `long ${index}`);
      const ids: string[] = [];
      for (const name of roles) ids.push((await run('permissions.createRole', { name, permissions })).data.roleId);
      const listed = await readPages((at) => run('permissions.listRoles', { ...at }));
      const pages = listed.map((page) => page.map(({ id }) => id));
      expect(sizesOf(pages, ids)).toEqual(times(12, () => 1));
      expect(listed.flat().every((role) => role.permissions?.length === 1000)).toBe(true);

      const { apiId } = (await run('apis.createApi', { name: 'large' })).data;
      const { keyId } = (await run('keys.createKey', { apiId, roles })).data;
      const { data } = await run('keys.addRoles', { keyId, roles: ['long 0'] });
      expect(data.map(({ name }) => name)).toEqual(roles);
      // A role has 4.2 MB.
      expect(data.map((role) => role.permissions?.length)).toEqual([1000, 1000, ...times(10, () => undefined)]);
    },
  );

  thoroughTest('of keys and identities with large metadata, where META_LIMIT_BYTES allows it', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'large' }, rootKey)).data;
    const meta = JSON.stringify({ large: 'x'.repeat(1_000_000) });
    const actor = { rootKeyId: 'root', operation: 'test', requestId: 'req' };
    const externalIds = times(20, (index) => `large${index}`);
    for (const externalId of externalIds) {
      await store().identities.create(workspaceId, [{ externalId, meta, ratelimits: [] }], actor);
      const keys = [{ digest: Buffer.from(hash(), 'base64'), start: '', meta, externalId }];
      await store().keys.create(workspaceId, { apiId, keys, mayCreatePermissions: true }, actor);
    }
    const keys = await readPages((at) => call('apis.listKeys', { apiId, ...at }, rootKey));
    expect(keys.flat().map(({ externalId }) => externalId)).toEqual(externalIds);
    const identities = await readPages((at) => call('identities.listIdentities', { ...at }, rootKey));
    expect(identities.flat().map(({ externalId }) => externalId)).toEqual(externalIds);
    for (const page of [...keys, ...identities]) expect(JSON.stringify(page).length).toBeLessThan(10e6);
    // An export reads in steps too, and omits nothing.
    const exported: string[] = [];
    let after: string | undefined;
    let largest = 0;
    do {
      const page = (await store().keys.export(workspaceId, { apiId, after, count: 200 }))!;
      exported.push(...page.items.map((key) => key.externalId!));
      largest = Math.max(largest, page.items.length);
      after = page.next;
    } while (after !== undefined);
    expect(exported).toEqual(externalIds);
    expect(largest).toBeLessThan(10);
  });

  test('of root keys with long lists of grants', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const grants = times(1000, (index) => `api.${`${index}_`.padEnd(240, 'x')}.verify_key`);
    for (let index = 0; index < 9; index++) await createRootKey(grants, workspaceId);
    const pages = await readPages((at) => call('rootKeys.listRootKeys', at, rootKey));
    expect(new Set(pages.flat().map(({ rootKeyId }) => rootKeyId)).size).toBe(10);
    expect(pages.length).toBeGreaterThan(1);
  });
});

describe('migrateKeys', () => {
  test.each([
    ['permissions', { permissions: times(101, (index) => `same.${index}`) }],
    ['limits', { ratelimits: times(26, (index) => ({ name: `limit ${index}`, limit: 1, duration: 1000 })) }],
    ['different permissions', undefined],
  ])('refuses too many %s in a call, and imports nothing', async (_what, fields) => {
    const { apiId } = await ok('apis.createApi', { name: 'import' });
    const keys = times(400, (index) => ({
      hash: hash(),
      ...(fields ?? { permissions: times(3, (at) => `another.${index}.${at}`) }),
    }));
    expect(await call('keys.migrateKeys', { migrationId: 'large', apiId, keys })).toMatchObject(
      onlyInvalidAt('body.keys'),
    );
    expect(await ok('apis.listKeys', { apiId })).toEqual([]);
    const fewer = await ok('keys.migrateKeys', { migrationId: 'large', apiId, keys: keys.slice(0, 90) });
    expect(fewer.migrated).toHaveLength(90);
  });
});

test('a query with many slugs has the same result as with few', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'query' });
  const held = times(40, (index) => `query.${2 * index}.read`);
  await ok('permissions.createRole', { name: 'query', permissions: held.slice(0, 20) });
  const { key } = await ok('keys.createKey', { apiId, roles: ['query'], permissions: [...held.slice(20), 'wild.*'] });
  await ok('permissions.createRole', {
    name: 'not of the key',
    permissions: times(40, (index) => `query.${2 * index + 1}.read`),
  });
  const verify = async (query: string) => (await ok('keys.verifyKey', { key, permissions: query })).code;
  const odd = times(30, (index) => `query.${2 * index + 1}.read`);
  expect(await verify(held.join(' AND '))).toBe('VALID');
  expect(await verify([...held.slice(0, 30), 'wild.one'].join(' AND '))).toBe('VALID');
  expect(await verify([...held.slice(0, 30), odd[0]].join(' AND '))).toBe('INSUFFICIENT_PERMISSIONS');
  expect(await verify(odd.join(' OR '))).toBe('INSUFFICIENT_PERMISSIONS');
  expect(await verify([...odd, held[39]].join(' OR '))).toBe('VALID');
  expect(await verify([...odd, 'wild.two'].join(' OR '))).toBe('VALID');
});
