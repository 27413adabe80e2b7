import Type from 'typebox';
import { manages } from '../../operation.ts';
import type { Order as OrderName } from '../../records/pages.ts';
import { listOf } from '../lists.ts';
import { checkMilliseconds } from '../rules.ts';
import { Fields, OptionalText, Order, pageFields, RootKeyId, UnixTime } from '../schemas.ts';

const Name = (description: string) => Type.Optional(Type.String({ minLength: 1, maxLength: 255, description }));

export const listEvents = manages({
  name: 'audit.listEvents',
  summary:
    'List the audit events of the workspace: each change, its time, who made it, and the values before and after.',
  input: Fields({
    ...pageFields,
    order: Type.Optional(Order),
    resource: Type.Optional(
      Fields(
        {
          type: Name('Type of the changed resource, such as `key`.'),
          id: Name('Id of the changed resource.'),
        },
        { description: 'Events that changed this resource.' },
      ),
    ),
    rootKeyId: Type.Optional(RootKeyId),
    operation: Name('Name of the operation, such as `keys.updateKey`.'),
    start: Type.Optional(UnixTime('Start of the period in Unix milliseconds.')),
    end: Type.Optional(UnixTime('End of the period in Unix milliseconds, exclusive.')),
  }),
  output: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the event.' }),
      time: Type.Integer({ description: 'Time of the change in Unix milliseconds.' }),
      rootKeyId: Type.String({ description: '`cli` for a change by the command line.' }),
      rootKeyName: OptionalText('Present name of the root key. Absent if it has none or was deleted.'),
      operation: Type.String({
        description: 'Name of the operation. `cli.import` and `cli.move` are imports and moves by the command line.',
      }),
      resource: Type.Object(
        {
          type: Type.String({ description: 'Type of the resource.' }),
          id: Type.String({ description: 'Id of the resource.' }),
        },
        { description: 'The changed resource.' },
      ),
      requestId: Type.String({ description: 'Id of the request that made the change.' }),
      address: OptionalText('IP address of the caller.'),
      changes: Type.Optional(
        Type.Array(
          Type.Object({
            field: Type.String({ description: 'Name of the field.' }),
            before: OptionalText('Value before, as text.'),
            after: OptionalText('Value after, as text.'),
          }),
          {
            description:
              'Changed fields with their values before and after as text, cut after 200 bytes. Without values beyond 2,000 bytes in all.',
          },
        ),
      ),
    }),
  ),
  needs: { audit: ['read_audit'] },
  check: ({ start, end }) => checkMilliseconds({ start, end }),
  scope: () => '*',
  list: ({ order = 'asc', ...filter }) => listOf(`audit-${order}`, filter),
  listedIds: 'stream',

  handle: ({ limit = 100, cursor: _after, order = 'asc', ...filter }, { store, caller, after }) =>
    store.audit.list(caller.workspaceId, { ...filter, after, count: limit, order: order as OrderName }),
});
