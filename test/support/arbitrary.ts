// Random inputs from a schema: valid ones, ones with a single fault, and garbage. They are JSON texts, because some
// faults cannot be expressed by a value (1e400, a duplicate member).

import fc from 'fast-check';
import type { TSchema } from 'typebox';

/** The part of JSON Schema that operations use. */
interface Schema {
  type?: string | string[];
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  patternProperties?: object;
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  uniqueItems?: boolean;
  documented?: { maxProperties?: number };
}

/** Values by the name of a member, used besides or instead of random ones, so that inputs name existing records. */
export type Hints = Record<string, (own: fc.Arbitrary<unknown>) => fc.Arbitrary<unknown>>;

const characters = [
  ...'abcXYZ019_-.:*/ "\\{}[]<>%\'',
  'ż',
  'ñ',
  '中',
  '😀',
  '\u{10ffff}',
  '\u2028',
  '\ufeff',
  '\u202e',
];
const controls = ['\0', '\n', '\r', '\t', '\x1b', '\x7f'];
const words = [
  '__proto__',
  'constructor',
  'toString',
  'null',
  'NaN',
  '*',
  'a.*',
  'a AND b',
  '-1',
  'root_',
  'tg:{ws_1}',
];

/** Most are short; some have the maximum length. Lengths are in characters, as in schemas. */
function strings({ minLength = 0, maxLength = 1000, pattern }: Schema): fc.Arbitrary<string> {
  const fits = (text: string) => [...text].length >= minLength && [...text].length <= maxLength;
  const { head, units } = pattern ? partsOf(pattern) : { head: '', units: [...characters, ...controls] };
  const unit = fc.constantFrom(...units);
  const between = (min: number, max: number) =>
    fc
      .array(unit, { minLength: min - head.length, maxLength: Math.max(min, max) - head.length, size: 'max' })
      .map((some) => head + some.join(''));
  const known = words.filter((word) => !pattern && fits(word));
  return fc.oneof(
    { weight: 20, arbitrary: between(minLength, Math.min(maxLength, minLength + 8)) },
    { weight: 1, arbitrary: between(maxLength, maxLength) },
    ...(known.length > 0 ? [{ weight: 3, arbitrary: fc.constantFrom(...known) }] : []),
  );
}

/**
 * The beginning that a pattern such as `^key_[a-z0-9_]+$` demands, and the characters that it allows. The schemas have
 * no other kind of pattern.
 */
function partsOf(pattern: string): { head: string; units: string[] } {
  const [, head = '', kind] = /^\^(\w*)(\[.+\])\+\$$/.exec(pattern) ?? [];
  if (!kind) throw new Error(`the pattern ${pattern} is of an unknown kind`);
  const one = new RegExp(kind);
  const units = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index)).filter((c) => one.test(c));
  return { head, units };
}

/** Mostly small ones, so that limits and credits are used up; also the bounds, and any between them. */
function integers({ minimum = Number.MIN_SAFE_INTEGER, maximum = Number.MAX_SAFE_INTEGER }: Schema) {
  return fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: minimum, max: Math.min(maximum, Math.max(minimum, 0) + 10) }) },
    { weight: 1, arbitrary: fc.constantFrom(minimum, maximum) },
    { weight: 1, arbitrary: fc.integer({ min: minimum, max: maximum }) },
  );
}

/** Values that the schema accepts. */
export function arbitraryOf(schema: TSchema, hints: Hints = {}): fc.Arbitrary<unknown> {
  return valuesOf(schema as Schema, hints);
}

function valuesOf(schema: Schema, hints: Hints): fc.Arbitrary<unknown> {
  if (Array.isArray(schema.type)) {
    const kinds = schema.type.map((type) => valuesOf({ ...schema, type }, hints));
    return fc.oneof(...kinds.map((arbitrary, index) => ({ weight: index === 0 ? 3 : 1, arbitrary })));
  }
  if (schema.enum) return fc.constantFrom(...schema.enum);
  switch (schema.type) {
    case 'null':
      return fc.constant(null);
    case 'boolean':
      return fc.boolean();
    case 'integer':
      return integers(schema);
    case 'string':
      return strings(schema);
    case 'array':
      return lists(schema, schema.items ? valuesOf(schema.items, hints) : fc.jsonValue());
    case 'object':
      return schema.patternProperties ? metadata : objects(schema, hints);
    default:
      throw new Error(`no values for the schema ${JSON.stringify(schema)}`);
  }
}

/** Most are short. Lists with small items sometimes have the maximum length. */
function lists({ minItems = 0, maxItems = 20, items, uniqueItems }: Schema, item: fc.Arbitrary<unknown>) {
  if (uniqueItems) return fc.uniqueArray(item, { minLength: minItems, maxLength: maxItems });
  const isSmall = items?.type === 'string';
  const few = fc.array(item, { minLength: minItems, maxLength: Math.min(maxItems, minItems + 3), size: 'max' });
  const long = fc.array(item, { minLength: Math.min(maxItems, isSmall ? 1000 : 20), maxLength: maxItems, size: '+1' });
  return fc.oneof({ weight: 60, arbitrary: few }, { weight: 1, arbitrary: long });
}

