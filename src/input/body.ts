// The request body: JSON in UTF-8, all of whose text is valid Unicode.
//
// JSON.parse takes up to a microsecond for each member, object and array: 0.1 s for a megabyte of them. A large body is
// therefore parsed in parts. The items of the body, or of an array that is a member of it, are cut out at commas, and
// each part is parsed as an array of its own. The rest is the outline. In
//
//   {"apiId":"api_1","keys":[{"hash":"a"},{"hash":"b"},{"hash":"c"}]}
//
// these are {"apiId":"api_1","keys":[0]} and, if a part took two items, [{"hash":"a"},{"hash":"b"}] and [{"hash":"c"}].
// The 0 is the place of the array among those that were cut out. The body is valid JSON exactly when the outline and
// all parts are, because each part is a list of items and replaces one in the outline.

import { isUtf8 } from 'node:buffer';
import { closeBrace, closeBracket, colon, comma, endOfString, openBrace, openBracket, quote } from '../domain/json.ts';
import { withoutMark } from '../domain/text.ts';
import { ApiError } from '../errors.ts';

export interface Body {
  text: string;
  value: unknown;
}

/**
 * Maximum members, objects and arrays of one item, or of the outline. An item of keys.migrateKeys has at most 5,400.
 */
export const structureMax = 32_768;
/** A part ends at the first comma after this much structure, or this many characters. */
const partSize = { structure: 4096, characters: 65_536 };
/** Parsing continues without a pause for this long. */
const stepMs = 5;

/** Parses a body that is too short to delay other requests. */
export function parseBody(body: Buffer): Body {
  const text = decode(body);
  const value = parse(text);
  if (hasLoneSurrogate(text)) throw loneSurrogate();
  return { text, value };
}

/** Parses a body of any length in steps of a few milliseconds. Other requests run during `pause`. */
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
      const parsedPart = parsePart(`[${part}]`) as unknown[];
      if (parsedPart.length === 0 && parts.length > 1)
        throw malformed('is not valid JSON: an item is missing after a comma');
      for (const item of parsedPart) items.push(item);
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
  return withoutMark(body.toString());
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    // Without the part of the body that V8 quotes.
    throw malformed(`is not valid JSON: ${(cause as Error).message.replace(/ \.\.\..*$|, ".*$/s, '')}`);
  }
}

/** As `parse`, but without the position in an error, which refers to the part. */
function parsePart(text: string): unknown {
  try {
    return parse(text);
  } catch (cause) {
    const { message } = cause as ApiError;
    throw malformed(message.replace(/^The body |( in JSON)? at position .*$|\.$/gs, ''));
  }
}

/** Returns the outline with the arrays in place of their numbers. */
function joined(outline: unknown, arrays: unknown[][]): unknown {
  if (Array.isArray(outline)) return arrays[outline[0] as number];
  if (typeof outline !== 'object' || outline === null) return outline;
  const members = outline as Record<string, unknown>;
  for (const [name, value] of Object.entries(members)) {
    // The member exists already, so this is safe for `__proto__`.
    if (Array.isArray(value)) members[name] = arrays[value[0] as number];
  }
  return outline;
}

/** No array is being cut: the text is part of the outline. */
const none = -1;

interface Cut {
  outline: string;
  /** The parts of each array that was cut out, without its brackets. */
  arrays: string[][];
}

/** Cuts a text into parts. If it is not valid JSON, this throws, or the outline or a part is not valid JSON either. */
function cut(text: string, size: typeof partSize): Cut {
  const arrays: string[][] = [];
  let outline = '';
  /** Everything before is in the outline or in a part. */
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

/**
 * Whether an escape is half of a surrogate pair. Searches the text, because recursion into the value could overflow the
 * stack.
 */
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

/** Whether there is an escape of a surrogate at `at`. */
const isHalf = (text: string, at: number, digits = anyHalf): boolean =>
  text[at] === '\\' &&
  text[at + 1] === 'u' &&
  (text[at + 2] === 'd' || text[at + 2] === 'D') &&
  digits.includes(text[at + 3]!);

const malformed = (message: string) =>
  new ApiError('invalid_input', `The body ${message}.`, { fields: [{ location: 'body', message }] });
const loneSurrogate = () => malformed('is not valid JSON: an escape is half of a surrogate pair');
const unbalanced = () => malformed('is not valid JSON: its brackets do not match');
const tooMuch = () =>
  malformed(`has more than ${structureMax} members, objects and arrays in one item or outside its arrays`);
