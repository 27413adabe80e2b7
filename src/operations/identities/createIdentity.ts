import Type from 'typebox';
import { alreadyExists } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkLimits, metaText, requireConcurrency } from '../rules.ts';
import { ExternalId, Fields, Meta, Ratelimits } from '../schemas.ts';

export const createIdentity = manages({
  name: 'identities.createIdentity',
  summary: 'Create an identity: the owner of keys, with metadata and limits that its keys share.',
  input: Fields({ externalId: ExternalId, meta: Type.Optional(Meta), ratelimits: Type.Optional(Ratelimits) }),
  output: Type.Object({ identityId: Type.String({ description: 'Id of the new identity.' }) }),
  errors: ['identity_already_exists', 'precondition_failed', 'too_many_records'],
  needs: { identity: ['create_identity'] },
  scope: () => '*',
  check({ meta, ratelimits }, context) {
    checkLimits(ratelimits);
    metaText(meta, context, 'meta');
  },

  async handle({ externalId, meta, ratelimits = [] }, context) {
    const { store, caller, actor } = context;
    requireConcurrency({ ratelimits }, store);
    const identity = { externalId, meta: metaText(meta, context, 'meta') ?? undefined, ratelimits };
    const [identityId] = await store.identities.create(caller.workspaceId, [identity], actor);
    if (!identityId) throw alreadyExists('identity', externalId);
    return { identityId };
  },
});
