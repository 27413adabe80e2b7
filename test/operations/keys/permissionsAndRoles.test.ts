// The six operations that add, remove and set the permissions and the roles of a key, in one table, as they are
// similar.

import { beforeAll, describe, expect, test } from 'vitest';
import type { ErrorCode } from '../../../src/errors.ts';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import { hasVolume } from '../../support/testIf.ts';

const { call, ok, createKey, clock } = harness();

const letters = ['a', 'b', 'c', 'd'] as const;
const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

/** A role of the table has one permission, so that both kinds have the same results of queries. */
const queryOf = (letter: string) => `${letter}.read`;

const kinds = {
  Permissions: {
    field: 'permissions' as const,
    nameOf: queryOf,
    max: 1000,
    grants: { add: 'rbac.*.add_permission_to_key', remove: 'rbac.*.remove_permission_from_key' },
    notFound: 'permission_not_found' as ErrorCode,
    malformed: [[''], ['x'.repeat(129)], ['fine.one', 'not fine'], null, 'a.read'],
    create: (name: string) => ok('permissions.createPermission', { name: `Name of ${name}`, slug: name }),
    delete: (name: string) => ok('permissions.deletePermission', { permission: name }),
    get: (name: string) => call('permissions.getPermission', { permission: name }),
  },
  Roles: {
    field: 'roles' as const,
    nameOf: (letter: string) => `role ${letter}`,
    max: 100,
    grants: { add: 'rbac.*.add_role_to_key', remove: 'rbac.*.remove_role_from_key' },
    notFound: 'role_not_found' as ErrorCode,
    malformed: [[''], ['r'.repeat(129)], null],
    create: (name: string) => ok('permissions.createRole', { name, permissions: [queryOf(name.at(-1)!)] }),
    delete: (name: string) => ok('permissions.deleteRole', { role: name }),
    get: (name: string) => call('permissions.getRole', { role: name }),
  },
};

/** Letters for: what the key has before, the list in the request, what the key has after. */
type Letters = [before: string, asked: string, after: string];
const changes: Record<'add' | 'remove' | 'set', [Letters, ...Letters[]]> = {
  add: [
    ['b', 'ca', 'bca'],
    ['', 'dad', 'da'],
    ['ab', 'bcca', 'abc'],
  ],
  remove: [
    ['dbca', 'aba', 'dc'],
    ['a', 'b', 'a'],
    ['a', 'ba', ''],
  ],
  set: [
    ['ab', 'dbd', 'db'],
    ['ab', '', ''],
    ['', 'ca', 'ca'],
  ],
};

const operations = (Object.keys(kinds) as (keyof typeof kinds)[]).flatMap((kind) =>
  (Object.keys(changes) as (keyof typeof changes)[]).map((mode) => ({
    name: `keys.${mode}${kind}` as const,
    mode,
    ...kinds[kind],
    createsMissing: kind === 'Permissions' && mode !== 'remove',
  })),
);

beforeAll(async () => {
  for (const letter of letters) {
    await kinds.Permissions.create(queryOf(letter));
    await kinds.Roles.create(kinds.Roles.nameOf(letter));
  }
});

const many = (count: number, prefix: string) => Array.from({ length: count }, (_, index) => `${prefix}.${index}`);

