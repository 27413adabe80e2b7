import { digestOf } from '../../domain/keyString.ts';
import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Fields, KeyString } from '../schemas.ts';
import { type FoundKey, scopeOfKey } from './keyById.ts';
import { KeyRecord } from './keyFields.ts';

export const whoami = manages({
  name: 'keys.whoami',
  summary: 'Get a key by its string. Charges nothing, and also finds disabled and expired keys.',
  input: Fields({ key: KeyString }),
  output: KeyRecord,
  errors: ['key_not_found'],
  needs: { api: ['read_key'] },
  async load({ key }, { store, caller }): Promise<FoundKey> {
    return existing(await store.keys.findByDigest(caller.workspaceId, digestOf(key)), 'key');
  },
  scope: scopeOfKey,
  refuseAs: 'key_not_found',

  handle: async (_input, _context, { key }) => key,
});
