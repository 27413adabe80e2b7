// Packed structures, declared once for both languages. A structure is a list of named fields. It provides
//
//   in TypeScript  `read` and `write` (generated code, as fast as code written by hand), and the offset of each field
//                  in `at`
//   in Lua         literals in place of names in capitals, see `literalsOf` in layout.ts and library.ts
//
// All numbers are big-endian, and unsigned except those of `int`.

type UintBytes = 1 | 2 | 4 | 5 | 6 | 7;

/** A field of a structure. */
type Field =
  | { kind: 'uint'; bytes: UintBytes }
  /** A number that may be negative: two's complement. Its absolute value is a safe integer. */
  | { kind: 'int'; bytes: 7 }
  /** A fixed number of bytes; in TypeScript a string with one character a byte. */
  | { kind: 'bytes'; bytes: number }
  /** Its length, then UTF-8. Written from a Buffer. */
  | { kind: 'text'; lengthBytes: 1 | 2 | 4 }
  /** The same with one character a byte, for large ASCII texts. */
  | { kind: 'ascii'; lengthBytes: 4 }
  /** Its length + 1, then UTF-8; 0 if there is none. */
  | { kind: 'optional'; lengthBytes: 2 | 4 }
  /** UTF-8 whose length is an earlier field. */
  | { kind: 'sized'; by: string }
  /** The number of structures, then each of them. In Lua one packed string. */
  | { kind: 'list'; countBytes: 1 | 2; of: Struct<Fields> }
  /** A fixed number of counts, which Lua reads one by one. */
  | { kind: 'counts'; bytes: UintBytes; length: number }
  /** Another structure: its fields in Lua; in TypeScript a string with one character a byte. */
  | { kind: 'opaque'; of: Struct<Fields> }
  /** All remaining bytes. */
  | { kind: 'rest' };

export type Fields = Readonly<Record<string, Field>>;

export const uint = <const Bytes extends UintBytes>(bytes: Bytes) => ({ kind: 'uint', bytes }) as const;
export const int = (bytes: 7) => ({ kind: 'int', bytes }) as const;
export const bytes = (count: number) => ({ kind: 'bytes', bytes: count }) as const;
export const text = (lengthBytes: 1 | 2 | 4) => ({ kind: 'text', lengthBytes }) as const;
export const ascii = (lengthBytes: 4) => ({ kind: 'ascii', lengthBytes }) as const;
export const optional = (lengthBytes: 2 | 4) => ({ kind: 'optional', lengthBytes }) as const;
export const sized = (by: string) => ({ kind: 'sized', by }) as const;
export const list = <Of extends Fields>(countBytes: 1 | 2, of: Struct<Of>) =>
  ({ kind: 'list', countBytes, of }) as const;
export const counts = (length: number, each: UintBytes) => ({ kind: 'counts', bytes: each, length }) as const;
export const opaque = <Of extends Fields>(of: Struct<Of>) => ({ kind: 'opaque', of }) as const;
export const rest = { kind: 'rest' } as const;

type ReadValue<F> = F extends { kind: 'uint' | 'int' }
  ? number
  : F extends { kind: 'optional' }
    ? string | undefined
    : F extends { kind: 'list'; of: Struct<infer Of> }
      ? Values<Of>[]
      : string;
type WrittenValue<F> = F extends { kind: 'uint' | 'int' }
  ? number
  : F extends { kind: 'text' | 'rest' }
    ? Buffer
    : string;

/** The values that `read` returns. */
export type Values<Of extends Fields> = { -readonly [Name in keyof Of]: ReadValue<Of[Name]> };
/** The values that `write` takes. */
export type Written<Of extends Fields> = { readonly [Name in keyof Of]: WrittenValue<Of[Name]> };

export interface Struct<Of extends Fields> {
  readonly fields: Of;
  /** Bytes of the fields before the first one of variable length. */
  readonly bytes: number;
  /** Offset of each field, up to and including the first one of variable length. */
  readonly at: { readonly [Name in keyof Of]: number };
  read(reader: Reader): Values<Of>;
  /** How many bytes `write` takes for these values. */
  size(values: Written<Of>): number;
  /** Writes all fields from `at` on, and returns the offset after them. */
  write(buffer: Buffer, at: number, values: Written<Of>): number;
}

