import { manages } from '../../operation.ts';
import { changedCredits, checkCreditChange, creditChange } from '../creditChange.ts';
import { requireData } from '../rules.ts';
import { CreditsOrUnlimited, IdentityRef } from '../schemas.ts';
import { identities } from './identityRecords.ts';
import { sharedCreditsSince } from './sharedCredits.ts';

export const updateCredits = manages({
  name: 'identities.updateCredits',
  summary: 'Set, increase or decrease the credits that all keys of an identity share. Setting null removes them.',
  input: creditChange('identity', IdentityRef, {
    without: 'An identity without credits',
    removed: 'the identity has no credits any more',
  }),
  output: CreditsOrUnlimited,
  errors: ['identity_not_found', 'precondition_failed'],
  needs: { identity: ['update_identity'] },
  check: (input) => checkCreditChange(input, 'Use null to remove the credits.'),
  ...identities.byReference,

  async handle({ operation, value }, { store, caller, actor }, { id }) {
    const change = { identity: id, operation, value: value ?? undefined };
    if (typeof value === 'number') requireData(store, sharedCreditsSince, 'credits of an identity');
    const result = await store.identities.updateCredits(caller.workspaceId, change, actor);
    return changedCredits('identity', result, operation, 'an identity without credits');
  },
});
