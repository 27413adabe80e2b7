import Type from 'typebox';
import { manages } from '../../operation.ts';
import { CreatedAt, Fields, out } from '../schemas.ts';
import { settings } from './settings.ts';

export const getSettings = manages({
  name: 'workspace.getSettings',
  summary: 'Get the settings of the workspace.',
  input: Fields({}),
  output: Type.Object({
    workspaceId: out.text('Id of the workspace.'),
    createdAt: CreatedAt,
    ...settings,
    me: Type.Optional(settings.me),
    prices: Type.Optional(settings.prices),
  }),
  needs: { workspace: ['read_settings'] },

  handle: (_input, { store, caller }) => store.workspaces.settings(caller.workspaceId),
});
