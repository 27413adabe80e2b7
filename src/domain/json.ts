// JSON that is already text. Metadata is stored and answered as the text that came in, so that key order, repeated
// zeros and large numbers survive; nothing parses it only to print it again.

/** A JSON value as text, printed as it stands. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** JSON.stringify for values that may hold JsonText. */
export function print(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => print(item ?? null)).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const members: string[] = [];
    for (const [name, member] of Object.entries(value)) {
      if (member !== undefined) members.push(`${JSON.stringify(name)}:${print(member)}`);
    }
    return `{${members.join(',')}}`;
  }
  return JSON.stringify(value);
}

/** Goes over the tokens of a JSON document, which must be valid (it has been parsed). */
class Walker {
  at = 0;
  readonly #json: string;

  constructor(json: string) {
    this.#json = json;
    this.skipSpace();
  }

  get character(): string | undefined {
    return this.#json[this.at];
  }

  skipSpace() {
    const json = this.#json;
    while (json[this.at] === ' ' || json[this.at] === '\n' || json[this.at] === '\r' || json[this.at] === '\t')
      this.at++;
  }

  skipString() {
    const json = this.#json;
    let at = this.at + 1;
    for (; json[at] !== '"'; at++) if (json[at] === '\\') at++;
    this.at = at + 1;
  }

  /** A value ends where its brackets are closed, or at the first delimiter when it has none. */
  skipValue() {
    const json = this.#json;
    let depth = 0;
    do {
      const character = json[this.at];
      if (character === '"') this.skipString();
      else {
        if (character === '{' || character === '[') depth++;
        if (character === '}' || character === ']') depth--;
        this.at++;
        if (character !== '{' && character !== '[' && character !== '}' && character !== ']') {
          while (depth === 0 && this.at < json.length && !',]} \n\r\t'.includes(json[this.at]!)) this.at++;
        }
      }
    } while (depth > 0);
  }

  /** The text of the value that comes next. */
  readValue(): string {
    const start = this.at;
    this.skipValue();
    return this.#json.slice(start, this.at);
  }

  /** Calls `visit` before the value of each member or item of the object or array that begins here, with its name or place. */
  visitMembers(visit: (name: string | number) => void) {
    const isObject = this.character === '{';
    this.at++;
    this.skipSpace();
    for (let index = 0; this.character !== '}' && this.character !== ']'; index++) {
      let name: string | number = index;
      if (isObject) {
        const start = this.at;
        this.skipString();
        name = JSON.parse(this.#json.slice(start, this.at)) as string;
        this.skipSpace();
        this.at++; // The colon.
        this.skipSpace();
      }
      const before = this.at;
      visit(name);
      if (this.at === before) this.skipValue();
      this.skipSpace();
      if (this.character === ',') this.at++;
      this.skipSpace();
    }
    this.at++;
  }
}

/**
 * The text of one member of a JSON document, without the white space between its tokens. `json` must be valid JSON (it
 * has been parsed); `path` names members and array positions. Where a name is repeated the last one counts, as in
 * JSON.parse. Undefined when there is no such member.
 */
export function memberText(json: string, path: readonly (string | number)[]): string | undefined {
  const walker = new Walker(json);
  for (const step of path) {
    if (walker.character !== (typeof step === 'number' ? '[' : '{')) return undefined;
    let found = -1;
    walker.visitMembers((name) => {
      if (name === step) found = walker.at;
    });
    if (found < 0) return undefined;
    walker.at = found;
  }
  return compact(walker.readValue());
}

/** The texts of the items of a JSON array, in one go: asking memberText for each would read the document as often. */
export function itemTexts(json: string): string[] {
  const texts: string[] = [];
  const walker = new Walker(json);
  walker.visitMembers(() => texts.push(walker.readValue()));
  return texts;
}

/** Without white space outside of strings. Not one pattern for all of it: that overflows its stack on a string of many megabytes. */
function compact(json: string): string {
  const walker = new Walker(json);
  const parts: string[] = [];
  let from = 0;
  const quoteOrSpace = /"|[ \n\r\t]+/g;
  for (let found = quoteOrSpace.exec(json); found; found = quoteOrSpace.exec(json)) {
    if (found[0] === '"') {
      walker.at = found.index;
      walker.skipString();
      quoteOrSpace.lastIndex = walker.at;
    } else {
      parts.push(json.slice(from, found.index));
      from = quoteOrSpace.lastIndex;
    }
  }
  parts.push(json.slice(from));
  return parts.join('');
}
