// Reads the replies of scripts that return keys.

import { printedSlugsOf } from '../decide/slugs.ts';
import { defaultByteLength } from '../domain/keyString.ts';
import type { RedisClient } from '../redis/connection.ts';
import { fromNamed, type KeyRecord, type KeyReply, readKey } from './records.ts';

interface ReadReply {
  record: KeyRecord;
  /** Number of random bytes in its string; undefined when unknown. */
  byteLength: number | undefined;
  /** Its permissions were read in further steps, because it has very many. */
  isLarge: boolean;
}

/** Reads a key's reply, and the slugs of its permissions if the script did not return them. */
export async function readReply(redis: RedisClient, workspaceId: string, reply: unknown): Promise<ReadReply> {
  const key = fromNamed<KeyReply>(reply);
  const isLarge = key.permissionLists.length > 0;
  const permissions = isLarge ? await printedSlugsOf(redis, workspaceId, key.permissionLists) : undefined;
  return { record: readKey(key, permissions), byteLength: byteLengthOf(key), isLarge };
}

/** The reverse of the field `bytes` of a key's record. */
function byteLengthOf({ bytes }: KeyReply): number | undefined {
  if (bytes === undefined) return defaultByteLength;
  return bytes === '0' ? undefined : Number(bytes);
}
