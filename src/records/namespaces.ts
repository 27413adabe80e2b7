// Lists namespaces. Namespaces are found and created by the scripts that use them (lua/include/overrides.lua).

import type { Actor } from '../domain/caller.ts';
import type { Reply } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { Namespace } from './overrides.ts';
import { type Order, type SearchedPage, searchPages } from './pages.ts';
import { fromNamed } from './records.ts';

/** A namespace of a list as a named reply. */
interface NamespaceReply {
  /** Without `rlns_`. */
  id: string;
  name: string;
  created: string;
  overrideCount: number;
}

function readNamespace(reply: Reply) {
  const { id, name, created, overrideCount } = fromNamed<NamespaceReply>(reply);
  return { id: `rlns_${id}`, name, createdAt: Number(created), overrideCount };
}

export function openNamespaces({ run }: StoreContext) {
  return {
    /** Creates a namespace of an export. False when its name or id exists. */
    createAgain: async (workspaceId: string, { id, name }: Namespace, actor: Actor): Promise<boolean> =>
      (await run('namespaces/create', workspaceId, { id16: id.slice('rlns_'.length), name, actor })) === 1,

    list: (workspaceId: string, { order, ...page }: SearchedPage & { order: Order }) =>
      searchPages(page, readNamespace, (given) => run('namespaces/list', workspaceId, { ...given, order })),
  };
}
