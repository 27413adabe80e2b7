import { manages } from '../../operation.ts';
import { changedCredits, checkCreditChange, creditChange } from '../creditChange.ts';
import { CreditsOrUnlimited, KeyId } from '../schemas.ts';
import { creditsElsewhere, ofKey } from './keyById.ts';

export const updateCredits = manages({
  name: 'keys.updateCredits',
  summary: 'Set, increase or decrease the credits of a key. Setting null makes it unlimited.',
  input: creditChange('keyId', KeyId, { without: 'An unlimited key', removed: 'unlimited' }),
  output: CreditsOrUnlimited,
  errors: ['key_not_found', 'precondition_failed'],
  needs: { api: ['update_key'] },
  check: (input) => checkCreditChange(input, 'Use null to make the key unlimited.'),
  ...ofKey,

  async handle({ keyId, operation, value }, { store, caller, actor }) {
    const change = { keyId, operation, value: value ?? undefined };
    const result = await store.keys.updateCredits(caller.workspaceId, change, actor);
    if ('refused' in result && result.refused === 'draws') throw creditsElsewhere(result.name);
    return changedCredits('key', result, operation, 'an unlimited key');
  },
});
