import Type from 'typebox';
import type { Caller } from '../../domain/caller.ts';
import { parseGrant } from '../../domain/grants.ts';
import { ApiError } from '../../errors.ts';
import { invalid } from '../rules.ts';
import { Grant } from '../schemas.ts';

export const GrantList = Type.Array(Grant, { minItems: 1, maxItems: 1000 });

/** Grants in their one spelling; refuses what is no grant. */
export function parseGrants(permissions: readonly string[]): string[] {
  return permissions.map((text, index) => {
    const grant = parseGrant(text);
    if (grant === undefined)
      throw invalid(`body.permissions[${index}]`, `names no such resource and action: ${JSON.stringify(text)}`);
    return grant;
  });
}

/** The same, and refuses what the caller does not hold itself. */
export function checkGrants(permissions: readonly string[], caller: Caller): string[] {
  const grants = parseGrants(permissions);
  const lacking = grants.find((grant) => !caller.grants.covers(grant));
  if (lacking !== undefined)
    throw new ApiError('insufficient_permissions', `The root key lacks ${lacking}, so it cannot grant it.`);
  return grants;
}

export const rootKeyNotFound = () => new ApiError('root_key_not_found', 'There is no such root key.');

/** What the store refused to do to a root key. */
export function refuseRootKey(outcome: 'root_key_not_found' | 'not_covered' | 'last_root_key'): never {
  if (outcome === 'root_key_not_found') throw rootKeyNotFound();
  if (outcome === 'not_covered')
    throw new ApiError('insufficient_permissions', 'The root key lacks a permission that the other one holds.');
  throw new ApiError(
    'precondition_failed',
    'This is the last enabled root key without expiry that may do everything; make another first.',
  );
}
