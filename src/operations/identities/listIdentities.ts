import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Fields, ListedIdentity, searchFields } from '../schemas.ts';

export const listIdentities = manages({
  name: 'identities.listIdentities',
  summary: 'List identities in order of creation, optionally those whose id or externalId contains a string.',
  input: Fields(searchFields),
  output: Type.Array(ListedIdentity),
  needs: { identity: ['read_identity'] },
  readsMuch: true,
  scope: () => '*',
  list: () => 'identities',
  listedIds: 'identity',

  handle: ({ limit = 100, search }, { store, caller, after }) =>
    store.identities.list(caller.workspaceId, { after, count: limit, search }),
});
