import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Empty, Fields, Nullable } from '../schemas.ts';
import { checkSettings, settings } from './settings.ts';

export const updateSettings = manages({
  name: 'workspace.updateSettings',
  summary: 'Change the settings of the workspace. Omitted ones are unchanged, and those that are null are removed.',
  input: Fields({
    name: Type.Optional(settings.name),
    protectApis: Type.Optional(settings.protectApis),
    me: Type.Optional(Nullable(settings.me)),
    prices: Type.Optional(Nullable(settings.prices)),
  }),
  output: Empty,
  errors: ['precondition_failed'],
  needs: { workspace: ['update_settings'] },
  check: checkSettings,

  async handle(changes, { store, caller, actor }) {
    await store.workspaces.update(caller.workspaceId, changes, actor);
    return {};
  },
});
