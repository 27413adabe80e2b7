// Reads cursors (src/domain/cursor.ts), which are opaque to callers and valid only for the list they came from.

import { idForms } from '../domain/records.ts';
import { ApiError } from '../errors.ts';
import type { ListedIds } from '../operation.ts';

/** The exact format of the ids of each list. A cursor with another id is rejected without a request to Redis. */
const forms: Record<ListedIds, RegExp> = {
  ...idForms,
  // The expiry in milliseconds, then the id. Without it, the list began before the data was migrated to version 5.
  expiring_key: /^(?:(?:0|[1-9]\d{0,12})_)?key_[1-9A-HJ-NP-Za-km-z]{24}$/,
  // Milliseconds and a number, as in stream ids of Redis, which rejects 0-0 and numbers of more than 64 bits.
  stream: /^[1-9]\d{0,14}-(?:0|[1-9]\d{0,14})$/,
  // The period in hours, then the place of a row: value, time and group (analytics/buckets.ts).
  row: /^\d{1,7}-\d{1,7}_\d{1,16}_\d{1,13}_[0-9a-f]{64}$/,
  // The period in hours, the listing, the digest of prices, if any, then a point and an externalId, which is '' for
  // keys without one; nothing for the beginning.
  customer: /^\d{1,7}-\d{1,7}(?:-[0-9a-f]{12}){1,2}(?:\.[a-zA-Z0-9_.-]{0,255})?$/,
  // The expiry in milliseconds, then the suffix of a hold.
  hold: /^(?:0|[1-9]\d{0,14})_(?:\.\d{1,15}|_[\w.-]{3,64})$/,
  // The end in milliseconds, then the member of the index in base64url: a letter, an id, and the name of a limit (at
  // most 512 bytes) or another id.
  temporary: /^(?:0|[1-9]\d{0,14})_[\w-]{27,720}$/,
  // The hour and the number of a row of refusals.
  refusal: /^\d{1,7}_\d{1,9}$/,
};

/** The id to continue after; undefined for the first page, as '' is. */
export function readCursor(list: string, ids: ListedIds, cursor: string | undefined): string | undefined {
  if (cursor === undefined || cursor === '') return undefined;
  const text = Buffer.from(cursor, 'base64url').toString('utf8');
  const [of, id, ...rest] = text.split(' ');
  const intact = Buffer.from(text).toString('base64url') === cursor;
  if (!intact || of !== list || !id || !forms[ids].test(id) || rest.length > 0) {
    const message = 'is not a cursor of this list';
    const fix = 'Use the cursor of the previous page unchanged.';
    throw new ApiError('invalid_input', `body.cursor ${message}.`, {
      fields: [{ location: 'body.cursor', message, fix }],
    });
  }
  return id;
}
