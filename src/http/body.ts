// The request body: JSON in UTF-8, all of whose text is valid Unicode.

import { isUtf8 } from 'node:buffer';
import { ApiError } from '../errors.ts';

/** An escape that may stand for half of a character, and what is none: an escaped backslash, or both halves together. */
const half = /\\u[dD][89a-fA-F]/;
const noHalves = /\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]../g;

export function parseBody(body: Buffer): { text: string; value: unknown } {
  if (!isUtf8(body)) throw malformed('is not valid UTF-8');
  const text = body.toString('utf8');
  try {
    const value: unknown = JSON.parse(text);
    // On the text: going through the value would overflow the stack where JSON.parse does not.
    if (half.test(text) && half.test(text.replace(noHalves, ' '))) {
      throw new Error('an escape stands for half of a character');
    }
    return { text, value };
  } catch (cause) {
    throw malformed(`is not valid JSON: ${(cause as Error).message.replace(/ \.\.\..*$|, ".*$/s, '')}`);
  }
}

const malformed = (message: string) =>
  new ApiError('invalid_input', `The body ${message}.`, { fields: [{ location: 'body', message }] });
