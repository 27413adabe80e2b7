import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, Identifier, NamespaceRef } from '../schemas.ts';
import { byNamespace } from './namespaceByRef.ts';

export const deleteOverride = manages({
  name: 'ratelimits.deleteOverride',
  alias: 'ratelimit.deleteOverride',
  summary: 'Delete the override whose identifier equals this one.',
  input: Fields({ namespace: NamespaceRef, identifier: Identifier }),
  output: Empty,
  errors: ['namespace_not_found', 'override_not_found'],
  needs: { ratelimit: ['delete_override'] },
  ...byNamespace,

  async handle({ identifier }, { store, caller, actor }, namespace) {
    existing(await store.overrides.delete(caller.workspaceId, namespace.name, identifier, actor), 'override');
    return {};
  },
});
