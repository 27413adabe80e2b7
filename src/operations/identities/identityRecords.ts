import { type ApiError, notFound } from '../../errors.ts';
import type { LimitRefusal } from '../../records/keys.ts';
import { recordOperations } from '../recordOperations.ts';
import { limitRefused, tooManyOwnLimits } from '../rules.ts';
import { IdentityRef, ListedIdentity } from '../schemas.ts';

export const identities = recordOperations({
  kind: 'identity',
  ref: IdentityRef,
  item: ListedIdentity,
  roomOf: (store) => store.identities,
});

/**
 * The error for an identity that was not created or changed because of a limit or its plan. `at` is the index of the
 * limit, or a planId.
 */
export function ownerRefused(
  refused: LimitRefusal | 'plan_not_found',
  given: Parameters<typeof limitRefused>[1],
  at: string,
): ApiError {
  if (refused === 'plan_not_found') return notFound('plan', at);
  // With a planId, it is the limit of an owner with a plan.
  return refused === 'too_many_limits' && at !== '' ? tooManyOwnLimits() : limitRefused(refused, given, at);
}
