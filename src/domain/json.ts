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

/**
 * The text of one member of a JSON document, without the white space between its tokens. `json` must be valid JSON (it
 * has been parsed); `path` names members and array positions. Where a name is repeated the last one counts, as in
 * JSON.parse. Undefined when there is no such member.
 */
export function memberText(json: string, path: readonly (string | number)[]): string | undefined {
  let at = 0;
  const skipSpace = () => {
    while (json[at] === ' ' || json[at] === '\n' || json[at] === '\r' || json[at] === '\t') at++;
  };
  const skipString = () => {
    for (at++; json[at] !== '"'; at++) if (json[at] === '\\') at++;
    at++;
  };
  // A value ends where its brackets are closed, or at the first delimiter when it has none.
  const skipValue = () => {
    let depth = 0;
    do {
      const character = json[at];
      if (character === '"') skipString();
      else {
        if (character === '{' || character === '[') depth++;
        if (character === '}' || character === ']') depth--;
        at++;
        if (character !== '{' && character !== '[' && character !== '}' && character !== ']') {
          while (depth === 0 && at < json.length && !',]} \n\r\t'.includes(json[at]!)) at++;
        }
      }
    } while (depth > 0);
  };

  skipSpace();
  for (const step of path) {
    const opening = json[at];
    if (opening !== (typeof step === 'number' ? '[' : '{')) return undefined;
    let found = -1;
    at++;
    skipSpace();
    for (let index = 0; json[at] !== '}' && json[at] !== ']'; index++) {
      let name: string | number = index;
      if (typeof step === 'string') {
        const start = at;
        skipString();
        name = JSON.parse(json.slice(start, at)) as string;
        skipSpace();
        at++; // The colon.
        skipSpace();
      }
      if (name === step) found = at;
      skipValue();
      skipSpace();
      if (json[at] === ',') at++;
      skipSpace();
    }
    if (found < 0) return undefined;
    at = found;
  }
  const start = at;
  skipValue();
  return compact(json.slice(start, at));
}

/** Without white space outside of strings. */
const compact = (json: string): string =>
  json.replace(/("(?:[^"\\]|\\.)*")|[ \n\r\t]+/gs, (_match, quoted: string | undefined) => quoted ?? '');
