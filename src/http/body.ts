// The request body: JSON in UTF-8, all of whose text is valid Unicode.
//
// JSON.parse takes up to a microsecond for each member, object and array: 0.1 s for a megabyte of them. A large body is
// therefore parsed in parts. The items of the body, or of an array that is a member of it, are cut out at commas, and each
// part is parsed as an array of its own. What remains is the outline. In
//
//   {"apiId":"api_1","keys":[{"hash":"a"},{"hash":"b"},{"hash":"c"}]}
//
// these are {"apiId":"api_1","keys":[0]} and, if a part took two items, [{"hash":"a"},{"hash":"b"}] and [{"hash":"c"}]. The
// 0 is the place of the array among those that were cut out. The body is valid JSON exactly when the outline and all parts
// are, as each part is a list of items and stands where the outline has one.

import { isUtf8 } from 'node:buffer';
import { closeBrace, closeBracket, colon, comma, endOfString, openBrace, openBracket, quote } from '../domain/json.ts';
import { ApiError } from '../errors.ts';

export interface Body {
  text: string;
  value: unknown;
}

/** Members, objects and arrays of one item, or of the outline. An item of keys.migrateKeys has some 5,400 at most. */
export const structureMax = 32_768;
/** A part ends at the first comma after so many of them, or so many characters. */
const partSize = { structure: 4096, characters: 65_536 };
/** Parsing goes on without a pause for this long. */
const stepMs = 5;

/** Parses a body that is too short to hold up other requests. */
export function parseBody(body: Buffer): Body {
  const text = decode(body);
  const value = parse(text);
  if (hasLoneSurrogate(text)) throw loneSurrogate();
  return { text, value };
}

/** Parses a body of any length in steps of some milliseconds; `pause` lets others run between them. */
export async function parseLargeBody(body: Buffer, pause: () => Promise<void>, size = partSize): Promise<Body> {
  const text = decode(body);
  const { outline, arrays } = cut(text, size);
  await pause();
  let since = performance.now();
  const parsed: unknown[][] = [];
  for (const parts of arrays) {
    const items: unknown[] = [];
    parsed.push(items);
    for (const part of parts) {
      const some = parsePart(`[${part}]`) as unknown[];
      if (some.length === 0 && parts.length > 1) throw malformed('is not valid JSON: an item is missing after a comma');
      for (const item of some) items.push(item);
      if (performance.now() - since > stepMs) {
        await pause();
        since = performance.now();
      }
    }
  }
  const value = joined(parsePart(outline), parsed);
  if (hasLoneSurrogate(text)) throw loneSurrogate();
  return { text, value };
}

function decode(body: Buffer): string {
  if (!isUtf8(body)) throw malformed('is not valid UTF-8');
  return body.toString('utf8');
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    // Without what V8 quotes of the body.
    throw malformed(`is not valid JSON: ${(cause as Error).message.replace(/ \.\.\..*$|, ".*$/s, '')}`);
  }
}

/** As `parse`, without the position in an error: it is not that in the body. */
function parsePart(text: string): unknown {
  try {
    return parse(text);
  } catch (cause) {
    const { message } = cause as ApiError;
    throw malformed(message.replace(/^The body |( in JSON)? at position .*$|\.$/gs, ''));
  }
}

/** The outline with the arrays in their places. */
function joined(outline: unknown, arrays: unknown[][]): unknown {
  if (Array.isArray(outline)) return arrays[outline[0] as number];
  if (typeof outline !== 'object' || outline === null) return outline;
  const members = outline as Record<string, unknown>;
  for (const [name, value] of Object.entries(members)) {
    // An own member already, also where it is named __proto__.
    if (Array.isArray(value)) members[name] = arrays[value[0] as number];
  }
  return outline;
}

/** No array is being cut: this is the outline. */
const none = -1;

interface Cut {
  outline: string;
  /** The parts of each array that was cut out, without its brackets. */
  arrays: string[][];
}

/** Cuts a text in parts. Of a text that is not valid JSON the outline or one of the parts is not valid either, or it throws. */
function cut(text: string, size: typeof partSize): Cut {
  const arrays: string[][] = [];
  let outline = '';
  /** What comes before is in the outline or in a part. */
  let from = 0;
  let depth = 0;
  /** The depth inside of the array that is being cut. */
  let cutDepth = none;
  let outlineStructure = 0;
  let structure = 0;

  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    switch (code) {
      case quote:
        at = endOfString(text, at) - 1;
        break;
      case colon:
        if (++structure > structureMax) throw tooMuch();
        break;
      case openBrace:
      case openBracket:
        depth++;
        if (++structure > structureMax) throw tooMuch();
        if (code === openBracket && cutDepth === none && depth <= 2) {
          cutDepth = depth;
          outline += `${text.slice(from, at + 1)}${arrays.length}`;
          arrays.push([]);
          [outlineStructure, structure] = [structure, 0];
          from = at + 1;
        }
        break;
      case comma:
        if (depth !== cutDepth) break;
        if (structure > size.structure || at - from > size.characters) {
          arrays.at(-1)!.push(text.slice(from, at));
          structure = 0;
          from = at + 1;
        }
        break;
      case closeBrace:
      case closeBracket:
        if (depth === cutDepth) {
          arrays.at(-1)!.push(text.slice(from, at));
          structure = outlineStructure;
          from = at;
          cutDepth = none;
        }
        if (--depth < 0) throw unbalanced();
    }
  }
  if (depth > 0) throw unbalanced();
  return { outline: outline + text.slice(from), arrays };
}

/** Whether an escape stands for half of a character. On the text: going through the value would overflow the stack. */
function hasLoneSurrogate(text: string): boolean {
  for (let at = text.indexOf('\\'); at >= 0; at = text.indexOf('\\', at)) {
    if (!isHalf(text, at)) at += 2;
    else if (isHalf(text, at, lowHalf) || !isHalf(text, at + 6, lowHalf)) return true;
    else at += 12;
  }
  return false;
}

/** The third digit of `\udc00` to `\udfff`, and of those and `\ud800` to `\udbff`. */
const lowHalf = 'cdefCDEF';
const anyHalf = `89abAB${lowHalf}`;

/** Whether the text at `at` is an escape that stands for half of a character. */
const isHalf = (text: string, at: number, digits = anyHalf): boolean =>
  text[at] === '\\' &&
  text[at + 1] === 'u' &&
  (text[at + 2] === 'd' || text[at + 2] === 'D') &&
  digits.includes(text[at + 3]!);

const malformed = (message: string) =>
  new ApiError('invalid_input', `The body ${message}.`, { fields: [{ location: 'body', message }] });
const loneSurrogate = () => malformed('is not valid JSON: an escape stands for half of a character');
const unbalanced = () => malformed('is not valid JSON: its brackets do not match');
const tooMuch = () =>
  malformed(`has more than ${structureMax} members, objects and arrays in one item, or outside of its arrays`);
