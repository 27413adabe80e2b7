// Shared by the operations that take a `keyId`: loading the key, and the API that scoped grants must name.

import { notFound } from '../../errors.ts';
import type { ManageContext } from '../../operation.ts';
import type { KeyRecord } from '../../records/records.ts';

export interface FoundKey {
  key: KeyRecord;
  byteLength: number;
}

export async function loadKey({ keyId }: { keyId: string }, { store, caller }: ManageContext): Promise<FoundKey> {
  const found = await store.keys.find(caller.workspaceId, keyId);
  if (!found) throw notFound('key');
  return found;
}

export const scopeOfKey = (_input: unknown, { key }: FoundKey): string => key.apiId;
