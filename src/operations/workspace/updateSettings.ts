import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Empty, Fields, Nullable } from '../schemas.ts';
import { checkPrices, PriceFields, settings } from './settings.ts';

export const updateSettings = manages({
  name: 'workspace.updateSettings',
  summary: 'Change the settings of the workspace. Omitted ones are unchanged; prices that are null are removed.',
  input: Fields({
    name: Type.Optional(settings.name),
    protectApis: Type.Optional(settings.protectApis),
    prices: Type.Optional(Nullable(PriceFields)),
  }),
  output: Empty,
  needs: { workspace: ['update_settings'] },
  check: ({ prices }) => checkPrices(prices),

  async handle(changes, { store, caller, actor }) {
    await store.workspaces.update(caller.workspaceId, changes, actor);
    return {};
  },
});
