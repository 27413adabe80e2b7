import { expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, createWorkspace } = harness();

test('rootKeys.whoami: the root key of the call, its workspace and its grants', async () => {
  const { rootKey, workspaceId } = await createWorkspace();
  const { data } = await call('rootKeys.whoami', {}, rootKey);
  expect(data).toEqual({
    rootKeyId: expect.stringMatching(/^root_\w{16}$/),
    workspaceId,
    workspaceName: 'test',
    permissions: ['*'],
  });
  const permissions = ['api.api_a.read_key', 'audit.*.read_audit'];
  const made = (await call('rootKeys.createRootKey', { permissions }, rootKey)).data;
  expect((await call('rootKeys.whoami', {}, made.key)).data).toEqual({
    ...data,
    rootKeyId: made.rootKeyId,
    permissions,
  });
});
