// Cursors: opaque to callers, and good only for the list they came from.

import { invalid } from './rules.ts';

export const cursorAfter = (list: string, id: string): string => Buffer.from(`${list} ${id}`).toString('base64url');

/** The id to continue after; undefined for the first page. */
export function readCursor(list: string, cursor: string | undefined): string | undefined {
  if (cursor === undefined) return undefined;
  const text = Buffer.from(cursor, 'base64url').toString('utf8');
  const [of, id, ...rest] = text.split(' ');
  const intact = Buffer.from(text).toString('base64url') === cursor;
  if (!intact || of !== list || !id || rest.length > 0)
    throw invalid('body.cursor', 'is not a cursor of this list', 'Pass on the cursor of the page before as it is.');
  return id;
}