export function struct<const Of extends Fields>(fields: Of): Struct<Of> {
  const at: Record<string, number> = {};
  let length: number | undefined = 0;
  let fixed = 0;
  for (const [name, field] of Object.entries(fields)) {
    if (length === undefined) continue;
    at[name] = length;
    const own: number | undefined = fixedBytes(field);
    length = own === undefined ? undefined : length + own;
    fixed = length ?? fixed;
  }
  return {
    fields,
    bytes: fixed,
    at: at as Struct<Of>['at'],
    read: readerOf(fields) as Struct<Of>['read'],
    size: sizeOf(fields) as Struct<Of>['size'],
    write: writerOf(fields) as Struct<Of>['write'],
  };
}

/** The code that reads and writes a field of a kind, and its format in Lua. */
interface Kind<F> {
  /** Bytes of a field of fixed length. */
  bytes?(field: F): number | undefined;
  read(field: F, nested: (of: Struct<Fields>) => string): string;
  /** Only Lua writes fields without. */
  write?(field: F, value: string): string;
  /** For `struct.pack` and `struct.unpack`; '' if they leave it out. */
  lua(field: F): string;
}

const ownBytes = ({ bytes }: { bytes: number }) => bytes;
const withLength = ({ lengthBytes }: { lengthBytes: number }) => `${lengthBytes === 1 ? 'B' : `I${lengthBytes}`}c0`;

const kinds: { [Name in Field['kind']]: Kind<Extract<Field, { kind: Name }>> } = {
  uint: {
    bytes: ownBytes,
    read: ({ bytes }) => `reader.uint(${bytes})`,
    write: ({ bytes }, value) =>
      bytes === 1 ? `buffer[at++] = ${value};` : `writeUint(buffer, ${value}, at, ${bytes}); at += ${bytes};`,
    lua: ({ bytes }) => (bytes === 1 ? 'B' : `I${bytes}`),
  },
  int: { bytes: ownBytes, read: () => 'reader.int()', lua: ({ bytes }) => `i${bytes}` },
  bytes: {
    bytes: ownBytes,
    read: ({ bytes }) => `reader.latin1(${bytes})`,
    write: ({ bytes }, value) => `buffer.write(${value}, at, ${bytes}, 'latin1'); at += ${bytes};`,
    lua: ({ bytes }) => `c${bytes}`,
  },
  text: {
    read: ({ lengthBytes }) => `reader.text(reader.uint(${lengthBytes}))`,
    write: ({ lengthBytes }, value) =>
      `writeUint(buffer, ${value}.length, at, ${lengthBytes}); at += ${lengthBytes}; buffer.set(${value}, at); at += ${value}.length;`,
    lua: withLength,
  },
  ascii: { read: ({ lengthBytes }) => `reader.latin1(reader.uint(${lengthBytes}))`, lua: withLength },
  optional: { read: ({ lengthBytes }) => `reader.optionalText(${lengthBytes})`, lua: withLength },
  sized: { read: ({ by }) => `reader.text(values.${by})`, lua: () => '' },
  list: { read: ({ countBytes, of }, nested) => `reader.list(${countBytes}, ${nested(of)})`, lua: () => 'c0' },
  counts: {
    bytes: ({ bytes, length }) => bytes * length,
    read: ({ bytes, length }) => `reader.latin1(${bytes * length})`,
    lua: ({ bytes, length }) => `I${bytes}`.repeat(length),
  },
  opaque: {
    bytes: ({ of }) => (Object.values(of.fields).map(fixedBytes).includes(undefined) ? undefined : of.bytes),
    read: ({ of }, nested) => `reader.opaque(${nested(of)})`,
    write: (_, value) => `at += buffer.write(${value}, at, 'latin1');`,
    lua: ({ of }) => luaFields(of.fields),
  },
  rest: {
    read: () => 'reader.rest()',
    write: (_, value) => `buffer.set(${value}, at); at += ${value}.length;`,
    lua: () => '',
  },
};
const kindOf = (field: Field): Kind<Field> => kinds[field.kind] as Kind<Field>;

/** Bytes of a field; undefined for one of variable length. */
const fixedBytes = (field: Field): number | undefined => kindOf(field).bytes?.(field);

function readerOf(fields: Fields): unknown {
  const lists: unknown[] = [];
  const nested = (of: Struct<Fields>) => `lists[${lists.push(of) - 1}]`;
  const entries = Object.entries(fields).map(([name, field]) => `${name}: ${kindOf(field).read(field, nested)}`);
  const body = entries.some((entry) => entry.includes('values.'))
    ? // A field is the length of a later one, so they have to be read one by one.
      `const values = {}; ${entries.map((entry) => `values.${entry.replace(': ', ' = ')};`).join(' ')} return values;`
    : `return { ${entries.join(', ')} };`;
  return new Function('lists', `return function read(reader) { ${body} }`)(lists);
}

