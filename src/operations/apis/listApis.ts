import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Api, Fields, OptionalFlag, Order, searchFields } from '../schemas.ts';

export const listApis = manages({
  name: 'apis.listApis',
  summary: 'List APIs, or deleted ones, in order of creation, optionally those whose id or name contains a string.',
  input: Fields({
    ...searchFields,
    order: Type.Optional(Order),
    deleted: OptionalFlag('With true only deleted APIs that can be restored.'),
  }),
  output: Type.Array(Api),
  needs: { api: ['read_api'] },
  // A cursor is valid only for the list and order it came from.
  list: ({ order = 'asc', deleted }) => `${deleted ? 'deleted-' : ''}apis-${order}`,
  listedIds: 'api',

  handle: ({ limit = 100, order = 'asc', search, deleted }, { store, caller, after }) =>
    store.apis.list(caller.workspaceId, { after, count: limit, order, search, deleted }),
});
