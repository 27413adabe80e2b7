import Type from 'typebox';
import { print } from '../../domain/json.ts';
import { decides, Printed } from '../../operation.ts';
import { ExpiresAt, Fields, out } from '../schemas.ts';
import { HoldId, HoldTtl } from './holdFields.ts';

export const extendHold = decides({
  name: 'keys.extendHold',
  summary: 'Set another expiry of an open hold, from now on. A hold lasts for 30 days at most.',
  description:
    'A hold that takes slots of concurrency limits expires at the latest after the shortest `duration` of these, counted from now. The response has the expiry.',
  input: Fields({ holdId: HoldId, ttl: HoldTtl }),
  output: Type.Object({
    keyId: out.text('Id of the key.'),
    hold: out.object('The hold.', { id: out.text('Id of the hold.'), expires: ExpiresAt }),
  }),
  errors: ['hold_not_found', 'conflict'],
  needs: { api: ['verify_key'] },

  prepare: ({ holdId, ttl }, rootKey, store) =>
    new Printed(
      store.decide.holds.prepareChange(rootKey, holdId, { action: 'extend', ttlMs: ttl }),
      ({ keyId, expires }) => print({ keyId, hold: { id: holdId, expires } }),
    ),
});
