// Shared by the operations that take a `keyId`: loading the key, and the API that scoped grants must name.

import { ApiError, type ErrorCode, existing } from '../../errors.ts';
import type { ManageContext, Needs } from '../../operation.ts';
import type { KeyRecord } from '../../records/records.ts';

export interface FoundKey {
  key: KeyRecord;
  byteLength: number;
}

export const scopeOfKey = (_input: unknown, { key }: FoundKey): string => key.apiId;

/** `load` and `scope` of an operation. */
export const ofKey = {
  load: async ({ keyId }: { keyId: string }, { store, caller }: ManageContext): Promise<FoundKey> =>
    existing(await store.keys.find(caller.workspaceId, keyId), 'key'),
  scope: scopeOfKey,
};

/** How operations change the permissions and roles of a key. */
export type Mode = 'add' | 'remove' | 'set';

/** The fields that differ between these operations. */
export interface KeyPartsOperation<Name extends string> {
  name: Name;
  summary: string;
  errors: readonly ErrorCode[];
  needs: Needs;
}

/** The error for a change of credits that `keys.rerollKey` moved to another key, whose id is '' if it was removed. */
export const creditsElsewhere = (keyId: string) =>
  new ApiError(
    'precondition_failed',
    keyId === ''
      ? 'This key has no credits: they were moved to a key that was deleted. Set its credits first.'
      : `The credits of this key are those of ${keyId}, which replaced it: use that key here.`,
  );
