// What holds for every kind of record that callers name by its id or by another unique name.

import { describe, expect, test } from 'vitest';
import { recordKinds } from '../../src/domain/records.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { exampleOf, freshName, makeThings, type Things } from '../support/examples.ts';
import { harness } from '../support/harness.ts';

const app = harness();
const { call, createWorkspace } = app;

const kinds = recordKinds.flatMap(([kind, { unique, ...rest }]) => (unique ? [{ kind, unique, ...rest }] : []));

describe.each(kinds)('$kind', ({ kind, unique, prefix, resource, isScope }) => {
  // Callers know a plan by its planId only: no request and no response has an id of it.
  const isNamedOnly = kind === 'plan';
  const [asked, idField] = isNamedOnly ? [unique, unique] : [kind, 'id'];
  const noun = kind[0]!.toUpperCase() + kind.slice(1);
  const operationOf = (name: string) => operations.find((one) => one.name.endsWith(`.${name}`))!.name as OperationName;
  const refer = (verb: 'get' | 'delete', reference: string, as: string | string[] = app.rootKey) =>
    call(operationOf(verb + noun), { [asked]: reference } as never, as);
  const found = async (search: string) =>
    (await call(operationOf(`list${noun.replace(/y$/, 'ie')}s`), { search } as never)).data as unknown;
  const notFound = { status: 404, code: `${kind}_not_found` };
  const create = (name: string, as = app.rootKey) => {
    const operation = operationOf(`create${noun}`);
    const example = isNamedOnly ? {} : exampleOf(operation).input({ name: 'a.permission' } as Things);
    return call(operation, { ...example, [unique]: name } as never, as);
  };
  /** A new one: its id and its name. */
  async function made(name = freshName(), as = app.rootKey) {
    const { status, data, error } = await create(name, as);
    expect(status, error?.detail).toBe(200);
    return { id: Object.values(data as object)[0] as string, name };
  }

  test('is found by its id, its name and a search, until it is deleted by either', async () => {
    for (const by of ['id', 'name'] as const) {
      const one = await made();
      const { data: record } = await refer('get', one.id);
      expect(record).toMatchObject({ [idField]: one.id, [unique]: one.name });
      expect(await refer('get', one.name)).toMatchObject({ data: record });
      expect(await found(one.name.toUpperCase())).toContainEqual(record);
      expect(await refer('delete', one[by])).toMatchObject({ status: 200, data: {} });
      for (const reference of [one.id, one.name]) {
        expect(await refer('get', reference)).toMatchObject(notFound);
        expect(await refer('delete', reference)).toMatchObject(notFound);
      }
      expect(await found(one.name)).not.toContainEqual(record);
    }
  });

  test('is not found by a reference that no record has, or by the id of another kind', async () => {
    const { name } = await made();
    const { keyId } = await app.createKey();
    const unknown = [
      'unknown',
      `${prefix}_unknown`,
      `${prefix}_1111111111111112`,
      name.toUpperCase(),
      `${name}.`,
      keyId,
    ];
    for (const reference of unknown) {
      for (const verb of ['get', 'delete'] as const) expect(await refer(verb, reference)).toMatchObject(notFound);
    }
  });

  test('is not found from another workspace, which may have one of its name', async () => {
    const { id, name } = await made();
    const { rootKey } = await createWorkspace();
    for (const reference of [id, name]) {
      for (const verb of ['get', 'delete'] as const) {
        expect(await refer(verb, reference, rootKey)).toMatchObject(notFound);
      }
    }
    const theirs = await made(name, rootKey);
    expect((await refer('get', name)).data).toMatchObject({ [idField]: id });
    expect((await refer('get', name, rootKey)).data).toMatchObject({ [idField]: theirs.id });
    await refer('delete', name);
    expect(await refer('get', name)).toMatchObject(notFound);
    expect((await refer('get', name, rootKey)).data).toMatchObject({ [idField]: theirs.id });
  });

  // Not skipped: the fault tests take a skipped test as one that did not pass.
  if (isNamedOnly) return;
  test('a new one with the name of a deleted one has another id', async () => {
    const { id, name } = await made();
    await refer('delete', name);
    const again = await made(name);
    expect(again.id).not.toBe(id);
    expect(await refer('get', id)).toMatchObject(notFound);
    expect((await refer('get', name)).data).toMatchObject({ id: again.id });
    if (isScope) expect((await refer('get', name, [`${resource}.${id}.read_${kind}`])).status).toBe(403);
  });

  test('a name that looks like an id names the one that has it, unless an id does', async () => {
    const like = await made(`${prefix}_1111111111111111`);
    const first = await made();
    const second = await made(first.id);
    const idOf = async (reference: string) => ((await refer('get', reference)).data as { id: string }).id;
    for (const [reference, one] of [
      [like.name, like],
      [first.id, first],
      [second.id, second],
    ] as const)
      expect(await idOf(reference)).toBe(one.id);
  });

  test('is refused with the name of another, of which nothing changes; names differ by case', async () => {
    const { name } = await made();
    const before = (await refer('get', name)).data;
    expect(await create(name)).toMatchObject({ status: 409, code: `${kind}_already_exists` });
    expect((await refer('get', name)).data).toEqual(before);
    expect(await found(name)).toHaveLength(1);
    await made(name.toUpperCase());
  });

  test('of concurrent creations with one name one succeeds', async () => {
    const name = freshName();
    const answers = await Promise.all(Array.from({ length: 5 }, () => create(name)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409, 409]);
  });

  if (isScope)
    test('needs a grant for its id, also if it is named otherwise', async () => {
      const [{ id, name }, other] = [await made(), await made()];
      for (const reference of [id, name]) {
        expect(await refer('get', reference, [`${resource}.${id}.read_${kind}`])).toMatchObject({ status: 200 });
        const refused = await refer('get', reference, [`${resource}.${other.id}.read_${kind}`]);
        expect(refused).toMatchObject({ status: 403, code: 'insufficient_permissions' });
        expect(refused.error.detail).toContain(`${resource}.*.read_${kind} or ${resource}.${id}.read_${kind}.`);
      }
      // A grant that has the name in place of the id is for none.
      const named = await made(`named${freshName().slice(-6)}`);
      expect((await refer('get', named.name, [`${resource}.${named.name}.read_${kind}`])).status).toBe(403);
      expect(await refer('get', 'unknown', [`${resource}.${id}.read_${kind}`])).toMatchObject(notFound);
    });
});

