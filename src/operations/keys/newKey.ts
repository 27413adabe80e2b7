// The fields of a new key that keys.createKey and keys.migrateKeys share: in the input, and for the store.

import type { Static } from 'typebox';
import type { ApiError } from '../../errors.ts';
import type { NewKey } from '../../store/keys.ts';
import type { Store } from '../../store/store.ts';
import Type from '../../typebox.ts';
import { apiNotFound, checkCredits, checkNamesOnce, mayNotCreate, roleNotFound } from '../rules.ts';
import { Expires, ExternalId, Fields, KeyName, Meta, NewCredits, Ratelimits, RoleName, Slug } from '../schemas.ts';

export const newKeyFields = {
  name: Type.Optional(KeyName),
  externalId: Type.Optional(ExternalId),
  meta: Type.Optional(Meta),
  roles: Type.Optional(Type.Array(RoleName, { maxItems: 100 })),
  permissions: Type.Optional(Type.Array(Slug, { maxItems: 1000 })),
  expires: Type.Optional(Expires),
  enabled: Type.Optional(Type.Boolean({ default: true })),
  credits: Type.Optional(NewCredits),
  ratelimits: Type.Optional(Ratelimits),
};

const NewKeyInput = Fields(newKeyFields);
type NewKeyInput = Static<typeof NewKeyInput>;

/** Fields that are passed to the store unchanged. */
type Unchanged = Exclude<keyof NewKeyInput, 'meta' | 'credits'>;

/**
 * Returns the fields as the store expects them; `meta` is JSON text. Forgetting a field is a compile error: `Unchanged` requires
 * those of `newKeyFields`, and any other field of `Input` would have to be `never`.
 */
export function newKeyOf<Input extends NewKeyInput>(
  input: Input & Record<Exclude<keyof Input, keyof NewKeyInput>, never>,
  meta: string | null | undefined,
): Omit<NewKey, 'digest' | 'start'> {
  const { name, externalId, roles, permissions, expires, enabled, ratelimits, credits }: NewKeyInput = input;
  const unchanged = { name, externalId, roles, permissions, expires, enabled, ratelimits } satisfies Pick<
    NewKey,
    Unchanged
  > &
    Record<Unchanged, unknown>;
  return {
    ...unchanged,
    meta: meta ?? undefined,
    remaining: credits?.remaining ?? undefined,
    refill: credits?.refill as NewKey['refill'],
  };
}

/** Checks what the schema cannot express, except `meta`. `at` is the location of the fields in the input. */
export function checkNewKey({ credits, ratelimits }: NewKeyInput, at: string) {
  checkCredits(credits, `${at}.credits`);
  checkNamesOnce(ratelimits, `${at}.ratelimits`);
}

type Refusal = Extract<Awaited<ReturnType<Store['keys']['create']>>, { refused: string }>;

/** The error for keys that the store refused. */
export function newKeyRefused(result: Refusal): ApiError {
  if (result.refused === 'api_not_found') return apiNotFound();
  return result.refused === 'role_not_found' ? roleNotFound(result.name) : mayNotCreate(result.name);
}
