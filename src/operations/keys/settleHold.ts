import Type from 'typebox';
import { decides } from '../../operation.ts';
import { checkNamesOnce } from '../rules.ts';
import { costMax, DescribedFields, Fields, Int, optional, Text } from '../schemas.ts';
import { changedHoldOutput, endHold, HoldId } from './holdFields.ts';

export const settleHold = decides({
  name: 'keys.settleHold',
  summary: 'End a hold: charge the actual amounts, and give the rest back.',
  description:
    'What is not stated is charged as it was held; amounts above the hold are charged, too, also beyond the balance. A settlement that is repeated with the same amounts responds as the first one and charges nothing. After the hold was given back, at its expiry or by `keys.releaseHold`, it is accepted for 24 hours, and `late` is true.',
  input: Fields({
    holdId: HoldId,
    ...optional({
      credits: DescribedFields('Actual credits.', { cost: Int([0, costMax], 'Credits to charge.') }),
      ratelimits: Type.Array(
        Fields({
          name: Text(1, 128, 'Name of a limit that the hold charged.'),
          cost: Int(0, 'Units to charge.'),
        }),
        { maxItems: 50, description: 'Actual units, each of another name.' },
      ),
    }),
  }),
  output: changedHoldOutput,
  errors: ['hold_not_found', 'conflict', 'precondition_failed'],
  needs: { api: ['verify_key'] },

  prepare({ holdId, credits, ratelimits }, rootKey, store) {
    checkNamesOnce(ratelimits);
    return endHold(store, rootKey, holdId, { action: 'settle', credits: credits?.cost, ratelimits });
  },
});
