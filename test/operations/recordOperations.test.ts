// What holds for every kind of record that callers name by its id or by another unique name.

import { describe, expect, test } from 'vitest';
import { recordKinds } from '../../src/domain/records.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { exampleOf, makeThings, type Things } from '../support/examples.ts';
import { harness } from '../support/harness.ts';

const { call, rootKey } = harness();

const kinds = recordKinds.flatMap(([kind, { unique, ...rest }]) => (unique ? [{ kind, unique, ...rest }] : []));

describe.each(kinds)('$kind', ({ kind, unique, resource, isScope }) => {
  const noun = kind[0]!.toUpperCase() + kind.slice(1);
  const operationOf = (name: string) => operations.find((one) => one.name.endsWith(`.${name}`))!.name as OperationName;
  const refer = (verb: 'get' | 'delete', reference: string, as: string | string[] = rootKey) =>
    call(operationOf(verb + noun), { [kind]: reference } as never, as);
  const found = async (search: string) =>
    (await call(operationOf(`list${noun.replace(/y$/, 'ie')}s`), { search } as never, rootKey)).data as unknown;
  const idOf = (things: Things) => things[`${kind}Id` as keyof Things];
  const notFound = { status: 404, code: `${kind}_not_found` };

  test('is found by its id, its name and a search, until it is deleted', async () => {
    const things = await makeThings(call, rootKey);
    const { data: record } = await refer('get', idOf(things));
    expect(record).toMatchObject({ id: idOf(things), [unique]: things.name });
    expect(await refer('get', things.name)).toMatchObject({ data: record });
    expect(await found(things.name.toUpperCase())).toContainEqual(record);
    expect(await refer('delete', things.name)).toMatchObject({ status: 200, data: {} });
    for (const reference of [idOf(things), things.name]) {
      expect(await refer('get', reference)).toMatchObject(notFound);
      expect(await refer('delete', reference)).toMatchObject(notFound);
    }
    expect(await found(things.name)).not.toContainEqual(record);
  });

  test('is refused with the name of another', async () => {
    const things = await makeThings(call, rootKey);
    const name = operationOf(`create${noun}`);
    const input = { ...exampleOf(name).input(things), [unique]: things.name };
    expect(await call(name, input as never, rootKey)).toMatchObject({ status: 409, code: `${kind}_already_exists` });
  });

  if (isScope)
    test('needs a grant for its id', async () => {
      const [id, other] = [idOf(await makeThings(call, rootKey)), idOf(await makeThings(call, rootKey))];
      expect(await refer('get', id, [`${resource}.${id}.read_${kind}`])).toMatchObject({ status: 200 });
      expect(await refer('get', id, [`${resource}.${other}.read_${kind}`])).toMatchObject({ status: 403 });
    });
});
