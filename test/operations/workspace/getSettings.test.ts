import { expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, clock, createWorkspace } = harness();

test('workspace.getSettings: a new workspace has its name and protects nothing', async () => {
  const { rootKey, workspaceId } = await createWorkspace();
  expect((await call('workspace.getSettings', {}, rootKey)).data).toEqual({
    workspaceId,
    name: 'test',
    createdAt: clock.now,
    protectApis: false,
  });
});
