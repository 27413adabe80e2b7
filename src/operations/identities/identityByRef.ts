// Shared by the operations that take an `identity`: loading it, and the id that scoped grants must name.

import { existing } from '../../errors.ts';
import type { ManageContext } from '../../operation.ts';
import type { Identity } from '../../records/records.ts';

export async function loadIdentity(
  { identity }: { identity: string },
  { store, caller }: ManageContext,
): Promise<Identity> {
  return existing(await store.identities.find(caller.workspaceId, identity), 'identity');
}

export const scopeOfIdentity = (_input: unknown, identity: Identity): string => identity.id;
