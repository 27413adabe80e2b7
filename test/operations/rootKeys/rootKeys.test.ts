// createKey, listKeys, updateKey and deleteKey: the operations on root keys by the names of Unkey's SDKs.

import { expect, test } from 'vitest';
import { harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const { call, ok, clock } = harness();

test('what createKey makes is in both lists; listKeys has every member', async () => {
  const permissions = ['apis.*.read_api', 'api.*.read_key'];
  const expires = clock.now + hourMs;
  const named = await ok('rootKeys.createKey', { name: 'named', permissions, expires });
  const plain = await ok('rootKeys.createKey', { permissions, name: null, expires: null } as never);
  const found = await ok('rootKeys.listKeys', { limit: 100 });
  const rest = { permissions: ['api.*.read_api', 'api.*.read_key'], enabled: true, end: '', createdAt: clock.now };
  const start = expect.stringMatching(/^root_/);
  expect(found.slice(-2)).toEqual([
    { keyId: named.keyId, name: 'named', start, expires, lastUsedAt: 0, ...rest },
    { keyId: plain.keyId, name: null, start, expires: null, lastUsedAt: 0, ...rest },
  ]);
  expect((await ok('rootKeys.listRootKeys', {})).map(({ rootKeyId }) => rootKeyId)).toEqual(
    found.map(({ keyId }) => keyId),
  );
  const first = await call('rootKeys.listKeys', { limit: 1 });
  const { cursor } = first.pagination as { cursor: string };
  expect((await ok('rootKeys.listKeys', { limit: 1, cursor }))[0]).toEqual(found[1]);
});

test('updateKey and deleteKey change the root key', async () => {
  const { keyId, key } = await ok('rootKeys.createKey', { name: 'before', permissions: ['api.*.create_api'] });
  const find = async () => (await ok('rootKeys.listKeys', {})).find((rootKey) => rootKey.keyId === keyId);
  expect(await ok('rootKeys.updateKey', { keyId, name: null, permissions: ['api.*.read_api'] })).toEqual({});
  expect(await find()).toMatchObject({ name: null, permissions: ['api.*.read_api'] });
  await ok('rootKeys.updateKey', { keyId, enabled: false });
  expect(await call('apis.createApi', { name: 'api' }, key)).toMatchObject({ status: 403, code: 'root_key_disabled' });
  expect(await ok('rootKeys.deleteKey', { keyId })).toEqual({});
  expect(await find()).toBeUndefined();
  expect(await call('rootKeys.deleteKey', { keyId })).toMatchObject({ status: 404, code: 'root_key_not_found' });
});

test('the rules are those of the other names', async () => {
  const wrong = { permissions: ['api.*.fly'] };
  expect(await call('rootKeys.createKey', wrong)).toMatchObject(invalidAt('body.permissions[0]'));
  expect(await call('rootKeys.updateKey', { keyId: 'root_1', ...wrong })).toMatchObject(
    invalidAt('body.permissions[0]'),
  );
  const more = { permissions: ['*'] };
  expect(await call('rootKeys.createKey', more, ['root_key.*.create_root_key'])).toMatchObject({
    status: 403,
    code: 'insufficient_permissions',
  });
  const { keyId } = await ok('rootKeys.createKey', more);
  for (const [name, input, grant] of [
    ['rootKeys.updateKey', { keyId, name: 'taken' }, 'root_key.*.update_root_key'],
    ['rootKeys.deleteKey', { keyId }, 'root_key.*.delete_root_key'],
  ] as const)
    expect(await call(name, input, [grant])).toMatchObject({ status: 403, code: 'insufficient_permissions' });
});
