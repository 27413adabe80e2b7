import Type from 'typebox';
import { areTooLong, grantsBytesMax, parseGrant } from '../../domain/grants.ts';
import { ApiError, notFound, rootKeyRefusals } from '../../errors.ts';
import type { RootKeyRefusal } from '../../records/rootKeys.ts';
import { expiredBefore, invalid } from '../rules.ts';
import { Grant } from '../schemas.ts';

export const GrantList = Type.Array(Grant, {
  minItems: 1,
  maxItems: 1000,
  description: `Grants, at most ${grantsBytesMax / 1024} KiB in total.`,
});

/** Describes `enabled` of a root key. */
export const enabledDescription = 'False: every operation refuses it with 403, and the gateway check with 500.';

/** Describes the 412 of a change that a workspace would not recover from. */
export const lastRootKey =
  'The last enabled root key without expiry that has all grants stays so: a change or deletion that would end this is refused with 412.';

/** Returns grants in canonical form. Rejects an invalid grant, and too many bytes of them. */
export function parseGrants(permissions: readonly string[]): string[] {
  const grants = permissions.map((text, index) => {
    const grant = parseGrant(text);
    if (grant === undefined)
      throw invalid(`body.permissions[${index}]`, `names an unknown resource or action: ${JSON.stringify(text)}`);
    return grant;
  });
  if (areTooLong(grants))
    throw invalid(
      'body.permissions',
      `must NOT have more than ${grantsBytesMax} bytes in total, counting a line break after each`,
    );
  return grants;
}

/** The error for a change of a root key that the store refused. */
export function rootKeyRefused(result: RootKeyRefusal): ApiError {
  switch (result.refused) {
    case 'lacks':
      return new ApiError(
        'insufficient_permissions',
        `The root key lacks ${result.grant}, which this call requires or grants.`,
      );
    case 'outlives':
      return new ApiError(
        'insufficient_permissions',
        `The calling root key expires and cannot grant a later expiry: set expires to ${result.endsAtMs} ` +
          `(${new Date(result.endsAtMs).toISOString()}) or earlier.`,
      );
    case 'not_covered':
      return new ApiError(
        'insufficient_permissions',
        'The calling root key lacks a grant that the other root key has.',
      );
    case 'expired':
      return expiredBefore();
    case 'root_key_not_found':
      return notFound('root_key');
    case 'last_root_key':
      return new ApiError(
        'precondition_failed',
        'This is the last enabled root key without expiry that has all grants. Create another one first.',
      );
    case 'unauthorized':
    case 'root_key_disabled':
    case 'root_key_expired':
      return rootKeyRefusals[result.refused];
  }
}
