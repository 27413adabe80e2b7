// `scope` of an operation that needs grants of several resources: each grant must name the id of its resource.

import { pino } from 'pino';
import Type from 'typebox';
import { expect, test } from 'vitest';
import { createPipeline } from '../../src/http/pipeline.ts';
import { manages, type Scope } from '../../src/operation.ts';
import { Fields } from '../../src/operations/schemas.ts';
import { harness, requestTo } from '../support/harness.ts';

const tollgate = harness();

async function statusAndDetail(scope: Scope, grants: string[]) {
  const operation = manages({
    name: 'test.scoped',
    summary: '',
    input: Fields({}),
    output: Type.Object({}),
    needs: { identity: ['read_identity'], api: ['read_key'], rbac: ['read_role'] },
    scope: () => scope,
    handle: async () => ({}),
  });
  const { store } = tollgate;
  const handler = createPipeline([operation], { store, log: pino({ level: 'silent' }), metaBytesMax: 0 });
  const rootKey = await tollgate.createRootKey([...grants, 'rbac.*.read_role']);
  const { status, body } = await handler(requestTo('/v2/test.scoped', rootKey));
  return [status, JSON.parse(body).error?.detail];
}

const scope = { identity: 'id_one', api: 'api_one' };

test('grants for the id of each resource are accepted', async () => {
  expect(await statusAndDetail(scope, ['identity.id_one.read_identity', 'api.api_one.read_key'])).toEqual([
    200,
    undefined,
  ]);
  expect(await statusAndDetail(scope, ['identity.*.read_identity', 'api.*.read_key'])).toEqual([200, undefined]);
});

test('a grant for another id is refused, and the refusal names the id of that resource', async () => {
  expect(await statusAndDetail(scope, ['identity.id_one.read_identity', 'api.api_two.read_key'])).toEqual([
    403,
    'The root key lacks api.*.read_key or api.api_one.read_key.',
  ]);
  expect(await statusAndDetail(scope, ['api.api_one.read_key'])).toEqual([
    403,
    'The root key lacks identity.*.read_identity or identity.id_one.read_identity.',
  ]);
});

test('a resource without an id in the scope needs a grant for all ids', async () => {
  const partial = { identity: 'id_one' };
  expect(await statusAndDetail(partial, ['identity.id_one.read_identity', 'api.api_one.read_key'])).toEqual([
    403,
    'The root key lacks api.*.read_key.',
  ]);
  expect(await statusAndDetail(partial, ['identity.id_one.read_identity', 'api.*.read_key'])).toEqual([200, undefined]);
});
