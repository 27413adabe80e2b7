import Type from 'typebox';
import { createKeyString, digestOf } from '../../domain/keyString.ts';
import { dayMs, timeMax } from '../../domain/time.ts';
import { ApiError, notFound } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { invalid, requireData } from '../rules.ts';
import { Fields, Int, KeyId, OneOf, out } from '../schemas.ts';
import { creditsElsewhere, ofKey } from './keyById.ts';
import { movedCreditsSince } from './keyFields.ts';

/** Ten years. A time is longer. */
const expirationMax = 3_653 * dayMs;

export const Expiration = Int(
  [0, timeMax],
  'Milliseconds until the old key expires, at most ten years; 0 expires it immediately. Never extends an earlier expiry.',
);

export function checkExpiration(expiration: number) {
  if (expiration <= expirationMax) return;
  throw invalid(
    'body.expiration',
    'is more than ten years; it is a duration in milliseconds, not a time',
    'Send the milliseconds from now until the old key expires, such as 3600000 for an hour.',
  );
}

export const rerollKey = manages({
  name: 'keys.rerollKey',
  summary: 'Replace a key: create one with a new string and the same configuration, and let the old key expire.',
  input: Fields({
    keyId: KeyId,
    expiration: Expiration,
    credits: Type.Optional(
      OneOf(
        ['copy', 'move'],
        'Balance and refill of the key. `copy`: the new key has the same, so both can be spent. `move`: only the new key has them, and the old key is charged to them until it expires.',
        'copy',
      ),
    ),
  }),
  output: Type.Object({
    keyId: out.text('Id of the new key.'),
    key: out.text('The key string. It is not stored.'),
  }),
  errors: ['key_not_found', 'precondition_failed', 'too_many_records'],
  needs: { api: ['create_key'] },
  ...ofKey,
  check: ({ expiration }) => checkExpiration(expiration),

  async handle({ keyId, expiration, credits = 'copy' }, { store, caller, actor }, { key: old, byteLength }) {
    if (credits === 'move' && old.credits) requireData(store, movedCreditsSince, 'credits: move');
    const { key, start } = createKeyString({ prefix: old.prefix, byteLength });
    const request = { keyId, digest: digestOf(key), start, expiresIn: expiration, credits };
    const result = await store.keys.reroll(caller.workspaceId, request, actor);
    if (!('refused' in result)) return { keyId: result.keyId, key };
    switch (result.refused) {
      case 'draws':
        throw creditsElsewhere(result.name);
      case 'too_many_drawers':
        throw new ApiError(
          'precondition_failed',
          'Too many keys are charged to the credits of this key: let one of the keys that it replaced expire, or delete it.',
        );
      default:
        throw notFound('key');
    }
  },
});
