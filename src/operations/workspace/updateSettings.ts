import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Empty, Fields } from '../schemas.ts';
import { settings } from './settings.ts';

export const updateSettings = manages({
  name: 'workspace.updateSettings',
  summary: 'Change the settings of the workspace. Omitted ones are unchanged.',
  input: Fields({ name: Type.Optional(settings.name), protectApis: Type.Optional(settings.protectApis) }),
  output: Empty,
  needs: { workspace: ['update_settings'] },

  async handle(changes, { store, caller, actor }) {
    await store.workspaces.update(caller.workspaceId, changes, actor);
    return {};
  },
});
