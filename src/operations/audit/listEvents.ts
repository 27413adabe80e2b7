import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Cursor, Fields, Order, PageSize } from '../schemas.ts';

export const listEvents = manages({
  name: 'audit.listEvents',
  summary: 'List the audit events of the workspace: each change, its time and the root key that made it.',
  input: Fields({
    limit: Type.Optional(PageSize(100)),
    cursor: Type.Optional(Cursor),
    order: Type.Optional(Order),
  }),
  output: Type.Array(
    Type.Object({
      id: Type.String(),
      time: Type.Integer(),
      rootKeyId: Type.String(),
      operation: Type.String(),
      resource: Type.Object({ type: Type.String(), id: Type.String() }),
      requestId: Type.String(),
    }),
  ),
  needs: { audit: ['read_audit'] },
  scope: () => '*',
  // A cursor is valid only for the order it came from.
  list: ({ order = 'asc' }) => `audit-${order}`,
  listedIds: 'stream',

  handle: ({ limit = 100, order = 'asc' }, { store, caller, after }) =>
    store.audit.list(caller.workspaceId, { after, count: limit, order: order as 'asc' | 'desc' }),
});