describe.each(operations)('$name', (operation) => {
  const { name, mode, field, nameOf, get, grants, createsMissing } = operation;
  const namesOf = (text: string) => [...text].map(nameOf);
  const change = async (keyId: string, list: unknown, as?: string[]) =>
    await call(name, { keyId, [field]: list } as never, as);
  const keyWith = (list: string[]) => createKey(list.length > 0 ? { [field]: list } : {});
  const record = (keyId: string) => ok('keys.getKey', { keyId });
  const needed = {
    add: ['api.*.update_key', grants.add],
    remove: ['api.*.update_key', grants.remove],
    set: ['api.*.update_key', grants.add, grants.remove],
  }[mode];

  test.each(changes[mode])('a key with "%s" and a request for "%s" leave "%s"', async (before, asked, after) => {
    const { keyId } = await keyWith(namesOf(before));
    const { status, data } = await change(keyId, namesOf(asked));
    expect(status).toBe(200);
    expect(data).toEqual(await Promise.all(namesOf(after).map(async (item) => (await get(item)).data)));
    expect((await record(keyId))[field]).toEqual(after === '' ? undefined : namesOf(after));
  });

  test('counts from the next verification on, also of a cached key', async () => {
    const [before, asked, after] = changes[mode][0];
    const other = await keyWith(namesOf(before));
    const { keyId, key } = await keyWith(namesOf(before));
    for (const text of [before, before, after]) {
      if (text === after) await change(keyId, namesOf(asked));
      for (const letter of letters) {
        expect((await verify(key, queryOf(letter))).valid, `${letter} of ${text}`).toBe([...text].includes(letter));
      }
    }
    expect((await verify(key))[field]).toEqual(namesOf(after));
    // Another key keeps its own.
    expect((await verify(other.key))[field]).toEqual(namesOf(before));
    for (const item of namesOf(before)) expect((await get(item)).status).toBe(200);
  });

  test('sets updatedAt and touches nothing else', async () => {
    const rest = { name: 'n', meta: { a: 1 }, credits: { remaining: 3 }, externalId: 'alice' };
    const { keyId } = await createKey({ ...rest, [field]: namesOf('abc') });
    const { roles, permissions, ...before } = await record(keyId);
    clock.advance(5);
    await change(keyId, namesOf('ad'), undefined);
    const { roles: newRoles, permissions: newPermissions, ...now } = await record(keyId);
    expect(now).toEqual({ ...before, updatedAt: clock.now });
    expect({ newRoles, newPermissions }).not.toEqual({ newRoles: roles, newPermissions: permissions });
  });

  const malformed = [...operation.malformed, ...(mode === 'set' ? [undefined] : [[]])];
  test.each(malformed.map((list) => [list]))('400 for %j, and nothing changes', async (list) => {
    const { keyId } = await keyWith(namesOf('a'));
    expect(await change(keyId, list)).toMatchObject({ status: 400, code: 'invalid_input' });
    expect((await record(keyId))[field]).toEqual(namesOf('a'));
  });

  if (createsMissing) {
    test('creates a permission that does not exist, once', async () => {
      const { keyId } = await keyWith(namesOf('a'));
      const slug = `${mode}.once`;
      const { data } = await change(keyId, ['a.read', slug, 'b.read', slug]);
      const created = { id: expect.stringMatching(/^perm_/), name: slug, slug };
      expect(data).toEqual([(await get('a.read')).data, created, (await get('b.read')).data]);
      expect(await ok('permissions.listPermissions', { search: slug })).toHaveLength(1);
    });

    test('403 for a permission that does not exist without create_permission, and nothing changes', async () => {
      const { keyId } = await keyWith(namesOf('a'));
      const before = await record(keyId);
      clock.advance(5);
      const { status, error } = await change(keyId, ['b.read', 'is.missing'], needed);
      expect(status).toBe(403);
      expect(error.detail).toContain('rbac.*.create_permission');
      expect(await record(keyId)).toEqual(before);
      expect((await get('is.missing')).status).toBe(404);
    });
  } else {
    test('404 for one that does not exist, by name, and nothing changes', async () => {
      const gone = nameOf(`${mode}.gone.a`);
      await operation.create(gone);
      const { keyId } = await keyWith([nameOf('a'), gone]);
      await operation.delete(gone);
      const before = await record(keyId);
      clock.advance(5);
      const ofRole = field === 'roles' ? [(await ok('permissions.getRole', { role: nameOf('a') })).id] : [];
      for (const unknown of [gone, nameOf('nowhere'), nameOf('a').replace('a', 'A'), ...ofRole]) {
        const answer = await change(keyId, [nameOf('a'), unknown]);
        expect(answer).toMatchObject({ status: 404, code: operation.notFound });
        expect(answer.error.detail).toContain(unknown);
        expect(await record(keyId)).toEqual(before);
      }
      expect((await get(nameOf('nowhere'))).status).toBe(404);
    });
  }
});

