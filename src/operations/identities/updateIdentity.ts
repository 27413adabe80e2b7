import Type from 'typebox';
import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkLimits, checkOneOfRatelimits, limitRefused, metaText, requireConcurrency } from '../rules.ts';
import { Fields, Identity, IdentityRef, Meta, oneOfRatelimits, RatelimitChange, Ratelimits } from '../schemas.ts';
import { byIdentity } from './identityByRef.ts';

export const updateIdentity = manages({
  name: 'identities.updateIdentity',
  summary: 'Update the metadata or limits of an identity. Omitted fields are unchanged.',
  input: Fields(
    {
      identity: IdentityRef,
      meta: Type.Optional(Meta),
      ratelimits: Type.Optional(Ratelimits),
      ratelimit: Type.Optional(RatelimitChange),
    },
    oneOfRatelimits,
  ),
  output: Identity,
  errors: ['identity_not_found', 'precondition_failed'],
  needs: { identity: ['update_identity'] },
  check({ meta, ratelimits, ratelimit }, context) {
    checkOneOfRatelimits({ ratelimit, ratelimits });
    checkLimits(ratelimits);
    metaText(meta, context, 'meta');
  },
  ...byIdentity,

  async handle({ meta, ratelimits, ratelimit }, context, { id }) {
    const { store, caller, actor } = context;
    requireConcurrency({ ratelimit, ratelimits }, store);
    const text = meta && (metaText(meta, context, 'meta') ?? '');
    const changes = { identity: id, meta: text, ratelimits, ratelimit };
    const result = existing(await store.identities.update(caller.workspaceId, changes, actor), 'identity');
    if (result.refused) throw limitRefused(result.refused, ratelimit!.name);
    return result.identity;
  },
});