function writerOf(fields: Fields): unknown {
  const lines = Object.entries(fields).map(
    ([name, field]) =>
      kindOf(field).write?.(field, `values.${name}`) ?? `throw new Error('${name} is not written here');`,
  );
  const source = `return function write(buffer, at, values) { ${lines.join(' ')} return at; }`;
  return new Function('writeUint', source)(writeUint);
}

function sizeOf(fields: Fields): unknown {
  const sizes = Object.entries(fields).map(([name, field]) => {
    const fixed = fixedBytes(field);
    if (fixed !== undefined) return `${fixed}`;
    return field.kind === 'text' ? `${field.lengthBytes} + values.${name}.length` : `values.${name}.length`;
  });
  return new Function('values', `return ${sizes.join(' + ')};`);
}

/** Twice as fast as writeUIntBE. */
export function writeUint(buffer: Buffer, value: number, at: number, length: UintBytes) {
  let left = value;
  for (let index = at + length - 1; index >= at; index--) {
    // A Buffer takes the last byte of a larger number.
    buffer[index] = left;
    left = Math.floor(left / 256);
  }
}

/** Reads an `int` of 7 bytes. */
export function readInt(buffer: Buffer, at: number): number {
  const high = readUint(buffer, at, 1);
  // The bytes of a negative number are those of 2^56 plus it, which is no safe integer.
  if (high < 128) return readUint(buffer, at, 7);
  let value = high - 256;
  for (let index = at + 1; index < at + 7; index++) value = 256 * value + buffer[index]!;
  return value;
}

/** Twice as fast as readUIntBE. */
export function readUint(buffer: Buffer, at: number, length: UintBytes): number {
  if (at + length > buffer.length) throw new RangeError('A field ends after its structure.');
  let value = buffer[at]!;
  for (let index = at + 1; index < at + length; index++) value = 256 * value + buffer[index]!;
  return value;
}

const notAscii = /[\x80-\xff]/;

/** Reads fields one after the other. */
export class Reader {
  readonly #packed: Buffer;
  /**
   * All bytes, one character a byte. Texts are slices of it, because decoding one text costs as much as decoding all.
   */
  readonly #latin1: string;
  #at = 0;

  constructor(packed: Buffer) {
    this.#packed = packed;
    this.#latin1 = packed.toString('latin1');
  }

  get isAtEnd(): boolean {
    return this.#at === this.#packed.length;
  }

  uint(length: UintBytes): number {
    const at = this.#at;
    this.#at += length;
    return readUint(this.#packed, at, length);
  }

  int(): number {
    const at = this.#at;
    this.#at += 7;
    return readInt(this.#packed, at);
  }

  latin1(length: number): string {
    const at = this.#at;
    this.#at += length;
    return this.#latin1.slice(at, this.#at);
  }

  text(length: number): string {
    const at = this.#at;
    const value = this.latin1(length);
    return notAscii.test(value) ? this.#packed.toString('utf8', at, this.#at) : value;
  }

  optionalText(lengthBytes: 2 | 4): string | undefined {
    const length = this.uint(lengthBytes);
    return length === 0 ? undefined : this.text(length - 1);
  }

  /** The bytes of a structure. A copy, because a slice would keep the whole string in memory. */
  opaque(of: Struct<Fields>): string {
    const at = this.#at;
    of.read(this);
    return this.#packed.toString('latin1', at, this.#at);
  }

  list<Of extends Fields>(countBytes: 1 | 2, of: Struct<Of>): Values<Of>[] {
    const values: Values<Of>[] = [];
    for (let count = this.uint(countBytes); count > 0; count--) values.push(of.read(this));
    return values;
  }

  rest(): string {
    return this.text(this.#packed.length - this.#at);
  }
}

// Lua

/** A name as Lua has it. */
export const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** The format of a structure, without the `>` at its beginning, so that formats can be joined. */
export const luaFields = (fields: Fields): string =>
  Object.values(fields)
    .map((field) => kindOf(field).lua(field))
    .join('');

/** The names of the values that `struct.unpack` returns, and the number of values that `struct.pack` takes for each. */
export function luaNames(fields: Fields): { name: string; packed: number }[] {
  return Object.entries(fields).flatMap(([name, field]) => {
    const own = snake(name);
    if (field.kind === 'opaque')
      return luaNames(field.of.fields).map((inner) => ({ ...inner, name: `${own}_${inner.name}` }));
    if (field.kind === 'counts')
      return Array.from({ length: field.length }, (_, index) => ({ name: `${own}_${index + 1}`, packed: 1 }));
    return kindOf(field).lua(field) === '' ? [] : [{ name: own, packed: 'lengthBytes' in field ? 2 : 1 }];
  });
}
