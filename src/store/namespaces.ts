// Lists namespaces. Namespaces are found and created by the scripts that use them (lua/include/overrides.lua).

import type { StoreContext } from './context.ts';
import { namespaceNamesKey, workspaceKey } from './keyspace.ts';
import type { Namespace } from './overrides.ts';
import { type LookedPage, type Order, searchPages } from './pages.ts';
import { fromNamed, type Reply } from './records.ts';
import { orStoreError } from './redis.ts';

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

export function openNamespaces({ redis, scripts }: StoreContext) {
  /** Completes the list of namespaces after an earlier version of Tollgate. In steps, as there may be many. */
  async function indexNamespaces(workspaceId: string) {
    const names = namespaceNamesKey(workspaceKey(workspaceId));
    let cursor = '0';
    do {
      const [next, fields] = await orStoreError(redis.hscan(names, cursor, 'COUNT', 500));
      const ids = fields.filter((_, index) => index % 2 === 0);
      if (ids.length > 0) await scripts.run('namespaces/index', workspaceId, [ids.join('')]);
      cursor = next;
    } while (cursor !== '0');
  }

  return {
    /** A page in an order of creation, after the namespace with the id `after`; only those whose id or name contains `search`. */
    async list(
      workspaceId: string,
      page: { after?: string | undefined; count: number; order: Order; search?: string | undefined },
    ): Promise<LookedPage<ListedNamespace>> {
      let total = 0;
      const read = async (after: string | undefined, count: number) => {
        const args = [after?.slice('rlns_'.length) ?? '', count, page.order];
        const reply = await scripts.run('namespaces/list', workspaceId, args);
        const [replies, more, all, missing] = reply as [Reply[], 0 | 1, number, number];
        total = all;
        return { items: replies.map(readNamespace), more: more === 1, missing };
      };
      if ((await read(undefined, 0)).missing > 0) await indexNamespaces(workspaceId);
      const found = await searchPages(page, read);
      return { ...found, total };
    },
  };
}