describe.each(operations.filter(({ mode }) => mode === 'set'))('$name', ({ name, field, nameOf }) => {
  test('concurrent calls leave one of their lists complete', async () => {
    const { keyId } = await createKey();
    const lists = ['ab', 'cad', 'd'].map((text) => [...text].map(nameOf));
    await Promise.all(lists.map((list) => ok(name, { keyId, [field]: list } as never)));
    expect(lists).toContainEqual((await ok('keys.getKey', { keyId }))[field]);
  });
});

describe.each(operations.filter(({ mode }) => mode === 'add'))('the maximum of $field of a key', (operation) => {
  const { name, field, max, nameOf, get } = operation;
  const full = (prefix: string) => many(max, `${field}.${prefix}`);
  const add = (keyId: string, list: string[]) => call(name, { keyId, [field]: list } as never);
  const create = async (names: string[]) => {
    if (field === 'roles') for (const role of names) await ok('permissions.createRole', { name: role });
  };

  test('400 for one more, and nothing changes', async () => {
    const items = full('most');
    await create(items);
    const { keyId, key } = await createKey({ [field]: items.slice(1) });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    expect(await add(keyId, [items[5]!, nameOf('a'), nameOf('b')])).toMatchObject(onlyInvalidAt(`body.${field}`));
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect(await verify(key, queryOf('a'))).toMatchObject({ valid: false });

    expect((await add(keyId, [items[5]!, nameOf('a'), items[6]!])).data).toHaveLength(max);
    expect(await verify(key, queryOf('a'))).toMatchObject({ valid: true });
    expect((await add(keyId, [nameOf('a')])).data).toHaveLength(max);
    const again = await add(keyId, field === 'permissions' ? ['not.yet'] : [nameOf('b')]);
    expect(again.status).toBe(400);
    expect((await get('not.yet')).status).toBe(404);
  });

  test('a deleted one does not count', async () => {
    const items = full('gone');
    await create(items);
    const { keyId } = await createKey({ [field]: items });
    await operation.delete(items[50]!);
    const data = (await add(keyId, [nameOf('a')])).data as { name: string; slug?: string }[];
    expect(data.map((item) => item.slug ?? item.name)).toEqual([...items.toSpliced(50, 1), nameOf('a')]);
  });

  const others = ['keys.createKey', 'keys.updateKey', `keys.set${name.slice('keys.add'.length)}`, 'keys.migrateKeys'];
  test.each(hasVolume ? others : others.slice(0, 1))(`400 for ${max + 1} by %s, and none is created`, async (other) => {
    const { apiId, keyId } = await createKey({ [field]: [nameOf('a')] });
    const list = many(max + 1, other);
    if (field === 'roles') await create(list);
    const input =
      other === 'keys.createKey'
        ? { apiId, [field]: list }
        : other === 'keys.migrateKeys'
          ? {
              apiId,
              migrationId: 'most',
              keys: [{ hash: Buffer.alloc(32, other).toString('base64'), [field]: list }],
            }
          : { keyId, [field]: list };
    expect(await call(other as 'keys.updateKey', input as never)).toMatchObject({
      status: 400,
      code: 'invalid_input',
    });
    expect(await ok('permissions.listPermissions', { search: other })).toEqual([]);
    expect(await ok('apis.listKeys', { apiId })).toEqual([await ok('keys.getKey', { keyId })]);
    expect((await ok('keys.getKey', { keyId }))[field]).toEqual([nameOf('a')]);
  });
});

