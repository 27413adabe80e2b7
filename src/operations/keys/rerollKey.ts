import Type from 'typebox';
import { createKeyString, digestOf } from '../../domain/keyString.ts';
import { dayMs, timeMax } from '../../domain/time.ts';
import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { invalid } from '../rules.ts';
import { Fields, Int, KeyId } from '../schemas.ts';
import { loadKey, scopeOfKey } from './keyById.ts';

/** Ten years. A time is longer. */
const expirationMax = 3_653 * dayMs;

export const rerollKey = manages({
  name: 'keys.rerollKey',
  summary: 'Replace a key: create one with a new string and the same configuration, and let the old key expire.',
  input: Fields({
    keyId: KeyId,
    expiration: Int({
      minimum: 0,
      maximum: timeMax,
      description:
        'Milliseconds until the old key expires, at most ten years; 0 expires it immediately. Never extends an earlier expiry.',
    }),
  }),
  output: Type.Object({
    keyId: Type.String({ description: 'Id of the new key.' }),
    key: Type.String({ description: 'The key string. It is not stored.' }),
  }),
  errors: ['key_not_found', 'too_many_records'],
  needs: { api: ['create_key'] },
  load: loadKey,
  scope: scopeOfKey,
  check({ expiration }) {
    if (expiration <= expirationMax) return;
    throw invalid(
      'body.expiration',
      'is more than ten years; it is a duration in milliseconds, not a time',
      'Send the milliseconds from now until the old key expires, such as 3600000 for an hour.',
    );
  },

  async handle({ keyId, expiration }, { store, caller, actor }, { key: old, byteLength }) {
    const { key, start } = createKeyString({ prefix: old.prefix, byteLength });
    const request = { keyId, digest: digestOf(key), start, expiresInMs: expiration };
    const newKeyId = existing(await store.keys.reroll(caller.workspaceId, request, actor), 'key');
    return { keyId: newKeyId, key };
  },
});
