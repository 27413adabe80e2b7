// Cursors: opaque to callers, and good only for the list they came from. A list is named in one word.

import { ApiError } from '../errors.ts';

/** Of anything that is listed: a cursor with another was not made here. */
const idPattern = /^(?:[a-z]+_[1-9A-HJ-NP-Za-km-z]{16,24}|\d+-\d+)$/;

export const cursorAfter = (list: string, id: string): string => Buffer.from(`${list} ${id}`).toString('base64url');

/** The id to continue after; undefined for the first page. */
export function readCursor(list: string, cursor: string | undefined): string | undefined {
  if (cursor === undefined) return undefined;
  const text = Buffer.from(cursor, 'base64url').toString('utf8');
  const [of, id, ...rest] = text.split(' ');
  const intact = Buffer.from(text).toString('base64url') === cursor;
  if (!intact || of !== list || !id || !idPattern.test(id) || rest.length > 0) {
    const message = 'is not a cursor of this list';
    const fix = 'Pass on the cursor of the page before as it is.';
    throw new ApiError('invalid_input', `body.cursor ${message}.`, {
      fields: [{ location: 'body.cursor', message, fix }],
    });
  }
  return id;
}
