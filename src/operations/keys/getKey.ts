import Type from 'typebox';
import { manages } from '../../operation.ts';
import { refusePlaintext } from '../rules.ts';
import { Fields, KeyId, Plaintext } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { KeyRecord } from './keyFields.ts';

export const getKey = manages({
  name: 'keys.getKey',
  summary: 'Get a key by its id.',
  input: Fields({
    keyId: KeyId,
    decrypt: Type.Optional(Plaintext),
  }),
  output: KeyRecord,
  errors: ['key_not_found'],
  needs: { api: ['read_key'] },
  check: ({ decrypt }) => refusePlaintext({ decrypt }),
  ...ofKey,

  handle: async (_input, _context, { key }) => key,
});
