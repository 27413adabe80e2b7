// Errors about keys and APIs that were moved to another workspace: their detail says where.

import { digestOf } from '../domain/keyString.ts';
import { ApiError } from '../errors.ts';
import type { Store } from '../store.ts';

const notHere: ReadonlySet<string> = new Set(['key_not_found', 'api_not_found']);

/** The error to throw in the place of one that was thrown for this input. */
export async function explained(
  error: unknown,
  value: unknown,
  workspaceId: string,
  { moves }: Pick<Store, 'moves'>,
): Promise<unknown> {
  if (!(error instanceof ApiError) || !notHere.has(error.code)) return error;
  const { key, keyId, apiId } = value as { key?: unknown; keyId?: unknown; apiId?: unknown };
  const id = error.code === 'key_not_found' ? keyId : apiId;
  const isByString = error.code === 'key_not_found' && typeof key === 'string';
  if (typeof id !== 'string' && !isByString) return error;
  const target = isByString ? moves.targetOfKey(workspaceId, digestOf(key)) : moves.targetOf(workspaceId, id as string);
  // The error is the same without it.
  const to = await target.catch(() => undefined);
  if (to === undefined) return error;
  const moved = `Its API is being moved to workspace ${to}, or was moved there: use a root key of that workspace.`;
  return new ApiError(
    error.code,
    `${error.message} ${error.code === 'api_not_found' ? moved.replace('Its API', 'It') : moved}`,
  );
}
