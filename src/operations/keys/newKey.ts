// Shared by keys.createKey and keys.migrateKeys: the fields of a new key for the store, and its errors.

import type { ApiError } from '../../errors.ts';
import type { NewKey } from '../../records/keys.ts';
import type { Store } from '../../store.ts';
import { apiNotFound, endRefused, expiredBefore, refusalError, tooManyOwnLimits } from '../rules.ts';
import type { NewKeyInput } from './keyFields.ts';

/** An input without other fields than those of `Allowed`: they would have to be `never`. */
export type Exactly<Input extends Allowed, Allowed> = Input & Record<Exclude<keyof Input, keyof Allowed>, never>;

/** Returns the fields as the store expects them; `meta` is JSON text. A field that the store lacks does not compile. */
export function newKeyOf<Input extends NewKeyInput>(
  input: Exactly<Input, NewKeyInput>,
  meta: string | null | undefined,
): Omit<NewKey, 'digest' | 'start'> {
  const { meta: _parsed, credits, ...unchanged }: NewKeyInput = input;
  return {
    ...(unchanged satisfies Pick<NewKey, keyof typeof unchanged>),
    meta: meta ?? undefined,
    remaining: credits?.remaining ?? undefined,
    refill: credits?.refill,
  };
}

type Refusal = Extract<Awaited<ReturnType<Store['keys']['create']>>, { refused: string }>;

/** The error for keys that the store refused. `locationOf` is that of the fields of a key by its index. */
export function newKeyRefused(
  result: Refusal,
  apiId: string,
  locationOf: (index: string) => string = () => 'body',
): ApiError {
  const { refused, name } = result;
  if (refused === 'ended' || refused === 'too_late') {
    const [key, limit] = name.split(' ');
    return endRefused(refused, `${locationOf(key!)}.ratelimits[${limit}]`);
  }
  if (refused === 'too_many_limits') return tooManyOwnLimits();
  if (refused === 'expired') return expiredBefore();
  if (refused === 'api_not_found') return apiNotFound(apiId);
  // Only imports contain ids.
  if (refused === 'key_id_taken') throw new Error('A new key was refused for its id.');
  return refusalError({ refused, name });
}
