// The typed faces of lua/apis/.

import type { Actor } from '../domain/caller.ts';
import type { StoreContext } from './context.ts';

export interface ApiRecord {
  id: string;
  name: string;
  /** Unix milliseconds. */
  createdAt: number;
  keyCount: number;
}

export function openApis({ scripts, now, actorText }: StoreContext) {
  const create = (workspaceId: string, name: string, keptId: string, createdAt: number | '', actor: Actor) =>
    scripts.run('apis/create', workspaceId, [name, keptId, createdAt, actorText(actor), now()]);

  return {
    create: (workspaceId: string, name: string, actor: Actor): Promise<string> =>
      create(workspaceId, name, '', '', actor) as Promise<string>,

    /** Creates an API under the id it had elsewhere. False when that id is taken here, or was until a moment ago. */
    createAgain: async (
      workspaceId: string,
      api: { apiId: string; name: string; createdAt?: number | undefined },
      actor: Actor,
    ): Promise<boolean> =>
      (await create(workspaceId, api.name, api.apiId.slice('api_'.length), api.createdAt ?? '', actor)) !== null,

    async find(workspaceId: string, apiId: string): Promise<{ id: string; name: string } | undefined> {
      const reply = (await scripts.run('apis/read', workspaceId, [apiId])) as [string] | null;
      return reply ? { id: apiId, name: reply[0] } : undefined;
    },

    /** A page in order of creation. `after` is an API's id. */
    async list(
      workspaceId: string,
      page: { after?: string | undefined; count: number },
    ): Promise<{ apis: ApiRecord[]; more: boolean }> {
      const args = [page.after?.slice('api_'.length) ?? '', page.count];
      const [rows, more] = (await scripts.run('apis/list', workspaceId, args)) as [
        [id: string, name: string, created: string, keyCount: number][],
        0 | 1,
      ];
      const apis = rows.map(([id, name, created, keyCount]) => ({ id, name, createdAt: Number(created), keyCount }));
      return { apis, more: more === 1 };
    },

    /** False when there is no such API. */
    delete: async (workspaceId: string, apiId: string, actor: Actor): Promise<boolean> =>
      (await scripts.run('apis/delete', workspaceId, [apiId, actorText(actor), now()])) === 1,
  };
}