describe('permissions of a key and permissions of its roles', () => {
  beforeAll(async () => {
    await ok('permissions.createRole', { name: 'reader', permissions: ['r.read', 'x.read'] });
    await ok('permissions.createRole', { name: 'all', permissions: ['everything.*'] });
  });

  test('one that a role has becomes the key’s own: it stays when the role is removed', async () => {
    const { keyId, key } = await createKey({ roles: ['reader'] });
    const added = await ok('keys.addPermissions', { keyId, permissions: ['r.read'] });
    expect(added.map(({ slug }) => slug)).toEqual(['r.read']);
    expect((await verify(key)).permissions).toEqual(['r.read', 'x.read']);
    await ok('keys.removeRoles', { keyId, roles: ['reader'] });
    expect((await verify(key)).permissions).toEqual(['r.read']);
  });

  test('one that only a role has is not removed', async () => {
    const { keyId, key } = await createKey({ roles: ['reader'], permissions: ['r.read', 'own.read'] });
    const left = await ok('keys.removePermissions', { keyId, permissions: ['r.read'] });
    expect(left.map(({ slug }) => slug)).toEqual(['own.read']);
    expect(await verify(key, 'r.read')).toMatchObject({ valid: true, permissions: ['own.read', 'r.read', 'x.read'] });
    await ok('keys.setPermissions', { keyId, permissions: [] });
    expect(await verify(key, 'r.read')).toMatchObject({ valid: true, permissions: ['r.read', 'x.read'] });
    await ok('keys.setRoles', { keyId, roles: [] });
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
  });

  test('an empty list of roles leaves the key’s own permissions', async () => {
    const { keyId, key } = await createKey({ roles: ['reader', 'all'], permissions: ['own.read'] });
    expect(await ok('keys.setRoles', { keyId, roles: [] })).toEqual([]);
    const answer = await verify(key, 'own.read');
    expect(answer).toMatchObject({ valid: true, permissions: ['own.read'] });
    expect(answer).not.toHaveProperty('roles');
  });

  test('a wildcard is removed by itself, and removes nothing that it covers', async () => {
    const { keyId, key } = await createKey({ permissions: ['w.*', 'w.read'] });
    await ok('keys.removePermissions', { keyId, permissions: ['w.read'] });
    expect(await verify(key, 'w.read')).toMatchObject({ valid: true, permissions: ['w.*'] });
    await ok('keys.addPermissions', { keyId, permissions: ['w.read'] });
    await ok('keys.removePermissions', { keyId, permissions: ['w.*'] });
    expect(await verify(key, 'w.read')).toMatchObject({ valid: true, permissions: ['w.read'] });
    expect(await verify(key, 'w.write')).toMatchObject({ valid: false });
  });

  test.each([
    ['everything.read', true],
    ['everything.read.own', true],
    ['everything.*', true],
    ['everything', false],
    ['everythingelse.read', false],
    ['own.read AND x.read AND everything.x', true],
    ['own.read AND d.read', false],
    ['d.read OR x.read', true],
    ['roles.reader OR reader', false],
  ])('a wildcard of a role and own permissions in the query %s: %s', async (query, valid) => {
    const { keyId, key } = await createKey({ permissions: ['own.read'] });
    await ok('keys.addRoles', { keyId, roles: ['all', 'reader'] });
    expect(await verify(key, query)).toMatchObject({ valid });
  });

  test('1000 permissions of a role and 1000 of its own', async () => {
    await ok('permissions.createRole', { name: 'thousand', permissions: many(1000, 'role') });
    const { keyId, key } = await createKey({ roles: ['thousand'] });
    expect(await ok('keys.addPermissions', { keyId, permissions: many(1000, 'own') })).toHaveLength(1000);
    expect((await verify(key, 'own.999 AND role.999')).permissions).toHaveLength(2000);

    await ok('keys.setPermissions', { keyId, permissions: many(1000, 'new') });
    expect(await verify(key, 'own.0 OR own.999')).toMatchObject({ valid: false });
    const even = many(1000, 'new').filter((_, index) => index % 2 === 0);
    const left = await ok('keys.removePermissions', { keyId, permissions: even });
    expect(left.map(({ slug }) => slug)).toEqual(many(1000, 'new').filter((_, index) => index % 2 === 1));
    expect(await ok('keys.removePermissions', { keyId, permissions: many(1000, 'new') })).toEqual([]);
  });

  test('100 roles, all of which count', async () => {
    const hundred = many(100, 'hundred');
    for (const name of hundred) await ok('permissions.createRole', { name, permissions: [`of.${name}`, 'of.all'] });
    const { keyId, key } = await createKey({ roles: hundred.slice(0, 40) });
    const roles = await ok('keys.addRoles', { keyId, roles: hundred.slice(30) });
    expect(roles.map(({ name }) => name)).toEqual(hundred);
    const answer = await verify(key, 'of.hundred.0 AND of.hundred.39 AND of.hundred.99');
    expect(answer).toMatchObject({ valid: true, roles: hundred });
    expect(answer.permissions).toHaveLength(101);
  });
});
