import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Fields, Identifier, NamespaceRef, Override } from '../schemas.ts';
import { byNamespace, showOverride } from './namespaceByRef.ts';

export const getOverride = manages({
  name: 'ratelimits.getOverride',
  alias: 'ratelimit.getOverride',
  summary: 'Get the override whose identifier equals this one.',
  input: Fields({ namespace: NamespaceRef, identifier: Identifier }),
  output: Override,
  errors: ['namespace_not_found', 'override_not_found'],
  needs: { ratelimit: ['read_override'] },
  ...byNamespace,

  async handle({ identifier }, { store, caller }, namespace) {
    const override = existing(await store.overrides.find(caller.workspaceId, namespace.name, identifier), 'override');
    return showOverride(override, namespace);
  },
});
