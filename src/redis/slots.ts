// Slots of a Redis Cluster.

import type { Cluster } from 'ioredis';
import type { RedisClient } from './connection.ts';

/**
 * Returns a function that names the node that a Cluster client asks for the keys of a workspace now, as ioredis names
 * nodes: its address.
 */
export function nodeOf(cluster: RedisClient, workspaceId: string): () => string {
  const slot = slotOf(workspaceId);
  return () => (cluster as unknown as Cluster).slots[slot]?.[0] ?? '';
}

/** The slot of a tag in a Redis Cluster: its CRC-16 (XMODEM). */
export function slotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}
