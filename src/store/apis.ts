// The typed faces of lua/apis/.

import type { Actor } from '../domain/caller.ts';
import type { StoreContext } from './store.ts';

export function openApis({ scripts, now, actorText }: StoreContext) {
  return {
    create: (workspaceId: string, name: string, actor: Actor): Promise<string> =>
      scripts.run('apis/create', workspaceId, [name, actorText(actor), now()]) as Promise<string>,

    async find(workspaceId: string, apiId: string): Promise<{ id: string; name: string } | undefined> {
      const reply = (await scripts.run('apis/read', workspaceId, [apiId])) as [string] | null;
      return reply ? { id: apiId, name: reply[0] } : undefined;
    },

    /** False when there is no such API. */
    delete: async (workspaceId: string, apiId: string, actor: Actor): Promise<boolean> =>
      (await scripts.run('apis/delete', workspaceId, [apiId, actorText(actor), now()])) === 1,
  };
}
