// The memory and files of Redis as numbers for metrics. In a Cluster the worst master counts, because each one serves
// its own workspaces.

import type { RedisFacts } from './facts.ts';
import type { Refusal } from './refusedWrites.ts';

/** Undefined where Redis does not report it. */
export interface RedisGauges {
  /** The memory of the master that has used the largest part. */
  memory: { usedBytes: number; maxBytes: number } | undefined;
  /** 1 if the append-only file is on, written and rewritten on all masters; else 0. */
  aof: { enabled: number; written: number; rewritten: number } | undefined;
  /** The size of the largest append-only file. */
  aofBytes: number | undefined;
  /** Masters that refuse writes, by reason. */
  refusing: ReadonlyMap<Refusal, number>;
}

/** `maxmemory`, or the memory of the machine. */
export const maxMemoryOf = ({ info }: RedisFacts): number =>
  Number(info('maxmemory')) || Number(info('total_system_memory'));

export function gaugesOf(nodes: readonly RedisFacts[]): RedisGauges {
  const refusing = new Map<Refusal, number>();
  for (const { refusal } of nodes) if (refusal) refusing.set(refusal, (refusing.get(refusal) ?? 0) + 1);
  const memory = nodes
    .map((node) => ({ usedBytes: Number(node.info('used_memory')), maxBytes: maxMemoryOf(node) }))
    .filter(({ usedBytes, maxBytes }) => usedBytes >= 0 && maxBytes > 0)
    .sort((one, other) => other.usedBytes / other.maxBytes - one.usedBytes / one.maxBytes)[0];
  const all = (field: string, value: string) => (nodes.every(({ info }) => info(field) === value) ? 1 : 0);
  const isReported = nodes.length > 0 && nodes.every(({ info }) => info('aof_enabled') !== undefined);
  const aofBytes = Math.max(...nodes.map(({ info }) => Number(info('aof_current_size') ?? Number.NaN)));
  return {
    memory,
    aof: isReported
      ? {
          enabled: all('aof_enabled', '1'),
          written: all('aof_last_write_status', 'ok'),
          rewritten: all('aof_last_bgrewrite_status', 'ok'),
        }
      : undefined,
    aofBytes: Number.isFinite(aofBytes) ? aofBytes : undefined,
    refusing,
  };
}
