// Bodies of any length that are as expensive to parse as possible. They are valid JSON and, mostly, invalid input.

import { hash } from './examples.ts';

/** A value of at most this many characters, made of parts that may depend on their index. */
function filled(characters: number, begin: string, part: (index: number) => string, end: string, comma = ','): string {
  const parts: string[] = [];
  let left = characters - begin.length - end.length;
  for (let index = 0; ; index++) {
    const next = part(index);
    left -= next.length + comma.length;
    if (left < 0) break;
    parts.push(next);
  }
  return begin + parts.join(comma) + end;
}

const name = (index: number) => `"${index.toString(36)}":0`;
const names = (first: number, count: number) =>
  Array.from({ length: count }, (_, at) => name(first * count + at)).join(',');
const items = (item: (index: number) => string) => (characters: number) => filled(characters, '[', item, ']');
const text = (unit: string) => (characters: number) => filled(characters, '"', () => unit, '"', '');
const nested = (open: string, inner: string, close: string) => (characters: number) => {
  const depth = Math.floor((characters - inner.length) / (open.length + close.length));
  return open.repeat(depth) + inner + close.repeat(depth);
};

/** Functions that make a value of a given number of bytes, by the kind of value. */
export const longValues: Record<string, (bytes: number) => string> = {
  'items {}': items(() => '{}'),
  'items []': items(() => '[]'),
  'items 0': items(() => '0'),
  'items ""': items(() => '""'),
  'different texts': items((index) => `"${index.toString(36)}"`),
  'objects of one name each': items((index) => `{${name(index)}}`),
  'objects of 20 names each': items((index) => `{${names(index, 20)}}`),
  'an object of names': (characters) => filled(characters, '{', name, '}'),
  'one name again and again': (characters) => filled(characters, '{', () => '"a":0', '}'),
  'nested arrays': nested('[', '', ']'),
  'nested objects': nested('{"":', '0', '}'),
  'a long text': text('a'),
  'a long text of four bytes a character': (bytes) => text('😀')(bytes / 2),
  'a long text of escapes': text('\\\\'),
  'a long text of escaped pairs': text('\\ud83d\\ude00'),
  'a long name': (characters) => `{${text('n')(characters - 4)}:0}`,
  'a long number': (characters) => '1'.repeat(characters),
  'white space': (characters) => `${' '.repeat(characters - 2)}{}`,
};

/** The input with a long value as one member. */
export const withLongValue = (input: object, member: string, value: string): string =>
  JSON.stringify({ ...input, [member]: '@long@' }).replace('"@long@"', () => value);

/** Valid inputs of keys.migrateKeys with the maximum body size, and metadata that is expensive to parse. */
export function longImports(apiId: string, bytes: number): Record<string, string> {
  const begin = `{"migrationId":"long","apiId":"${apiId}","keys":[`;
  let keys = 0;
  const imports = (meta: (index: number) => string, count = 1000) => {
    const part = (index: number) =>
      index < count ? `{"hash":"${hash()}","meta":{${meta(index)}}}` : ' '.repeat(bytes);
    return filled(bytes, begin, part, ']}');
  };
  return {
    'metadata of 60 names, each its own': imports(() => names(keys++, 60)),
    'metadata of empty objects': imports(() => `"a":[${'{},'.repeat(300)}{}]`),
    'nested metadata': imports(() => `"a":${nested('[', '', ']')(950)}`),
    'metadata of escapes': imports(() => `"a":"${'\\\\'.repeat(450)}"`),
    'white space in metadata': imports(() => `"a":${' '.repeat(900)}0`),
  };
}
