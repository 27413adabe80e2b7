import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Cursor, Fields, Identity, PageSize, Search } from '../schemas.ts';

export const listIdentities = manages({
  name: 'identities.listIdentities',
  summary: 'List identities in order of creation, optionally those whose id or externalId contains a string.',
  input: Fields({
    limit: Type.Optional(PageSize(100)),
    cursor: Type.Optional(Cursor),
    search: Type.Optional(Search),
  }),
  output: Type.Array(Identity),
  needs: { identity: ['read_identity'] },
  readsMuch: true,
  scope: () => '*',
  list: () => 'identities',
  listedIds: 'id',

  handle: ({ limit = 100, search }, { store, caller, after }) =>
    store.identities.list(caller.workspaceId, { after, count: limit, search }),
});
