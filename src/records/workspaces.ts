// Workspaces: created from the command line and at the first start, never over HTTP.

import { randomBytes } from 'node:crypto';
import type { Actor } from '../domain/caller.ts';
import { createId, createRootKeyString, digestOf } from '../domain/keyString.ts';
import type { Prices } from '../domain/price.ts';
import { chunks } from '../redis/chunks.ts';
import { mastersOf, orStoreError } from '../redis/connection.ts';
import { setupKey, workspaceKey, workspacesKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { hasSums } from '../usage/sums.ts';
import type { openHolders } from './holders.ts';
import { cliActor, type openRootKeys } from './rootKeys.ts';

interface Settings {
  name: string;
  /** An API with keys is deleted only by its name. */
  protectApis: boolean;
  /** Whether and how its keys may read themselves; absent if they may not. */
  me?: HolderSettings | undefined;
  /** What customers owe is computed by them. */
  prices?: Prices | undefined;
}

/** The origins whose pages may read the answer, and the members of metadata that it has. */
interface HolderSettings {
  origins?: string[];
  meta?: string[];
}

export interface Workspace {
  workspaceId: string;
  name: string;
  createdAt: number;
}

interface ListedWorkspace extends Workspace {
  /** An import that creates it runs, or was interrupted. */
  isImporting: boolean;
}

/** Workspaces that one step reads. */
const stepMax = 500;
/** Names that one command looks at. */
const namesStep = 1000;

/** A setting as it is stored. */
const textOf = (setting: object | null | undefined): string => (setting ? JSON.stringify(setting) : '');

interface ImportedWorkspace extends Workspace, Settings {
  /** The time after which new ids follow. */
  sequence: number;
  /** The id of the export. */
  importId: string;
}

/** `creating` is called before a workspace is created. */
export function openWorkspaces(
  context: StoreContext,
  rootKeys: () => ReturnType<typeof openRootKeys>,
  holders: ReturnType<typeof openHolders>,
  creating: (workspaceId: string) => void,
) {
  const { redis, run, change, currentMs } = context;
  async function create(name: string): Promise<Workspace> {
    const workspaceId = createId('ws', await currentMs());
    creating(workspaceId);
    const sequence = randomBytes(6).readUIntBE(0, 6) % 2 ** 46;
    const createdAt = Number(
      await run('workspaces/create', workspaceId, { name, sequence, sums: hasSums(context) ? 1 : 0 }),
    );
    await change((redis) => redis.zadd(workspacesKey, `${createdAt}`, workspaceId));
    return { workspaceId, name, createdAt };
  }

  /**
   * By time of creation. Ranks do not change between steps, as workspaces are never deleted, except one whose import is
   * discarded.
   */
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

  async function list(): Promise<ListedWorkspace[]> {
    const all: ListedWorkspace[] = [];
    for (const some of chunks(await ids(), stepMax)) {
      const found = some.map(async (workspaceId) => {
        const fields = ['name', 'created', 'import'] as const;
        const [name, created, mark] = await orStoreError(redis.hmget(workspaceKey(workspaceId), ...fields));
        return { workspaceId, name: name ?? '', createdAt: Number(created), isImporting: typeof mark === 'string' };
      });
      all.push(...(await Promise.all(found)));
    }
    return all;
  }

  const exists = async (workspaceId: string): Promise<boolean> =>
    (await orStoreError(redis.zscore(workspacesKey, workspaceId))) !== null;

  return {
    create,

    ...openSettings(context, holders),
    ...openImport(context, holders),
    nameOf: async (workspaceId: string): Promise<string> =>
      (await orStoreError(redis.hget(workspaceKey(workspaceId), 'name'))) ?? '',
    exists,
    ids,
    list,

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

function openSettings({ redis, run }: StoreContext, holders: ReturnType<typeof openHolders>) {
  return {
    /** One command, so it needs no script. */
    async settings(workspaceId: string): Promise<Workspace & Settings> {
      const fields = ['name', 'created', 'protectApis', 'me', 'prices'] as const;
      const [name, created, ...rest] = await orStoreError(redis.hmget(workspaceKey(workspaceId), ...fields));
      const [protects, me, prices] = rest;
      return {
        workspaceId,
        name: name ?? '',
        createdAt: Number(created),
        protectApis: protects === '1',
        ...(me && { me: JSON.parse(me) as HolderSettings }),
        ...(prices && { prices: JSON.parse(prices) as Prices }),
      };
    },

    /** Absent settings are unchanged. Those that are null are removed. */
    async update(
      workspaceId: string,
      { me, prices, ...changes }: { [Name in keyof Settings]?: Settings[Name] | null | undefined },
      actor: Actor,
    ): Promise<void> {
      // A workspace in the list without the setting only costs a lookup.
      if (me) await holders.add(workspaceId);
      const request = {
        ...changes,
        ...(me !== undefined && { me: textOf(me) }),
        ...(prices !== undefined && { prices: textOf(prices) }),
      };
      await run('workspaces/update', workspaceId, { request: JSON.stringify(request), actor });
      if (me !== undefined) await holders.settle(workspaceId);
    },
  };
}

function openImport(context: StoreContext, holders: ReturnType<typeof openHolders>) {
  const { redis, run, change } = context;
  return {
    /**
     * Creates the workspace of an export with its id. `continued`: an import of this export has created it, and has not
     * ended. Until it ends, imports of the same export may write what is for new workspaces only. `unfinished`: the
     * import of another export has created it, and has not ended.
     */
    async import(
      workspace: ImportedWorkspace,
      isDryRun: boolean,
    ): Promise<'created' | 'continued' | 'exists' | 'unfinished'> {
      const { workspaceId, createdAt, me, prices, ...rest } = workspace;
      const given = { ...rest, me: textOf(me), prices: textOf(prices), created: createdAt };
      const request = JSON.stringify({ ...given, sums: hasSums(context), dryRun: isDryRun });
      // First, as it may be refused.
      const adds = me !== undefined && !isDryRun;
      if (adds) await holders.add(workspaceId);
      const outcome = await run('workspaces/import', workspaceId, { request });
      if (!isDryRun && (outcome === 'created' || outcome === 'continued'))
        await change((redis) => redis.zadd(workspacesKey, 'NX', `${createdAt}`, workspaceId));
      else if (adds) await holders.settle(workspaceId);
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

    isImporting: async (workspaceId: string): Promise<boolean> =>
      (await orStoreError(redis.hexists(workspaceKey(workspaceId), 'import'))) === 1,

    /**
     * Removes a workspace whose import did not end, with all that it stores. Its own record, which has the mark, is the
     * last: a call that was interrupted is finished by another one.
     */
    async discardImport(workspaceId: string): Promise<void> {
      const workspace = workspaceKey(workspaceId);
      for (const node of mastersOf(redis)) {
        let cursor = '0';
        do {
          const [next, names] = await orStoreError(
            node.scanBuffer(cursor, 'MATCH', `${workspace}:*`, 'COUNT', namesStep),
          );
          if (names.length > 0) await orStoreError(node.unlink(...names));
          cursor = next.toString();
        } while (cursor !== '0');
      }
      await holders.remove(workspaceId);
      await change((redis) => redis.zrem(workspacesKey, workspaceId));
      await change((redis) => redis.unlink(workspace));
    },

    /** Lets new ids follow those of this time. */
    async advance(workspaceId: string, lastMs: number): Promise<void> {
      await run('workspaces/advance', workspaceId, { lastMs });
    },

    /** The time after which new ids of a workspace follow. */
    sequenceOf: async (workspaceId: string): Promise<number> =>
      Number(await orStoreError(redis.hget(workspaceKey(workspaceId), 'sequence'))),
  };
}
