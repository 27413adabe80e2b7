import Type from 'typebox';
import { manages } from '../../operation.ts';
import { listOf } from '../lists.ts';
import { checkMilliseconds } from '../rules.ts';
import { DescribedFields, Fields, may, Order, out, pageFields, RootKeyId, Text, UnixTime } from '../schemas.ts';

const Name = (description: string) => Type.Optional(Text(1, 255, description));

export const listEvents = manages({
  name: 'audit.listEvents',
  summary:
    'List the audit events of the workspace: each change, its time, who made it, and the values before and after.',
  input: Fields({
    ...pageFields,
    order: Type.Optional(Order),
    resource: Type.Optional(
      DescribedFields('Events that changed this resource.', {
        type: Name('Type of the changed resource, such as `key`.'),
        id: Name('Id of the changed resource.'),
      }),
    ),
    rootKeyId: Type.Optional(RootKeyId),
    operation: Name('Name of the operation, such as `keys.updateKey`.'),
    start: Type.Optional(UnixTime('Start of the period in Unix milliseconds.')),
    end: Type.Optional(UnixTime('End of the period in Unix milliseconds, exclusive.')),
  }),
  output: out.list({
    id: out.text('Id of the event.'),
    time: out.int('Time of the change in Unix milliseconds.'),
    rootKeyId: out.text('`cli` for a change by the command line.'),
    rootKeyName: may.text('Present name of the root key. Absent if it has none or was deleted.'),
    operation: out.text(
      'Name of the operation. `cli.import` is an import by the command line, `cli.move` a move by an earlier release.',
    ),
    resource: out.object('The changed resource.', {
      type: out.text('Type of the resource.'),
      id: out.text(
        'Id of the resource; of keys.changeKeys that of the first key. A filter by `id` finds all its keys.',
      ),
    }),
    requestId: out.text('Id of the request that made the change.'),
    address: may.text('IP address of the caller.'),
    changes: may.objects(
      'Changed fields with their values before and after as text, cut after 200 bytes. Without values beyond 2,000 bytes in all.',
      {
        field: out.text('Name of the field.'),
        before: may.text('Value before, as text.'),
        after: may.text('Value after, as text.'),
        keyIds: may.texts('Of keys.changeKeys: the keys that had the value before.'),
      },
    ),
  }),
  needs: { audit: ['read_audit'] },
  check: ({ start, end }) => checkMilliseconds({ start, end }),
  list: ({ order = 'asc', ...filter }) => listOf(`audit-${order}`, filter),
  listedIds: 'stream',

  handle: ({ limit = 100, cursor: _after, order = 'asc', ...filter }, { store, caller, after }) =>
    store.audit.list(caller.workspaceId, { ...filter, after, count: limit, order }),
});
