import { manages } from '../../operation.ts';
import { changedCredits, changeOf, checkCreditChange, creditChange } from '../creditChange.ts';
import { CreditsOrUnlimited, KeyId } from '../schemas.ts';
import { loadKey, scopeOfKey } from './keyById.ts';

export const updateCredits = manages({
  name: 'keys.updateCredits',
  summary: 'Set, increase or decrease the credits of a key. Setting null makes it unlimited.',
  input: creditChange('keyId', KeyId, { without: 'An unlimited key', removed: 'unlimited' }),
  output: CreditsOrUnlimited,
  errors: ['key_not_found'],
  needs: { api: ['update_key'] },
  check: (input) => checkCreditChange(input, 'Use null to make the key unlimited.'),
  load: loadKey,
  scope: scopeOfKey,

  async handle({ keyId, operation, value }, { store, caller, actor }) {
    const change = { keyId, ...changeOf(operation, value) };
    const result = await store.keys.updateCredits(caller.workspaceId, change, actor);
    return changedCredits('key', result, operation, 'an unlimited key');
  },
});
