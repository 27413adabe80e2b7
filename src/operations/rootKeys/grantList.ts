import Type from 'typebox';
import { areTooLong, grantsBytesMax, parseGrant } from '../../domain/grants.ts';
import { ApiError, rootKeyRefusals } from '../../errors.ts';
import type { RootKeyRefusal } from '../../store/rootKeys.ts';
import { invalid } from '../rules.ts';
import { Grant } from '../schemas.ts';

export const GrantList = Type.Array(Grant, {
  minItems: 1,
  maxItems: 1000,
  description: `At most ${grantsBytesMax / 1024} KiB in all.`,
});

/** Grants in their one spelling; refuses what is no grant, and too many bytes of them. */
export function parseGrants(permissions: readonly string[]): string[] {
  const grants = permissions.map((text, index) => {
    const grant = parseGrant(text);
    if (grant === undefined)
      throw invalid(`body.permissions[${index}]`, `names no such resource and action: ${JSON.stringify(text)}`);
    return grant;
  });
  if (areTooLong(grants))
    throw invalid(
      'body.permissions',
      `must NOT have more than ${grantsBytesMax} bytes in all, a line break after each`,
    );
  return grants;
}

/** Why the store did not change a root key, as an error. */
export function rootKeyRefused(result: RootKeyRefusal): ApiError {
  switch (result.refused) {
    case 'lacks':
      return new ApiError(
        'insufficient_permissions',
        `The root key lacks ${result.grant}, which this call needs or grants.`,
      );
    case 'outlives':
      return new ApiError(
        'insufficient_permissions',
        `The root key expires, and gives nothing beyond its own end: set expires to ${result.endsAtMs} ` +
          `(${new Date(result.endsAtMs).toISOString()}) or earlier.`,
      );
    case 'not_covered':
      return new ApiError('insufficient_permissions', 'The root key lacks a permission that the other one holds.');
    case 'root_key_not_found':
      return new ApiError('root_key_not_found', 'There is no such root key.');
    case 'last_root_key':
      return new ApiError(
        'precondition_failed',
        'This is the last enabled root key without expiry that may do everything; make another first.',
      );
    default:
      return rootKeyRefusals[result.refused];
  }
}
