import Type from 'typebox';
import { print } from '../../domain/json.ts';
import { decides, Printed } from '../../operation.ts';
import { ExpiresAt, Fields } from '../schemas.ts';
import { HoldId, HoldTtl } from './holdFields.ts';

export const extendHold = decides({
  name: 'keys.extendHold',
  summary: 'Set another expiry of an open hold, from now on. A hold lasts for 30 days at most.',
  description:
    'A hold that takes slots of concurrency limits expires at the latest after the shortest `duration` of these, counted from now. The response has the expiry.',
  input: Fields({ holdId: HoldId, ttl: HoldTtl }),
  output: Type.Object({
    keyId: Type.String({ description: 'Id of the key.' }),
    hold: Type.Object(
      { id: Type.String({ description: 'Id of the hold.' }), expires: ExpiresAt },
      { description: 'The hold.' },
    ),
  }),
  errors: ['hold_not_found', 'conflict'],
  needs: { api: ['verify_key'] },

  prepare: ({ holdId, ttl }, rootKey, store) =>
    new Printed(
      store.decide.holds.prepareChange(rootKey, holdId, { action: 'extend', ttlMs: ttl }),
      ({ keyId, expires }) => print({ keyId, hold: { id: holdId, expires } }),
    ),
});
