import Type from 'typebox';
import { manages } from '../../operation.ts';
import { checkNamesOnce, metaText } from '../rules.ts';
import { Fields, Identity, IdentityRef, Meta, Ratelimits } from '../schemas.ts';
import { identityNotFound, loadIdentity, scopeOfIdentity } from './identityByRef.ts';

export const updateIdentity = manages({
  name: 'identities.updateIdentity',
  summary: 'Update the metadata or limits of an identity. Omitted fields are unchanged.',
  input: Fields({ identity: IdentityRef, meta: Type.Optional(Meta), ratelimits: Type.Optional(Ratelimits) }),
  output: Identity,
  errors: ['identity_not_found'],
  needs: { identity: ['update_identity'] },
  check({ meta, ratelimits }, context) {
    checkNamesOnce(ratelimits);
    metaText(meta, context, 'meta');
  },
  load: loadIdentity,
  scope: scopeOfIdentity,

  async handle({ meta, ratelimits }, context, { id }) {
    const { store, caller, actor } = context;
    const text = meta && (metaText(meta, context, 'meta') ?? '');
    const identity = await store.identities.update(caller.workspaceId, { identity: id, meta: text, ratelimits }, actor);
    if (!identity) throw identityNotFound();
    return identity;
  },
});
