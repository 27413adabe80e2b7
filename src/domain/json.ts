// JSON as text. Metadata is stored and returned as the text that was received, so that key order, trailing zeros and
// large numbers survive; it is not parsed to be printed again.

/** A JSON value as text, printed unchanged. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

/** Without lists of the values, which would be garbage for each row of a response. */
function holdsText(value: unknown): boolean {
  if (!isObject(value)) return false;
  if (value instanceof JsonText) return true;
  if (Array.isArray(value)) return value.some(holdsText);
  for (const name in value) if (holdsText((value as Record<string, unknown>)[name])) return true;
  return false;
}

/**
 * JSON.stringify for values that may contain JsonText. A part without any is printed natively: one by one, the hundred
 * thousand permissions that a key may have took 60 ms.
 */
export function print(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  if (!isObject(value) || !holdsText(value)) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => print(item ?? null)).join(',')}]`;
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    if (member !== undefined) members.push(`${JSON.stringify(name)}:${print(member)}`);
  }
  return `{${members.join(',')}}`;
}

// Character codes, because comparing numbers is the fastest way to scan a long text.
export const quote = 0x22;
export const comma = 0x2c;
export const colon = 0x3a;
const backslash = 0x5c;
export const openBracket = 0x5b;
export const closeBracket = 0x5d;
export const openBrace = 0x7b;
export const closeBrace = 0x7d;

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
const closes = (code: number): boolean => code === closeBrace || code === closeBracket;

/** Returns the position after the string that starts at `at`; beyond the text if it has no closing quote. */
export function endOfString(json: string, at: number): number {
  for (let next = at + 1; next < json.length; next++) {
    const code = json.charCodeAt(next);
    if (code === quote) return next + 1;
    if (code === backslash) next++;
  }
  return json.length + 1;
}

/** Walks the tokens of a JSON document, which must be valid (it has been parsed). */
class Walker {
  at = 0;
  readonly #json: string;

  constructor(json: string) {
    this.#json = json;
    this.skipSpace();
  }

  /** The code of the next character; NaN at the end. */
  get code(): number {
    return this.#json.charCodeAt(this.at);
  }

  skipSpace() {
    const json = this.#json;
    let { at } = this;
    while (isSpace(json.charCodeAt(at))) at++;
    this.at = at;
  }

  /** A value ends with its closing bracket, or at the first delimiter if it has no brackets. */
  skipValue() {
    const json = this.#json;
    let { at } = this;
    let depth = 0;
    do {
      const code = json.charCodeAt(at);
      if (code === quote) {
        at = endOfString(json, at);
        continue;
      }
      if (code === openBrace || code === openBracket) depth++;
      else if (closes(code)) depth--;
      else if (depth === 0) {
        for (let next = code; at < json.length && !(isSpace(next) || next === comma || closes(next)); ) {
          next = json.charCodeAt(++at);
        }
        break;
      }
      at++;
    } while (depth > 0);
    this.at = at;
  }

  /** Returns the text of the next value. */
  readValue(): string {
    const start = this.at;
    this.skipValue();
    return this.#json.slice(start, this.at);
  }

  /** Calls `visit` with the name or index of each member of the object or array that starts here, before its value. */
  visitMembers(visit: (name: string | number) => void) {
    const isObject = this.code === openBrace;
    this.at++;
    this.skipSpace();
    for (let index = 0; !closes(this.code); index++) {
      let name: string | number = index;
      if (isObject) {
        const start = this.at;
        this.at = endOfString(this.#json, start);
        name = JSON.parse(this.#json.slice(start, this.at)) as string;
        this.skipSpace();
        this.at++; // The colon.
        this.skipSpace();
      }
      const before = this.at;
      visit(name);
      if (this.at === before) this.skipValue();
      this.skipSpace();
      if (this.code === comma) this.at++;
      this.skipSpace();
    }
    this.at++;
  }
}

/**
 * Returns the text of a member of a JSON document without whitespace between its tokens; undefined if there is none.
 * `json` must be valid (it has been parsed), and `path` has names of members and array indexes. If a name is repeated,
 * the last one counts, as in JSON.parse.
 */
export function memberText(json: string, path: readonly (string | number)[]): string | undefined {
  let text: string | undefined = json;
  for (const step of path) {
    const walker: Walker = new Walker(text);
    if (walker.code !== (typeof step === 'number' ? openBracket : openBrace)) return undefined;
    let found: string | undefined;
    walker.visitMembers((name) => {
      if (name === step) found = walker.readValue();
    });
    if (found === undefined) return undefined;
    text = found;
  }
  return compact(text);
}

/** Returns the texts of some members of a JSON object in one pass, each as `memberText` does. */
export function memberTextsOf(json: string, names: readonly string[]): (string | undefined)[] {
  const texts: (string | undefined)[] = names.map(() => undefined);
  if (names.length === 0) return texts;
  const walker = new Walker(json);
  walker.visitMembers((name) => {
    const index = names.indexOf(name as string);
    if (index >= 0) texts[index] = compact(walker.readValue());
  });
  return texts;
}

/**
 * Returns `memberText` of one document. It caches the items of arrays and what it returned, so that the texts of a
 * thousand items, however often they are asked for, cost as much as reading the document twice.
 */
export function memberTexts(json: string): (...path: (string | number)[]) => string | undefined {
  const arrays = new Map<string, string[]>();
  const texts = new Map<string, string | undefined>();
  function itemsOf(name: string): string[] {
    let items = arrays.get(name);
    if (!items) {
      items = itemTexts(json, name);
      arrays.set(name, items);
    }
    return items;
  }
  function read(path: (string | number)[]): string | undefined {
    const [name, index, ...rest] = path;
    if (typeof name !== 'string' || typeof index !== 'number') return memberText(json, path);
    const item = itemsOf(name)[index];
    return item === undefined ? undefined : memberText(item, rest);
  }
  return (...path) => {
    const place = JSON.stringify(path);
    if (!texts.has(place)) texts.set(place, read(path));
    return texts.get(place);
  };
}

/** Returns the texts of the items of an array that is a member of an object; none for anything else. */
function itemTexts(json: string, name: string): string[] {
  let texts: string[] = [];
  const walker = new Walker(json);
  if (walker.code !== openBrace) return texts;
  walker.visitMembers((member) => {
    if (member !== name) return;
    texts = [];
    if (walker.code === openBracket) walker.visitMembers(() => texts.push(walker.readValue()));
  });
  return texts;
}

/** Removes whitespace outside strings. */
function compact(json: string): string {
  if (!/\s/.test(json)) return json;
  const parts: string[] = [];
  let from = 0;
  for (let at = 0; at < json.length; ) {
    const code = json.charCodeAt(at);
    if (code === quote) at = endOfString(json, at);
    else if (!isSpace(code)) at++;
    else {
      parts.push(json.slice(from, at));
      while (isSpace(json.charCodeAt(at))) at++;
      from = at;
    }
  }
  parts.push(json.slice(from));
  return parts.join('');
}
