// The request body: JSON in UTF-8, all of whose text is valid Unicode.

import { isUtf8 } from 'node:buffer';
import { ApiError } from '../errors.ts';

/** An escape that may stand for half of a character. */
const surrogate = /\\u[dD][89a-fA-F]/;

export function parseBody(body: Buffer): { text: string; value: unknown } {
  if (!isUtf8(body)) throw malformed('is not valid UTF-8');
  const text = body.toString('utf8');
  try {
    const value: unknown = surrogate.test(text) ? JSON.parse(text, refuseHalfCharacters) : JSON.parse(text);
    return { text, value };
  } catch (cause) {
    throw malformed(`is not valid JSON: ${(cause as Error).message.replace(/ \.\.\..*$|, ".*$/s, '')}`);
  }
}

const malformed = (message: string) =>
  new ApiError('invalid_input', `The body ${message}.`, { fields: [{ location: 'body', message }] });

function refuseHalfCharacters(name: string, value: unknown): unknown {
  for (const text of [name, value]) {
    if (typeof text === 'string' && !text.isWellFormed()) throw new Error('an escape stands for half of a character');
  }
  return value;
}
