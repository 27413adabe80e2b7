// The names of lists, which their cursors contain.

import { digestOf } from '../domain/keyString.ts';

/**
 * The name of the list that a query finds: a cursor is valid only for the filters it came from. The digest of the
 * filters has 32 bytes, or as many as are given.
 */
export function listOf(list: string, query: object, digestBytes?: number): string {
  const filters = Object.entries(query).filter(([name]) => name !== 'limit' && name !== 'cursor');
  return `${list}:${digestOf(JSON.stringify(filters.sort())).toString('base64url', 0, digestBytes)}`;
}
