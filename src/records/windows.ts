// Windows that have records of their own, for exports and imports: of namespaces, of ad hoc limits, and of limits that
// were removed. No list has those of namespaces, so an export looks through all names.

import type { UsedSlices } from '../domain/limit.ts';
import { dayMs } from '../domain/time.ts';
import { mastersOf, orStoreError } from '../redis/connection.ts';
import { windowNames, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { readUsedUnits } from './records.ts';

interface ExportedWindow {
  /** 16 characters of a namespace or identity, or 24 of a key. */
  owner: string;
  duration: number;
  /** Of the limit, or the identifier. */
  name: string;
  used: UsedSlices;
}

/** Names that one command looks at. */
const namesStep = 2000;
/** Windows that one script reads or writes. */
const windowsStep = 200;

export function openWindows({ redis, run }: StoreContext) {
  return {
    /**
     * The windows of a day or longer in which something counts, in pages, each with the place after it. Some may be
     * repeated.
     */
    async *export(
      workspaceId: string,
      after: string | undefined,
    ): AsyncGenerator<{ windows: ExportedWindow[]; after: string }> {
      const nodes = mastersOf(redis);
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
          const windows: ExportedWindow[] = [];
          for (let at = 0; at < found.length; at += windowsStep) {
            const some = found.slice(at, at + windowsStep);
            const given = JSON.stringify(some.map(({ owner, duration, name }) => [owner, duration, name]));
            const used = readUsedUnits(await run('windows/export', workspaceId, { windows: given }));
            for (const [place, slices] of used) windows.push({ ...some[place]!, used: slices });
          }
          if (windows.length > 0) yield { windows, after: `${index}:${cursor}` };
        } while (cursor !== '0');
      }
    },

    /** Stores windows. Returns for each whether it is new. */
    async import(
      workspaceId: string,
      windows: readonly (ExportedWindow & { isNamespace: boolean })[],
      isDryRun: boolean,
    ): Promise<boolean[]> {
      const stored: boolean[] = [];
      for (let at = 0; at < windows.length; at += windowsStep) {
        const some = JSON.stringify(windows.slice(at, at + windowsStep));
        const reply = await run('windows/import', workspaceId, { windows: some, dryRun: isDryRun ? 1 : 0 });
        stored.push(...reply.map((isNew) => isNew === 1));
      }
      return stored;
    },
  };
}
