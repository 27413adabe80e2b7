import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Empty, Fields, Nullable } from '../schemas.ts';
import { checkMe, settings } from './settings.ts';

export const updateSettings = manages({
  name: 'workspace.updateSettings',
  summary: 'Change the settings of the workspace. Omitted ones are unchanged.',
  input: Fields({
    name: Type.Optional(settings.name),
    protectApis: Type.Optional(settings.protectApis),
    me: Type.Optional(Nullable(settings.me)),
  }),
  output: Empty,
  errors: ['precondition_failed'],
  needs: { workspace: ['update_settings'] },
  check: ({ me }) => checkMe(me),

  async handle(changes, { store, caller, actor }) {
    await store.workspaces.update(caller.workspaceId, changes, actor);
    return {};
  },
});