function objects({ properties = {}, required = [], documented }: Schema, hints: Hints): fc.Arbitrary<unknown> {
  // Exactly one of its members.
  if (documented?.maxProperties === 1)
    return fc.oneof(
      ...Object.entries(properties).map(([name, schema]) =>
        objects({ properties: { [name]: schema }, required: [name] }, hints),
      ),
    );
  const members = Object.entries(properties).map(([name, schema]) => {
    const own = valuesOf(schema, hints);
    return [name, hints[name]?.(own) ?? own] as const;
  });
  return fc.record(Object.fromEntries(members), { requiredKeys: required as never[], noNullPrototype: true });
}

const names = fc.oneof(fc.constantFrom(...words), fc.constantFrom('a', 'b', 'c', 'd'));
const metadata = fc.oneof(
  fc.dictionary(names, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 8, noNullPrototype: true }),
  fc.constant({ long: 'x'.repeat(10_000) }),
);

// Inputs with a single fault.

/** A placeholder for JSON that JSON.stringify cannot write. */
const raw = (text: string) => `<raw ${text}>`;
const withRaw = (json: string) => json.replace(/"<raw ([^">]*)>"/g, (_whole, text: string) => text);

const absent = Symbol('absent');

/** Not String(), which would call a member `toString` of the value. */
const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));

/** Changes of a value. */
const changes: readonly ((value: unknown) => unknown)[] = [
  () => absent,
  (value) => [value],
  (value) => ({ a: value }),
  (value) => (Array.isArray(value) ? [...value, ...value] : `${textOf(value)}${textOf(value)}`),
  (value) => (typeof value === 'number' ? -value : `${textOf(value)} `),
  (value) => (typeof value === 'number' ? value + 0.5 : `${textOf(value)}\0`),
  (value) => Object.assign({ nonsense: 1 }, value),
  (value) => Object.assign(JSON.parse('{"__proto__":{"admin":true}}'), value),
  ...[null, true, 0, -1, 1.5, '', 'x', [], {}, [[]], [null], '__proto__', 'x'.repeat(1100), '😀'.repeat(600)].map(
    (other) => () => other,
  ),
  ...['1e400', '-1e400', '9007199254740993', '-0', '1e-400', '1.0', '1E3', `1${'0'.repeat(400)}`].map(
    (text) => () => raw(text),
  ),
];

/** All members and items of a value, each as its parent and name. */
function places(value: unknown): [parent: Record<string, unknown>, name: string][] {
  if (typeof value !== 'object' || value === null) return [];
  const parent = value as Record<string, unknown>;
  return Object.keys(parent).flatMap((name) => [[parent, name], ...places(parent[name])] as ReturnType<typeof places>);
}

function changed(value: unknown, place: number, change: (value: unknown) => unknown): string {
  const whole = { body: structuredClone(value) };
  const all = places(whole);
  const [parent, name] = all[place % all.length]!;
  const changedTo = change(parent[name]);
  if (changedTo === absent) delete parent[name];
  else parent[name] = changedTo;
  return 'body' in whole ? withRaw(JSON.stringify(whole.body)) : '';
}

// Garbage.

const cutOrSpliced = (json: string, at: number, splice: string) => {
  const place = at % (json.length + 1);
  return json.slice(0, place) + splice + json.slice(splice === '' ? json.length : place);
};

const splices = ['', '\0', '\ufeff', '"', '\\', '}', ']', ',', '{}', '\\ud800', '/**/', '1e999', ' ', '\u2028'];
const nonsense = fc.oneof(
  fc.json(),
  fc.string({ maxLength: 50 }),
  fc.constantFrom(
    '',
    '[]',
    '{}',
    'null',
    '0',
    '""',
    '[{}]',
    '['.repeat(9000),
    `${'{"a":'.repeat(900)}1${'}'.repeat(900)}`,
  ),
);

export interface Generated {
  kind: 'valid' | 'nearly' | 'garbage';
  text: string;
}

/** Bodies for an operation. */
export function bodiesFor(schema: TSchema, hints: Hints = {}): fc.Arbitrary<Generated> {
  const valid = arbitraryOf(schema, hints);
  const of = (kind: Generated['kind'], texts: fc.Arbitrary<string>) => texts.map((text) => ({ kind, text }));
  return fc.oneof(
    {
      weight: 6,
      arbitrary: of(
        'valid',
        valid.map((value) => JSON.stringify(value)),
      ),
    },
    {
      weight: 3,
      arbitrary: of(
        'nearly',
        fc.tuple(valid, fc.nat(), fc.constantFrom(...changes)).map((args) => changed(...args)),
      ),
    },
    {
      weight: 1,
      arbitrary: of(
        'garbage',
        fc.oneof(
          nonsense,
          fc
            .tuple(valid, fc.nat(), fc.constantFrom(...splices))
            .map(([value, at, splice]) => cutOrSpliced(JSON.stringify(value), at, splice)),
        ),
      ),
    },
  );
}
