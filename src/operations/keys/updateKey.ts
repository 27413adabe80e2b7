import Type from 'typebox';
import { manages } from '../../operation.ts';
import type { KeyChanges } from '../../records/keys.ts';
import {
  checkMilliseconds,
  checkOneOfRatelimits,
  checkSlugs,
  invalid,
  limitRefused,
  metaText,
  refusalError,
  requireLimits,
} from '../rules.ts';
import { Empty, Fields, KeyId, RatelimitChange } from '../schemas.ts';
import { creditsElsewhere, ofKey } from './keyById.ts';
import { changedKeyFields, checkKeyFields, keyFieldErrors, requireKeyFields } from './keyFields.ts';

export const updateKey = manages({
  name: 'keys.updateKey',
  summary: 'Update a key. Omitted fields are unchanged; null removes a value.',
  input: Fields({ keyId: KeyId, ...changedKeyFields, ratelimit: Type.Optional(RatelimitChange) }),
  output: Empty,
  errors: ['key_not_found', ...keyFieldErrors],
  needs: { api: ['update_key'] },
  check({ keyId: _keyId, ...fields }, context) {
    checkOneOfRatelimits(fields);
    checkMilliseconds({ expires: fields.expires });
    checkKeyFields(fields, 'body');
    metaText(fields.meta, context, 'meta');
  },
  ...ofKey,

  async handle({ keyId, meta, credits, ...unchanged }, context) {
    await checkSlugs(unchanged.permissions, context);
    const { store, caller, actor } = context;
    requireKeyFields(unchanged, store);
    requireLimits(unchanged, store);
    const text = metaText(meta, context, 'meta');
    const changes: KeyChanges = {
      // A field that the store lacks does not compile.
      ...(unchanged satisfies Pick<KeyChanges, keyof typeof unchanged>),
      credits,
      meta: meta && text === undefined ? null : text,
    };
    const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
    const result = await store.keys.update(caller.workspaceId, keyId, changes, mayCreatePermissions, actor);
    if (!result) return {};
    const { refused, name } = result;
    switch (refused) {
      case 'new_limit':
      case 'too_many_limits':
      case 'slots_limit':
      case 'slots_duration':
      case 'ended':
      case 'too_late':
      case 'type_of_former':
        throw limitRefused(refused, unchanged, name);
      case 'refill_unlimited':
        throw invalid(
          'body.credits.refill',
          'needs a balance: an unlimited key has nothing to refill',
          'Set remaining as well.',
        );
      case 'draws':
        throw creditsElsewhere(name);
      default:
        throw refusalError({ refused, name });
    }
  },
});
