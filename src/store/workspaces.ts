// Workspaces: made from the command line and at the first start, never over HTTP.

import { randomBytes } from 'node:crypto';
import { createId, createRootKeyString, digestOf } from '../domain/keyString.ts';
import { setupKey, workspaceKey, workspacesKey } from './keyspace.ts';
import { pieces } from './pieces.ts';
import { answered } from './redis.ts';
import { cliActor } from './rootKeys.ts';
import type { Store, StoreContext } from './store.ts';

export interface Workspace {
  workspaceId: string;
  name: string;
  createdAt: number;
}

/** Workspaces that are read at once. */
const step = 500;

export function openWorkspaces(
  { redis, scripts, change, now, currentMs }: StoreContext,
  rootKeys: () => Store['rootKeys'],
) {
  async function create(name: string): Promise<Workspace> {
    const workspaceId = createId('ws', await currentMs());
    const sequence = randomBytes(6).readUIntBE(0, 6) % 2 ** 46;
    const createdAt = Number(await scripts.run('workspaces/create', workspaceId, [name, sequence, now()]));
    await change((redis) => redis.zadd(workspacesKey, `${createdAt}`, workspaceId));
    return { workspaceId, name, createdAt };
  }

  /** By time of creation. Workspaces are never deleted, so what one step reads has its place in all later ones. */
  async function ids(): Promise<string[]> {
    const all: string[] = [];
    for (;;) {
      const some = await answered(redis.zrange(workspacesKey, String(all.length), String(all.length + step - 1)));
      all.push(...some);
      if (some.length < step) return all;
    }
  }

  async function list(): Promise<Workspace[]> {
    const all: Workspace[] = [];
    for (const some of pieces(await ids(), step)) {
      const found = some.map(async (workspaceId) => {
        const [name, created] = await answered(redis.hmget(workspaceKey(workspaceId), 'name', 'created'));
        return { workspaceId, name: name ?? '', createdAt: Number(created) };
      });
      all.push(...(await Promise.all(found)));
    }
    return all;
  }

  const exists = async (workspaceId: string): Promise<boolean> =>
    (await answered(redis.zscore(workspacesKey, workspaceId))) !== null;

  return {
    create,
    exists,
    ids,
    list,

    /**
     * In an empty store, makes a workspace and a root key that may do everything, and answers its string, which exists
     * nowhere else. Undefined when there is a workspace, or another server is making one.
     */
    async createFirst(name: string): Promise<{ workspaceId: string; rootKey: string } | undefined> {
      if ((await answered(redis.zcard(workspacesKey))) > 0) return undefined;
      if ((await answered(redis.set(setupKey, '1', 'PX', 10_000, 'NX'))) === null) return undefined;
      if ((await answered(redis.zcard(workspacesKey))) > 0) return undefined;
      const { workspaceId } = await create(name);
      const { key, start } = createRootKeyString(workspaceId);
      await rootKeys().create(
        workspaceId,
        { digest: digestOf(key), start, name: 'first', permissions: ['*'] },
        cliActor,
      );
      return { workspaceId, rootKey: key };
    },
  };
}
