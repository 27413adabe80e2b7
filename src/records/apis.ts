// Typed functions for the scripts of lua/apis/.

import type { Actor } from '../domain/caller.ts';
import { type Reply, refusal } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { deletion } from './deletion.ts';
import { type Order, type SearchedPage, searchPages } from './pages.ts';
import { fromNamed } from './records.ts';

/** An API as a named reply. */
interface ApiReply {
  id: string;
  name: string;
  created: string;
  keyCount: number;
  /** When a deleted API may be removed, Unix milliseconds. */
  restorableUntil?: string;
}

export type ApiRecord = ReturnType<typeof readApi>;

function readApi(reply: Reply) {
  const { id, name, created, keyCount, restorableUntil } = fromNamed<ApiReply>(reply);
  const deleted = restorableUntil !== undefined && { restorableUntil: Number(restorableUntil) };
  return { id, name, createdAt: Number(created), keyCount, ...deleted };
}

export function openApis(context: StoreContext) {
  const { run } = context;
  const create = (workspaceId: string, name: string, keptId: string, createdMs: number | '', actor: Actor) =>
    run('apis/create', workspaceId, { name, keptId, createdMs, actor });

  return {
    create: (workspaceId: string, name: string, actor: Actor): Promise<string> =>
      create(workspaceId, name, '', '', actor) as Promise<string>,

    /**
     * Creates an exported API with its old id. False if the id is used by an API, or by a deleted one that was not
     * removed yet.
     */
    createAgain: async (
      workspaceId: string,
      api: { apiId: string; name: string; createdAt?: number | undefined },
      actor: Actor,
    ): Promise<boolean> =>
      (await create(workspaceId, api.name, api.apiId.slice('api_'.length), api.createdAt ?? '', actor)) !== null,

    async find(workspaceId: string, apiId: string): Promise<ApiRecord | undefined> {
      const reply = await run('apis/read', workspaceId, { apiId });
      return reply ? readApi(reply) : undefined;
    },

    /** Oldest first by default. Of deleted APIs, only those that can be restored. */
    list: (
      workspaceId: string,
      { order = 'asc', deleted, ...page }: SearchedPage & { order?: Order; deleted?: boolean | undefined },
    ) =>
      searchPages(page, readApi, (given) =>
        run('apis/list', workspaceId, { ...given, order, deleted: deleted ? 1 : 0 }),
      ),

    /** False for an unknown API. */
    async rename(
      workspaceId: string,
      { apiId, name }: { apiId: string; name: string },
      actor: Actor,
    ): Promise<boolean> {
      const [outcome] = await run('apis/update', workspaceId, { apiId, name, actor });
      return outcome === 'updated';
    },

    /** `confirm` is the name of the API, which a protected one needs. */
    async delete(
      workspaceId: string,
      { apiId, confirm = '', permanent }: { apiId: string; confirm?: string | undefined; permanent?: boolean },
      actor: Actor,
    ) {
      const given = { apiId, confirm, ...deletion(context, permanent), actor };
      const [outcome, name] = await run('apis/delete', workspaceId, given);
      return outcome === 'deleted' ? undefined : refusal(outcome, name);
    },

    /** False when there is no such deleted API. */
    restore: async (workspaceId: string, apiId: string, actor: Actor): Promise<boolean> =>
      (await run('apis/restore', workspaceId, { apiId, actor }))[0] === 'restored',
  };
}
