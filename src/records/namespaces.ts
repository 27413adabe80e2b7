// Lists namespaces. Namespaces are found and created by the scripts that use them (lua/include/overrides.lua).

import type { Reply } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { Namespace } from './overrides.ts';
import { type LookedPage, type Order, searchPages } from './pages.ts';
import { fromNamed } from './records.ts';

interface ListedNamespace extends Namespace {
  /** Unix milliseconds. */
  createdAt: number;
  overrideCount: number;
}

/** A namespace of a list as a named reply. */
interface NamespaceReply {
  /** Without `rlns_`. */
  id: string;
  name: string;
  created: string;
  overrideCount: number;
}

function readNamespace(reply: Reply): ListedNamespace {
  const { id, name, created, overrideCount } = fromNamed<NamespaceReply>(reply);
  return { id: `rlns_${id}`, name, createdAt: Number(created), overrideCount };
}

export function openNamespaces({ run }: StoreContext) {
  return {
    /**
     * A page in an order of creation, after the namespace with the id `after`; only those whose id or name contains
     * `search`.
     */
    async list(
      workspaceId: string,
      page: { after?: string | undefined; count: number; order: Order; search?: string | undefined },
    ): Promise<LookedPage<ListedNamespace>> {
      let total = 0;
      const read = async (after: string | undefined, count: number) => {
        const given = { after: after?.slice('rlns_'.length) ?? '', count, order: page.order };
        const [replies, more, all] = await run('namespaces/list', workspaceId, given);
        total = all;
        return { items: replies.map(readNamespace), more: more === 1 };
      };
      const found = await searchPages(page, read);
      return { ...found, total };
    },
  };
}
