// Windows that have records of their own, for exports and imports: of namespaces, of ad hoc limits, and of limits that
// were removed. Windows of namespaces are in no list, so an export looks through all names.

import type { UsedSlices } from '../domain/limit.ts';
import { type Periodic, quotaOf, storedDuration } from '../domain/quota.ts';
import { dayMs } from '../domain/time.ts';
import { chunks } from '../redis/chunks.ts';
import { mastersOf, orStoreError, type RedisClient } from '../redis/connection.ts';
import { allWindowNames, namespaceNamesKey, windowNames, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { readUsedUnits } from './records.ts';

interface ExportedWindow extends Periodic {
  /** 16 characters of a namespace or identity, or 24 of a key. */
  owner: string;
  isNamespace: boolean;
  /** The name of the limit, or the identifier. */
  name: string;
  used: UsedSlices;
}

interface WindowName {
  owner: string;
  duration: number;
  name: string;
}

/**
 * The windows of a day or longer by workspace. Undefined for a workspace that has more than are kept in memory. A
 * workspace without windows has no entry.
 */
export type WindowIndex = ReadonlyMap<string, readonly WindowName[] | undefined>;

/** A window of a quota has its period, not a duration. */
const exported = ({ duration, ...rest }: WindowName) => ({ ...rest, ...(quotaOf(duration) ?? { duration }) });

/** Names that one command looks at. */
const namesStep = 2000;
/** Names that an index has: some 40 MB. */
const indexMax = 300_000;
/** The place in windows of an index before the last page: they are exported again. */
const again = 'again';
/** Windows that one script reads or writes. */
const windowsStep = 200;

export function openWindows({ redis, run }: StoreContext) {
  async function readWindows(workspaceId: string, found: readonly WindowName[]): Promise<ExportedWindow[]> {
    const windows: ExportedWindow[] = [];
    for (const some of chunks(found, windowsStep)) {
      const given = JSON.stringify(some.map(({ owner, duration, name }) => [owner, duration, name]));
      const used = [...readUsedUnits(await run('windows/export', workspaceId, { windows: given }))];
      if (used.length === 0) continue;
      const owners = used.map(([place]) => some[place]!.owner);
      const namespaces = await orStoreError(redis.hmget(namespaceNamesKey(workspaceKey(workspaceId)), ...owners));
      for (const [index, [place, slices]] of used.entries())
        windows.push({ ...exported(some[place]!), isNamespace: namespaces[index] !== null, used: slices });
    }
    return windows;
  }

  return {
    /** Looks through all names once, for an export of many workspaces. */
    index: (namesMax = indexMax): Promise<WindowIndex> => indexOf(redis, namesMax),

    /**
     * The windows of a day or longer in which something counts, in pages, each with the place after it. Some may be
     * repeated. With an index, only the windows in it are read.
     */
    async *export(
      workspaceId: string,
      from: string | undefined,
      index?: WindowIndex,
    ): AsyncGenerator<{ windows: ExportedWindow[]; after: string }> {
      const nodes = mastersOf(redis);
      const after = from === again ? undefined : from;
      if (index && after === undefined && !(index.has(workspaceId) && !index.get(workspaceId))) {
        const known = [...chunks(index.get(workspaceId) ?? [], windowsStep)];
        for (const [page, some] of known.entries()) {
          const windows = await readWindows(workspaceId, some);
          const place = page === known.length - 1 ? `${nodes.length - 1}:0` : again;
          if (windows.length > 0) yield { windows, after: place };
        }
        return;
      }
      const [firstNode = 0, firstCursor = 0] = after?.split(':').map(Number) ?? [];
      const { pattern, parse } = windowNames(workspaceKey(workspaceId));
      for (const [index, node] of nodes.entries()) {
        if (index < firstNode) continue;
        let cursor = index === firstNode ? String(firstCursor) : '0';
        if (index === firstNode && after !== undefined && cursor === '0') continue;
        do {
          const [next, names] = await orStoreError(
            node.scan(cursor, 'MATCH', pattern, 'COUNT', namesStep, 'TYPE', 'string'),
          );
          cursor = next;
          const found = names.map(parse).filter(({ duration }) => duration >= dayMs);
          const windows = await readWindows(workspaceId, found);
          if (windows.length > 0) yield { windows, after: `${index}:${cursor}` };
        } while (cursor !== '0');
      }
    },

    /** Stores windows. Returns for each whether it is new. */
    async import(workspaceId: string, windows: readonly ExportedWindow[], isDryRun: boolean): Promise<boolean[]> {
      const stored: boolean[] = [];
      for (let at = 0; at < windows.length; at += windowsStep) {
        const step = windows.slice(at, at + windowsStep);
        const some = JSON.stringify(step.map((window) => ({ ...window, duration: storedDuration(window) })));
        const reply = await run('windows/import', workspaceId, { windows: some, dryRun: isDryRun ? 1 : 0 });
        stored.push(...reply.map((isNew) => isNew === 1));
      }
      return stored;
    },
  };
}

async function indexOf(redis: RedisClient, namesMax: number): Promise<WindowIndex> {
  const index = new Map<string, WindowName[] | undefined>();
  let kept = 0;
  function add(workspaceId: string, window: WindowName) {
    if (index.has(workspaceId) && !index.get(workspaceId)) return;
    const own = index.get(workspaceId) ?? [];
    if (kept === namesMax) {
      kept -= own.length;
      index.set(workspaceId, undefined);
      return;
    }
    kept++;
    own.push(window);
    index.set(workspaceId, own);
  }
  for (const node of mastersOf(redis)) {
    let cursor = '0';
    do {
      const { pattern } = allWindowNames;
      const [next, names] = await orStoreError(
        node.scan(cursor, 'MATCH', pattern, 'COUNT', namesStep, 'TYPE', 'string'),
      );
      cursor = next;
      for (const name of names) {
        const workspaceId = allWindowNames.workspaceOf(name);
        const window = workspaceId && windowNames(workspaceKey(workspaceId)).parse(name);
        if (window && window.duration >= dayMs) add(workspaceId, window);
      }
    } while (cursor !== '0');
  }
  return index;
}
