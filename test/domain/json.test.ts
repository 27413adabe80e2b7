// JSON as text. Each document is printed twice from the same tree: with white space, and without.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { JsonText, memberText, memberTexts, memberTextsOf, print } from '../../src/domain/json.ts';

interface Doc {
  /** With white space wherever JSON allows it. */
  loose: string;
  tight: string;
  /** The members of an object, with the last of a repeated name. */
  members: Map<string | number, Doc>;
}

const space = fc.string({ unit: fc.constantFrom(' ', '\n', '\t', '\r'), maxLength: 3 });
/** Characters of strings in the forms that JSON allows: plain, escaped, or as a code. */
const character = fc.oneof(
  fc.constantFrom(..."ab ,:{}[]/'", ' ', '\u00e9', '😀', '\\"', '\\\\', '\\/', '\\b', '\\f', '\\n', '\\r', '\\t'),
  fc.constantFrom('\\u0041', '\\u000A', '\\u0000', '\\ud83d\\ude00', '\\u0022', '\\u005C'),
);
const stringToken = fc.array(character, { maxLength: 8 }).map((parts) => `"${parts.join('')}"`);
const names = fc.oneof(
  stringToken,
  fc
    .constantFrom('""', '"a"', '"b"', '"\\u0061"', '"__proto__"', '"0"', '"toString"', '"\\"', '"a,b"')
    .map((name) => (name === '"\\"' ? '"\\\\"' : name)),
);
const scalar = fc
  .oneof(
    stringToken,
    fc.constantFrom('true', 'false', 'null', '0', '-0', '1.0', '1e3', '1E+3', '-12.50e-7', '12345678901234567890'),
  )
  .map((text): Doc => ({ loose: text, tight: text, members: new Map() }));

const list = (items: readonly (readonly [before: string, item: Doc, after: string])[], empty: string): Doc => ({
  loose: items.length === 0 ? `[${empty}]` : `[${items.map(([a, { loose }, b]) => a + loose + b).join(',')}]`,
  tight: `[${items.map(([, { tight }]) => tight).join(',')}]`,
  members: new Map(items.map(([, item], index) => [index, item])),
});

type Member = readonly [a: string, name: string, b: string, c: string, value: Doc, d: string];
const object = (members: readonly Member[], empty: string): Doc => ({
  loose:
    members.length === 0
      ? `{${empty}}`
      : `{${members.map(([a, name, b, c, { loose }, d]) => `${a}${name}${b}:${c}${loose}${d}`).join(',')}}`,
  tight: `{${members.map(([, name, , , { tight }]) => `${name}:${tight}`).join(',')}}`,
  members: new Map(members.map(([, name, , , value]) => [JSON.parse(name) as string, value])),
});

const { doc: documents } = fc.letrec<{ doc: Doc }>((tie) => ({
  doc: fc.oneof(
    { maxDepth: 5, depthSize: 'small' },
    scalar,
    fc.tuple(fc.array(fc.tuple(space, tie('doc'), space), { maxLength: 4 }), space).map((parts) => list(...parts)),
    fc
      .tuple(fc.array(fc.tuple(space, names, space, space, tie('doc'), space), { maxLength: 5 }), space)
      .map((parts) => object(...parts)),
  ),
}));

/** Every value in a document, with the path to it. */
function places(doc: Doc, path: (string | number)[] = []): { path: (string | number)[]; doc: Doc }[] {
  const below = [...doc.members].flatMap(([name, member]) => places(member, [...path, name]));
  return [{ path, doc }, ...below];
}

const whole = fc
  .tuple(space, documents, space)
  .map(([before, doc, after]) => ({ text: before + doc.loose + after, doc }));

test('memberTextsOf returns the members of an object that memberText returns one by one', () => {
  fc.assert(
    fc.property(whole, ({ text, doc }) => {
      if (!doc.tight.startsWith('{')) return;
      const names = [...doc.members.keys(), 'absent'].map(String);
      expect(memberTextsOf(text, names)).toEqual(names.map((name) => memberText(text, [name])));
    }),
    { numRuns: 1000 },
  );
});

