import Type from 'typebox';
import { manages } from '../../operation.ts';
import { ExpiresAt, Fields, KeyId, may, OneOf, out, pageFields, Units } from '../schemas.ts';
import { ofKey } from './keyById.ts';

export const listHolds = manages({
  name: 'keys.listHolds',
  summary: 'List the open holds of a key, the first to expire first.',
  input: Fields({ keyId: KeyId, ...pageFields }),
  output: out.list({
    id: out.text('Id of the hold.'),
    createdAt: out.int('Time of the verification in Unix milliseconds.'),
    expires: ExpiresAt,
    onExpiry: OneOf(['release', 'charge'], 'What happens at its expiry.'),
    credits: may.int('Credits that it holds. Absent for an unlimited key.'),
    ratelimits: Units('Name of the limit.', 'Units that it holds.', 'Limits of which it holds units.'),
    slots: Type.Optional(
      Units(
        'Name of the concurrency limit.',
        'Slots that it takes.',
        'Concurrency limits of which it takes slots. Absent for none.',
      ),
    ),
  }),
  errors: ['key_not_found'],
  needs: { api: ['read_key'] },
  ...ofKey,
  list: ({ keyId }) => `holds-${keyId}`,
  listedIds: 'hold',

  handle: ({ keyId, limit = 100 }, { store, caller, after }) =>
    store.holds.list(caller.workspaceId, { keyId, after, count: limit }),
});
