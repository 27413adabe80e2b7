import Type from 'typebox';
import { alreadyExists } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkCredits, checkLimits, endRefused, metaText, requireLimits } from '../rules.ts';
import { ExternalId, Fields, Meta, NewSharedCredits, out, Ratelimits } from '../schemas.ts';
import { requireSharedCredits } from './sharedCredits.ts';

export const createIdentity = manages({
  name: 'identities.createIdentity',
  summary: 'Create an identity: the owner of keys, with metadata, limits and credits that its keys share.',
  input: Fields({
    externalId: ExternalId,
    meta: Type.Optional(Meta),
    ratelimits: Type.Optional(Ratelimits),
    credits: Type.Optional(NewSharedCredits),
  }),
  output: Type.Object({ identityId: out.text('Id of the new identity.') }),
  errors: ['identity_already_exists', 'precondition_failed', 'too_many_records'],
  needs: { identity: ['create_identity'] },
  check({ meta, ratelimits, credits }, context) {
    checkLimits(ratelimits);
    checkCredits(credits, 'body.credits', 'the identity');
    metaText(meta, context, 'meta');
  },

  async handle({ externalId, meta, ratelimits = [], credits }, context) {
    const { store, caller, actor } = context;
    requireLimits({ ratelimits }, store);
    requireSharedCredits(credits, store);
    const identity = {
      externalId,
      meta: metaText(meta, context, 'meta') ?? undefined,
      ratelimits,
      credits: credits && credits.remaining !== null ? { ...credits, remaining: credits.remaining } : undefined,
    };
    const created = await store.identities.create(caller.workspaceId, [identity], actor);
    if ('refused' in created) throw endRefused(created.refused, `body.ratelimits[${created.at}]`);
    const [identityId] = created;
    if (!identityId) throw alreadyExists('identity', externalId);
    return { identityId };
  },
});