describe('memberText', () => {
  test('is the member at the path as it was written, without white space between its tokens', () => {
    fc.assert(
      fc.property(whole, ({ text, doc }) => {
        for (const place of places(doc)) expect(memberText(text, place.path)).toBe(place.doc.tight);
      }),
      { numRuns: 2000 },
    );
  });

  test('parses to the value that JSON.parse returns', () => {
    fc.assert(
      fc.property(whole, ({ text, doc }) => {
        for (const { path } of places(doc)) {
          const value = path.reduce(
            (at: unknown, step) => Object.getOwnPropertyDescriptor(at, step)!.value,
            JSON.parse(text),
          );
          expect(JSON.parse(memberText(text, path)!)).toEqual(value);
        }
      }),
      { numRuns: 1000 },
    );
  });

  test('is undefined where there is no such member', () => {
    fc.assert(
      fc.property(whole, fc.oneof(fc.string({ maxLength: 3 }), fc.nat({ max: 5 })), ({ text, doc }, step) => {
        for (const place of places(doc)) {
          if (!place.doc.members.has(step)) expect(memberText(text, [...place.path, step])).toBeUndefined();
        }
      }),
      { numRuns: 1000 },
    );
  });

  test.each([
    ['{"meta":{"a":1}}', ['meta'], '{"a":1}'],
    ['{"meta":1,"meta":{"b":2}}', ['meta'], '{"b":2}'],
    ['{"meta":{"a":1},"meta":2}', ['meta', 'a'], undefined],
    ['{"m\\u0065ta": 5 }', ['meta'], '5'],
    ['{"a":{"meta":1},"b":"\\"meta\\":2","meta":3}', ['meta'], '3'],
    ['{"keys":[{"meta":{ }},{"meta":{"x" : "a  b"}}]}', ['keys', 1, 'meta'], '{"x":"a  b"}'],
    ['{"0":"name"}', ['0'], '"name"'],
    ['{"0":"name"}', [0], undefined],
    ['["item"]', ['0'], undefined],
    [' 7 ', [], '7'],
    ['{"big":12345678901234567890.0}', ['big'], '12345678901234567890.0'],
  ])('%s at %j is %s', (json, path, text) => {
    expect(memberText(json, path)).toBe(text);
  });

  test('takes the longest string and the deepest nesting that a body can hold', () => {
    const long = JSON.stringify('x " y\\ z'.repeat(4_000_000));
    expect(memberText(`{ "meta" : { "long" : ${long} } }`, ['meta'])).toBe(`{"long":${long}}`);
    const deep = `${'['.repeat(250_000)}${']'.repeat(250_000)}`;
    expect(memberText(`{"meta": ${deep}}`, ['meta'])).toBe(deep);
  });
});

describe('memberTexts', () => {
  const lists = fc
    .tuple(fc.array(fc.tuple(space, documents, space), { maxLength: 6 }), space)
    .map((parts) => list(...parts));

  test('are those of memberText, for items of an array too', () => {
    fc.assert(
      fc.property(lists, lists, ({ loose, members }, other) => {
        const text = `{ "other" : ${other.loose}, "items":${loose} , "last": 1 }`;
        const texts = memberTexts(text);
        for (const [index, item] of members) {
          expect(texts('items', index)).toBe(item.tight);
          for (const { path, doc } of places(item)) expect(texts('items', index, ...path)).toBe(doc.tight);
        }
        expect(texts('items', members.size)).toBeUndefined();
        expect(texts('last', 0)).toBeUndefined();
        expect(texts('absent', 0)).toBeUndefined();
        expect(texts('last')).toBe('1');
      }),
      { numRuns: 300 },
    );
  });
});

describe('print', () => {
  const values = fc.jsonValue({ maxDepth: 4 });

  test('is JSON.stringify for plain values', () => {
    fc.assert(
      fc.property(values, (value) => {
        expect(print(value)).toBe(JSON.stringify(value));
      }),
      { numRuns: 500 },
    );
  });

  test('inserts text unchanged, at any depth', () => {
    fc.assert(
      fc.property(whole, values, ({ doc }, value) => {
        expect(print({ value, list: [new JsonText(doc.tight)], meta: new JsonText(doc.tight) })).toBe(
          `{"value":${JSON.stringify(value)},"list":[${doc.tight}],"meta":${doc.tight}}`,
        );
      }),
      { numRuns: 300 },
    );
  });

  test('omits undefined members, and keeps null', () => {
    const absent: undefined = undefined;
    expect(print({ a: absent, b: null, c: { d: absent }, e: [absent, 1] })).toBe('{"b":null,"c":{},"e":[null,1]}');
  });
});

test('memberTextsOf reads a single member too', () => {
  expect(memberTextsOf('{"a": 1, "b": [ 2 ]}', ['b'])).toEqual(['[2]']);
});
