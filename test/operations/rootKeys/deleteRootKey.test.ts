import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, createWorkspace, clock } = harness();

const create = (permissions: string[]) => ok('rootKeys.createRootKey', { permissions });

describe('rootKeys.deleteRootKey: 200', () => {
  test('is unknown from the next request on, also to keys.verifyKey', async () => {
    const { key } = await createKey();
    const root = await create(['*']);
    const limit = { namespace: 'email', identifier: 'a', limit: 10, duration: 60_000 };
    expect((await call('keys.verifyKey', { key }, root.key)).status).toBe(200);
    expect((await call('ratelimits.limit', limit, root.key)).status).toBe(200);
    expect(await ok('rootKeys.deleteRootKey', { rootKeyId: root.rootKeyId })).toEqual({});
    for (const answer of [
      await call('keys.verifyKey', { key }, root.key),
      await call('ratelimits.limit', limit, root.key),
      await call('rootKeys.listRootKeys', {}, root.key),
    ]) {
      expect(answer).toMatchObject({ status: 401, code: 'unauthorized' });
    }
    expect((await ok('rootKeys.listRootKeys', {})).map(({ rootKeyId }) => rootKeyId)).not.toContain(root.rootKeyId);
  });

  test('a root key may delete itself', async () => {
    const root = await create(['root_key.*.delete_root_key']);
    expect((await call('rootKeys.deleteRootKey', { rootKeyId: root.rootKeyId }, root.key)).status).toBe(200);
    expect((await call('rootKeys.deleteRootKey', { rootKeyId: root.rootKeyId }, root.key)).status).toBe(401);
  });
});

test('rootKeys.deleteRootKey: 403 for one that holds a grant which the caller lacks', async () => {
  const deleter = 'root_key.*.delete_root_key';
  const stronger = await create(['api.*.read_api', 'api.*.read_key']);
  const answer = await call('rootKeys.deleteRootKey', { rootKeyId: stronger.rootKeyId }, [deleter, 'api.*.read_api']);
  expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
  expect((await call('apis.getApi', { apiId: 'api_none' }, stronger.key)).status).toBe(404);
  const equal = [deleter, 'api.*.read_api', 'api.*.read_key'];
  expect((await call('rootKeys.deleteRootKey', { rootKeyId: stronger.rootKeyId }, equal)).status).toBe(200);
});

describe('rootKeys.deleteRootKey: 412', () => {
  test('for the last root key with every permission and no expiry', async () => {
    const { rootKey } = await createWorkspace();
    const ends = { permissions: ['*'], expires: clock.now + 60_000 };
    const ending = (await call('rootKeys.createRootKey', ends, rootKey)).data;
    const [own] = (await call('rootKeys.listRootKeys', {}, rootKey)).data;
    const { rootKeyId } = own!;
    const refused = await call('rootKeys.deleteRootKey', { rootKeyId }, rootKey);
    expect(refused).toMatchObject({ status: 412, code: 'precondition_failed' });
    expect((await call('rootKeys.deleteRootKey', { rootKeyId: ending.rootKeyId }, rootKey)).status).toBe(200);

    const second = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
    expect((await call('rootKeys.deleteRootKey', { rootKeyId }, rootKey)).status).toBe(200);
    const last = { rootKeyId: second.rootKeyId };
    expect((await call('rootKeys.deleteRootKey', last, second.key)).status).toBe(412);
  });

  test('of two that delete each other concurrently, one stays', async () => {
    const { rootKey } = await createWorkspace();
    const second = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
    const [first] = (await call('rootKeys.listRootKeys', {}, rootKey)).data;
    const answers = await Promise.all([
      call('rootKeys.deleteRootKey', { rootKeyId: first!.rootKeyId }, second.key),
      call('rootKeys.deleteRootKey', { rootKeyId: second.rootKeyId }, rootKey),
    ]);
    // The one that was deleted first is unknown when its own request is processed.
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401]);
  });
});
