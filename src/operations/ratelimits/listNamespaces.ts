import Type from 'typebox';
import { manages } from '../../operation.ts';
import { CreatedAt, Fields, Order, out, searchFields } from '../schemas.ts';

export const listNamespaces = manages({
  name: 'ratelimits.listNamespaces',
  alias: 'ratelimit.listNamespaces',
  summary: 'List namespaces in order of creation, optionally those whose id or name contains a string.',
  input: Fields({ ...searchFields, order: Type.Optional(Order) }),
  output: out.list({
    id: out.text('Id of the namespace (`rlns_…`).'),
    name: out.text('Name of the namespace.'),
    createdAt: CreatedAt,
    overrideCount: out.int('Number of its overrides.'),
  }),
  needs: { ratelimit: ['read_namespace'] },
  list: ({ order = 'asc' }) => `namespaces-${order}`,
  listedIds: 'namespace',

  handle: ({ limit = 100, order = 'asc', search }, { store, caller, after }) =>
    store.namespaces.list(caller.workspaceId, { after, count: limit, order, search }),
});
