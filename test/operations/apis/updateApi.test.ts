import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const { call, ok, createKey } = harness();

describe('apis.updateApi: 200', () => {
  test('it has the new name everywhere, and its keys and the place in the list stay', async () => {
    const { apiId, key, keyId } = await createKey();
    await ok('apis.createApi', { name: 'later' });
    const before = await ok('apis.listApis', {});
    expect(await call('apis.updateApi', { apiId, name: 'payments \u{1f511}' })).toMatchObject({
      status: 200,
      data: {},
    });
    expect(await ok('apis.getApi', { apiId })).toMatchObject({ id: apiId, name: 'payments \u{1f511}', keyCount: 1 });
    expect(await ok('apis.listApis', {})).toEqual(
      before.map((api) => (api.id === apiId ? { ...api, name: 'payments \u{1f511}' } : api)),
    );
    expect(await ok('apis.listApis', { search: 'PAYMENTS' })).toMatchObject([{ id: apiId }]);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true, keyId });
  });

  test('a protected API is deleted by its new name', async () => {
    const { apiId } = await createKey();
    await ok('workspace.updateSettings', { protectApis: true });
    await ok('apis.updateApi', { apiId, name: 'renamed' });
    const refused = await call('apis.deleteApi', { apiId, confirm: 'payments' });
    expect(refused).toMatchObject({ status: 412, code: 'precondition_failed' });
    expect(refused.error.detail).toContain('"renamed"');
    expect(await call('apis.deleteApi', { apiId, confirm: 'renamed' })).toMatchObject({ status: 200 });
    await ok('workspace.updateSettings', { protectApis: false });
  });

  test('the change has both names', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'before' });
    await ok('apis.updateApi', { apiId, name: 'after' });
    const [event] = await ok('audit.listEvents', { operation: 'apis.updateApi', resource: { type: 'api', id: apiId } });
    expect(event!.changes).toEqual([{ field: 'name', before: 'before', after: 'after' }]);
  });
});

test.each(['ab', '', 'a'.repeat(257)])('apis.updateApi: 400: the name %j, and nothing changes', async (name) => {
  const { apiId } = await ok('apis.createApi', { name: 'stays' });
  expect(await call('apis.updateApi', { apiId, name })).toMatchObject(onlyInvalidAt('body.name'));
  expect((await ok('apis.getApi', { apiId })).name).toBe('stays');
});