describe('a namespace', () => {
  const names = operations.flatMap(({ name }) =>
    exampleOf(name).elsewhere === 'namespace_not_found' ? [name as OperationName] : [],
  );
  const inputOf = (name: OperationName, things: Things, namespace: string): never =>
    JSON.parse(JSON.stringify(exampleOf(name).input(things)).replaceAll(things.namespaceId, namespace)) as never;

  test.each(names)('%s: an id that no namespace of the workspace has is 404, and no name', async (name) => {
    const things = await makeThings(call, app.rootKey);
    const theirs = await makeThings(call, (await createWorkspace()).rootKey);
    const unknown = ['rlns_', 'rlns_unknown', `rlns_${'1'.repeat(16)}`, theirs.namespaceId];
    // Other operations create a namespace.
    if (/\.(get|list|delete)/.test(name)) unknown.push('nowhere', theirs.name, things.name.toUpperCase());
    for (const namespace of unknown) {
      const answer = await call(name, inputOf(name, things, namespace));
      expect(answer, namespace).toMatchObject({ status: 404, code: 'namespace_not_found' });
    }
  });

  test.each(names)('%s: needs a grant for its id, also if it is named by its name', async (name) => {
    const [things, others] = [await makeThings(call, app.rootKey), await makeThings(call, app.rootKey)];
    const grant = exampleOf(name).needs[0]!.replace('.', `.${things.namespaceId}.`);
    for (const [of, status] of [
      [things, 200],
      [others, 403],
    ] as const) {
      const { status: answered, error } = await call(name, inputOf(name, of, of.name), [grant]);
      expect(answered).toBe(status);
      if (status === 403) expect(error.detail).toContain(grant.replace(things.namespaceId, others.namespaceId));
    }
  });
});
