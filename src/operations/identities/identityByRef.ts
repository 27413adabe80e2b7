// Shared by the operations that take an `identity`: loading it, and the id that scoped grants must name.

import { ApiError } from '../../errors.ts';
import type { ManageContext } from '../../operation.ts';
import type { Identity } from '../../records/records.ts';

export const identityNotFound = () => new ApiError('identity_not_found', 'There is no such identity.');

export async function loadIdentity(
  { identity }: { identity: string },
  { store, caller }: ManageContext,
): Promise<Identity> {
  const found = await store.identities.find(caller.workspaceId, identity);
  if (!found) throw identityNotFound();
  return found;
}

export const scopeOfIdentity = (_input: unknown, identity: Identity): string => identity.id;
