import Type from 'typebox';
import { alreadyExists } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { requirePlans } from '../plans/planFields.ts';
import { checkCredits, checkLimits, metaText, requireLimits } from '../rules.ts';
import { ExternalId, Meta, NewFields, NewSharedCredits, out, PlanId, Ratelimits } from '../schemas.ts';
import { ownerRefused } from './identityRecords.ts';
import { requireSharedCredits } from './sharedCredits.ts';

export const createIdentity = manages({
  name: 'identities.createIdentity',
  summary: 'Create an identity: the owner of keys, with metadata, limits and credits that its keys share.',
  description: 'null in an optional field means that it is absent.',
  input: NewFields({
    externalId: ExternalId,
    meta: Type.Optional(Meta),
    ratelimits: Type.Optional(Ratelimits),
    credits: Type.Optional(NewSharedCredits),
    planId: Type.Optional(PlanId),
  }),
  output: Type.Object({ identityId: out.text('Id of the new identity.') }),
  errors: ['identity_already_exists', 'plan_not_found', 'precondition_failed', 'too_many_records'],
  needs: { identity: ['create_identity'] },
  check({ meta, ratelimits, credits }, context) {
    checkLimits(ratelimits);
    checkCredits(credits, 'body.credits', 'the identity');
    metaText(meta, context, 'meta');
  },

  async handle({ externalId, meta, ratelimits = [], credits, planId }, context) {
    const { store, caller, actor } = context;
    requireLimits({ ratelimits }, store);
    requireSharedCredits(credits, store);
    if (planId !== undefined) requirePlans(store);
    const identity = {
      externalId,
      meta: metaText(meta, context, 'meta') ?? undefined,
      ratelimits,
      planId,
      credits: credits && credits.remaining !== null ? { ...credits, remaining: credits.remaining } : undefined,
    };
    const created = await store.identities.create(caller.workspaceId, [identity], actor);
    if ('refused' in created) throw ownerRefused(created.refused, {}, created.at);
    const [identityId] = created;
    if (!identityId) throw alreadyExists('identity', externalId);
    return { identityId };
  },
});
