import { decides } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { changedHoldOutput, endHold, HoldId } from './holdFields.ts';

export const releaseHold = decides({
  name: 'keys.releaseHold',
  summary: 'End a hold, and give everything back. Repeating it changes nothing.',
  input: Fields({ holdId: HoldId }),
  output: changedHoldOutput,
  errors: ['hold_not_found', 'conflict'],
  needs: { api: ['verify_key'] },

  prepare: ({ holdId }, rootKey, store) => endHold(store, rootKey, holdId, { action: 'release' }),
});
