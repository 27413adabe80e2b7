import Type from 'typebox';
import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { requirePlans } from '../plans/planFields.ts';
import { checkCredits, checkLimits, checkOneOfRatelimits, metaText, nothingToRefill, requireLimits } from '../rules.ts';
import {
  Fields,
  IdentityRef,
  ListedIdentity,
  Meta,
  Nullable,
  PlanId,
  RatelimitChange,
  Ratelimits,
  SharedCreditChanges,
} from '../schemas.ts';
import { identities, ownerRefused } from './identityRecords.ts';
import { requireSharedCredits } from './sharedCredits.ts';

export const updateIdentity = manages({
  name: 'identities.updateIdentity',
  summary: 'Update the metadata, limits or credits of an identity. Omitted fields are unchanged.',
  input: Fields({
    identity: IdentityRef,
    meta: Type.Optional(Meta),
    ratelimits: Type.Optional(Ratelimits),
    ratelimit: Type.Optional(RatelimitChange),
    credits: Type.Optional(Nullable(SharedCreditChanges)),
    planId: Type.Optional(Nullable(PlanId)),
  }),
  output: ListedIdentity,
  errors: ['identity_not_found', 'plan_not_found', 'precondition_failed'],
  needs: { identity: ['update_identity'] },
  check({ meta, ratelimits, ratelimit, credits }, context) {
    checkCredits(credits, 'body.credits', 'the identity');
    checkOneOfRatelimits({ ratelimit, ratelimits });
    checkLimits(ratelimits);
    metaText(meta, context, 'meta');
  },
  ...identities.byReference,

  async handle({ meta, ratelimits, ratelimit, credits, planId }, context, { id }) {
    const { store, caller, actor } = context;
    requireLimits({ ratelimit, ratelimits }, store);
    requireSharedCredits(credits, store);
    if (planId) requirePlans(store);
    const text = meta && (metaText(meta, context, 'meta') ?? '');
    const changes = { identity: id, meta: text, ratelimits, ratelimit, credits, planId };
    const result = existing(await store.identities.update(caller.workspaceId, changes, actor), 'identity');
    if (result.refused === 'refill_unlimited') throw nothingToRefill('the identity', 'Set remaining as well.');
    if (result.refused) throw ownerRefused(result.refused, { ratelimit }, result.at);
    return result.identity;
  },
});
