import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Fields, out } from '../schemas.ts';

export const whoamiRootKey = manages({
  name: 'rootKeys.whoami',
  summary: 'Get the root key of this call: its workspace and its grants.',
  input: Fields({}),
  output: Type.Object({
    rootKeyId: out.text('Id of the root key.'),
    workspaceId: out.text('Id of its workspace.'),
    workspaceName: out.text('Name of its workspace.'),
    permissions: Type.Array(Type.String(), { description: 'Its grants.' }),
  }),
  needs: {},
  scope: () => undefined,

  async handle(_input, { store, caller: { workspaceId, rootKeyId, grants } }) {
    const workspaceName = await store.workspaces.nameOf(workspaceId);
    return { rootKeyId, workspaceId, workspaceName, permissions: grants.list };
  },
});
