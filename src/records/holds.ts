// Typed functions for the scripts of lua/holds/.

import { holdIdOf } from '../domain/holdId.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { PageOf } from './pages.ts';
import { fromNamed } from './records.ts';

interface HoldReply {
  suffix: string;
  at: string;
  due: string;
  charges?: 1;
  cost?: string;
  windows: [name: string, cost: string, ofIdentity: 0 | 1][];
  /** The slots of concurrency limits. */
  slots?: [name: string, cost: string][];
}

export function openHolds({ run }: StoreContext) {
  return {
    async list(
      workspaceId: string,
      { keyId, after, count }: { keyId: string; after: string | undefined; count: number },
    ): Promise<PageOf<ReturnType<typeof holdOf>> & { total?: number }> {
      const found = await run('holds/list', workspaceId, { keyId, after: after ?? '', count });
      if (!found) return { items: [], next: undefined };
      const [replies, more, total] = found;
      const read = replies.map((reply) => fromNamed<HoldReply>(reply));
      const last = read.at(-1);
      const next = more === 1 && last ? `${last.due}_${last.suffix}` : undefined;
      return { items: read.map((reply) => holdOf(keyId, reply)), next, total };
    },
  };
}

const holdOf = (keyId: string, { suffix, at, due, charges, cost, windows, slots }: HoldReply) => ({
  id: holdIdOf(keyId.slice('key_'.length), suffix),
  createdAt: Number(at),
  expires: Number(due),
  onExpiry: charges === 1 ? ('charge' as const) : ('release' as const),
  ...(cost !== undefined && { credits: Number(cost) }),
  ratelimits: windows.map(([name, units]) => ({ name, cost: Number(units) })),
  ...(slots && { slots: slots.map(([name, taken]) => ({ name, cost: Number(taken) })) }),
});
