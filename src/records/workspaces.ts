// Workspaces: created from the command line and at the first start, never over HTTP.

import { randomBytes } from 'node:crypto';
import type { Actor } from '../domain/caller.ts';
import { createId, createRootKeyString, digestOf } from '../domain/keyString.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import { setupKey, workspaceKey, workspacesKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { cliActor, type openRootKeys } from './rootKeys.ts';

interface Settings {
  name: string;
  /** An API with keys is deleted only by its name. */
  protectApis: boolean;
}

export interface Workspace {
  workspaceId: string;
  name: string;
  createdAt: number;
}

/** Workspaces that one step reads. */
const stepMax = 500;

interface ImportedWorkspace extends Workspace, Settings {
  /** Where ids continue. */
  sequence: number;
  /** The id of the export. */
  importId: string;
}

export function openWorkspaces(
  { redis, run, change, currentMs }: StoreContext,
  rootKeys: () => ReturnType<typeof openRootKeys>,
) {
  async function create(name: string): Promise<Workspace> {
    const workspaceId = createId('ws', await currentMs());
    const sequence = randomBytes(6).readUIntBE(0, 6) % 2 ** 46;
    const createdAt = Number(await run('workspaces/create', workspaceId, { name, sequence }));
    await change((redis) => redis.zadd(workspacesKey, `${createdAt}`, workspaceId));
    return { workspaceId, name, createdAt };
  }

  /** By time of creation. Workspaces are never deleted, so their ranks do not change between steps. */
  async function ids(): Promise<string[]> {
    const all: string[] = [];
    for (;;) {
      const some = await orStoreError(
        redis.zrange(workspacesKey, String(all.length), String(all.length + stepMax - 1)),
      );
      all.push(...some);
      if (some.length < stepMax) return all;
    }
  }

  async function list(): Promise<Workspace[]> {
    const all: Workspace[] = [];
    for (const some of chunks(await ids(), stepMax)) {
      const found = some.map(async (workspaceId) => {
        const [name, created] = await orStoreError(redis.hmget(workspaceKey(workspaceId), 'name', 'created'));
        return { workspaceId, name: name ?? '', createdAt: Number(created) };
      });
      all.push(...(await Promise.all(found)));
    }
    return all;
  }

  const exists = async (workspaceId: string): Promise<boolean> =>
    (await orStoreError(redis.zscore(workspacesKey, workspaceId))) !== null;

  return {
    create,

    ...openImport({ redis, run, change }),
    nameOf: async (workspaceId: string): Promise<string> =>
      (await orStoreError(redis.hget(workspaceKey(workspaceId), 'name'))) ?? '',
    exists,
    ids,
    list,

    /** One command, so it needs no script. */
    async settings(workspaceId: string): Promise<Workspace & Settings> {
      const fields = ['name', 'created', 'protectApis'] as const;
      const [name, created, protects] = await orStoreError(redis.hmget(workspaceKey(workspaceId), ...fields));
      return { workspaceId, name: name ?? '', createdAt: Number(created), protectApis: protects === '1' };
    },

    /** Absent settings are unchanged. */
    async update(
      workspaceId: string,
      changes: { [Name in keyof Settings]?: Settings[Name] | undefined },
      actor: Actor,
    ): Promise<void> {
      await run('workspaces/update', workspaceId, { request: JSON.stringify(changes), actor });
    },

    /**
     * Creates a workspace and a root key with all grants if the store is empty. Returns the string of the root key,
     * which is not stored. Undefined when there is a workspace, or another server is creating one.
     */
    async createFirst(name: string): Promise<{ workspaceId: string; rootKey: string } | undefined> {
      if ((await orStoreError(redis.zcard(workspacesKey))) > 0) return undefined;
      if ((await orStoreError(redis.set(setupKey, '1', 'PX', 10_000, 'NX'))) === null) return undefined;
      if ((await orStoreError(redis.zcard(workspacesKey))) > 0) return undefined;
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

function openImport({ redis, run, change }: Pick<StoreContext, 'redis' | 'run' | 'change'>) {
  return {
    /**
     * Creates the workspace of an export with its id. `continued`: an import of this export has created it, and has not
     * ended. Until it ends, imports of the same export may write what is for new workspaces only.
     */
    async import(workspace: ImportedWorkspace, isDryRun: boolean): Promise<'created' | 'continued' | 'exists'> {
      const { workspaceId, createdAt, ...rest } = workspace;
      const request = JSON.stringify({ ...rest, created: createdAt, dryRun: isDryRun });
      const outcome = await run('workspaces/import', workspaceId, { request });
      if (!isDryRun && outcome !== 'exists')
        await change((redis) => redis.zadd(workspacesKey, 'NX', `${createdAt}`, workspaceId));
      return outcome;
    },

    /** Ends an import, and writes an event with the counts of its records. */
    async endImport(
      workspaceId: string,
      counts: readonly [field: string, count: number][],
      actor: Actor,
    ): Promise<void> {
      await run('workspaces/imported', workspaceId, { counts: JSON.stringify(counts), actor });
    },

    /** Lets new ids follow those of this time. */
    async advance(workspaceId: string, lastMs: number): Promise<void> {
      await run('workspaces/advance', workspaceId, { lastMs });
    },

    /** Where ids of a workspace continue. */
    sequenceOf: async (workspaceId: string): Promise<number> =>
      Number(await orStoreError(redis.hget(workspaceKey(workspaceId), 'sequence'))),
  };
}
