import Type from 'typebox';
import { manages } from '../../operation.ts';
import { isLimitRefusal, type KeyChanges } from '../../records/keys.ts';
import {
  checkMilliseconds,
  checkOneOfRatelimits,
  checkSlugs,
  limitRefused,
  metaText,
  nothingToRefill,
  refusalError,
  requireLimits,
  tooManyOwnLimits,
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
    // With a plan there are fewer.
    if (refused === 'too_many_limits' && name === 'planned') throw tooManyOwnLimits();
    if (isLimitRefusal(refused)) throw limitRefused(refused, unchanged, name);
    if (refused === 'refill_unlimited') throw nothingToRefill('an unlimited key', 'Set remaining as well.');
    throw refused === 'draws' ? creditsElsewhere(name) : refusalError({ refused, name });
  },
});
