import { print } from '../../domain/json.ts';
import { decides, Printed } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { changedHoldOf, changedHoldOutput, HoldId } from './holdFields.ts';

export const releaseHold = decides({
  name: 'keys.releaseHold',
  summary: 'End a hold, and give everything back. Repeating it changes nothing.',
  input: Fields({ holdId: HoldId }),
  output: changedHoldOutput,
  errors: ['hold_not_found', 'conflict'],
  needs: { api: ['verify_key'] },

  prepare: ({ holdId }, rootKey, store) =>
    new Printed(store.decide.holds.prepareChange(rootKey, holdId, { action: 'release' }), (changed) =>
      print(changedHoldOf(changed)),
    ),
});
