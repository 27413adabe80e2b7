import Type from 'typebox';
import { digestOf } from '../../domain/keyString.ts';
import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Cursor, Fields, NamespaceRef, Override, PageSize } from '../schemas.ts';
import { byNamespace, showOverride } from './namespaceByRef.ts';

export const listOverrides = manages({
  name: 'ratelimits.listOverrides',
  alias: 'ratelimit.listOverrides',
  summary: 'List the overrides of a namespace in order of creation.',
  input: Fields({ namespace: NamespaceRef, limit: Type.Optional(PageSize(10)), cursor: Type.Optional(Cursor) }),
  output: Type.Array(Override),
  errors: ['namespace_not_found'],
  needs: { ratelimit: ['read_override'] },
  ...byNamespace,
  // A name may be longer than a cursor.
  list: ({ namespace }) => `overrides:${digestOf(namespace).toString('base64url')}`,
  listedIds: 'override',
  // The SDK calls the alias and expects the bare list.
  wrapItems: 'overrides',

  async handle({ limit = 10 }, { store, caller, after }, namespace) {
    const page = existing(
      await store.overrides.list(caller.workspaceId, { namespace: namespace.name, after, count: limit }),
      'namespace',
      namespace.name,
    );
    return { items: page.items.map((override) => showOverride(override, namespace)), next: page.next };
  },
});
