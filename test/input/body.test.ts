import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ApiError } from '../../src/errors.ts';
import { parseBody, parseLargeBody, structureMax } from '../../src/input/body.ts';

function refusal(body: string | Buffer): ApiError {
  try {
    parseBody(Buffer.from(body));
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('parsed');
}

describe('which bodies are accepted', () => {
  test.each([
    ['{}', {}],
    [' {"a": [1, "ü", "😀"]}\r\n', { a: [1, 'ü', '😀'] }],
    ['{"pair":"\\ud83d\\ude00","\\uD83D\\uDE00":1}', { pair: '😀', '😀': 1 }],
    ['{"escaped backslash":"\\\\ud800"}', { 'escaped backslash': '\\ud800' }],
    ['{"and a pair":"\\\\\\ud83d\\ude00\\\\"}', { 'and a pair': '\\😀\\' }],
    ['{"a":1,"a":2}', { a: 2 }],
    ['{"nul":"\\u0000"}', { nul: '\0' }],
    ['[]', []],
    ['null', null],
    ['1e3', 1000],
  ])('%s', (text, value) => {
    expect(parseBody(Buffer.from(text))).toEqual({ text, value });
  });

  test('a surrogate pair as escapes, at any depth', () => {
    const text = `[${'['.repeat(100_000)}${']'.repeat(100_000)},"\\ud83d\\ude00"]`;
    expect((parseBody(Buffer.from(text)).value as unknown[])[1]).toBe('😀');
  });

  test('a member named __proto__ is a member like any other', () => {
    for (const text of ['{"__proto__":{"a":1}}', '{"__proto__":{"a":1},"pair":"\\ud83d\\ude00"}']) {
      expect(Object.hasOwn(parseBody(Buffer.from(text)).value as object, '__proto__')).toBe(true);
    }
  });
});

describe('which bodies are refused with 400', () => {
  test.each([
    ['nothing', ''],
    ['an open object', '{"a":1'],
    ['a trailing comma', '{"a":1,}'],
    ['text after the value', '{} {}'],
    ['a comment', '{/* */}'],
    ['single quotes', "{'a':1}"],
    ['NaN', '{"a":NaN}'],
    ['a raw line break in a string', '{"a":"\n"}'],
    ['half a character', '{"a":"\\ud800"}'],
    ['the other half', '{"a":"\\udc00"}'],
    ['halves the wrong way round', '{"a":"\\ude00\\ud83d"}'],
    ['half a character twice', '{"a":"\\ud800\\ud800\\udc00"}'],
    ['half a character after a backslash', '{"a":"\\\\\\udc00"}'],
    ['half a character in a member that is repeated', '{"a":"\\ud800","a":1}'],
    ['half a character in a name', '{"\\ud800":1}'],
    ['half a character deep inside', '{"a":[{"b":["\\uDBFF"]}]}'],
  ])('%s', (_what, text) => {
    expect(refusal(text)).toMatchObject({ code: 'invalid_input', fields: [{ location: 'body' }] });
    expect(refusal(text).message).toMatch(/^The body is not valid JSON: .+/);
  });

  test.each([
    ['a lone continuation byte', [0x22, 0x80, 0x22]],
    ['a sequence cut short', [0x22, 0xe2, 0x82, 0x22]],
    ['an overlong slash', [0x22, 0xc0, 0xaf, 0x22]],
    ['a surrogate in UTF-8', [0x22, 0xed, 0xa0, 0x80, 0x22]],
    ['UTF-16', [0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00]],
  ])('%s', (_what, bytes) => {
    expect(refusal(Buffer.from(bytes)).message).toBe('The body is not valid UTF-8.');
  });

  test.each([
    '{"key":"sk_secret" "x"}',
    '{"key":sk_secret}',
    'sk_secret',
    '"sk_secret',
    '{"key":"sk_secret\n"}',
    '{"a":1}sk_secret',
  ])('the message does not repeat the body: %j', (text) => {
    expect(refusal(text).message).not.toContain('secret');
  });

  test('a lone surrogate at any depth', () => {
    const deep = `{"a":"\\ud83d\\ude00","b":${'['.repeat(200_000)}"\\ude00"${']'.repeat(200_000)}}`;
    expect(refusal(deep).message).toBe('The body is not valid JSON: an escape is half of a surrogate pair.');
  });
});

describe('a long body is validated in steps', () => {
  const pause = () => Promise.resolve();
  /** So small that even short texts are cut. */
  const sizes = fc.record({ structure: fc.nat({ max: 2 }), characters: fc.nat({ max: 4 }) });
  const token = fc.constantFrom(
    ...'{}[],:',
    '"a"',
    '"]"',
    '"\\""',
    '"__proto__"',
    '1',
    ' ',
    'null',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
  );
  const tokens = fc.array(token, { maxLength: 12 }).map((parts) => parts.join(''));
  const json = fc.json({ maxDepth: 4, noUnicodeString: false });
  /** JSON in which some characters are missing or added. */
  const nearly = fc.tuple(json, fc.nat(), fc.nat({ max: 2 }), tokens).map(([text, at, missing, more]) => {
    const place = at % (text.length + 1);
    return text.slice(0, place) + more.slice(0, 2) + text.slice(place + missing);
  });

  const outcome = async (parse: () => unknown) => {
    try {
      return await parse();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      expect(error.message).toMatch(/^The body is not valid JSON: .+/);
      return 'refused';
    }
  };

  test('with the same result as in one step', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(json, tokens, nearly), sizes, async (text, size) => {
        const body = Buffer.from(text);
        const whole = await outcome(() => parseBody(body));
        expect(await outcome(() => parseLargeBody(body, pause, size))).toEqual(whole);
      }),
      { numRuns: 5000 },
    );
  });

  test.each([
    '[1,]',
    '[,]',
    '[,1]',
    '[1,,2]',
    '{"a":[1,2],}',
    '{"a":[1,2,]}',
    '{"a":[1}]',
    '{"a":[{]}}',
    '[1',
    '{"a":[1,2',
    ']',
    '1,2',
    '[1]]',
    '[[1],[2]',
    '{"a":1[2]}',
  ])('refuses %s, cut at any position', async (text) => {
    for (const characters of [0, 1, 2, 3, 100]) {
      const parse = () => parseLargeBody(Buffer.from(text), pause, { structure: 0, characters });
      await expect(parse()).rejects.toMatchObject({ code: 'invalid_input' });
    }
  });

  test.each([
    ['{"a":[1,2,3],"b":{"c":[4]},"a":[5]}', { a: [5], b: { c: [4] } }],
    ['[[1,[2]],{"a":[3]},"[,]"]', [[1, [2]], { a: [3] }, '[,]']],
    ['{"a":[ ],"b":[ 1 , 2 ]}', { a: [], b: [1, 2] }],
    ['{"__proto__":[1,2]}', JSON.parse('{"__proto__":[1,2]}')],
    [' 7 ', 7],
  ])('%s', async (text, value) => {
    expect(await parseLargeBody(Buffer.from(text), pause, { structure: 0, characters: 0 })).toEqual({ text, value });
  });

  test('an error names a position only if it is the position in the body', async () => {
    const text = '{"a":[1,2,x]}';
    expect(refusal(text).message).toMatch(/^The body is not valid JSON: Unexpected token '?x/);
    const error = await parseLargeBody(Buffer.from(text), pause).catch((error) => error);
    expect(error.message).toMatch(/^The body is not valid JSON: Unexpected token '?x'?(, |)[^0-9]*$/);
    expect(error.message).not.toContain('position');
    expect(error.fields).toMatchObject([{ location: 'body' }]);
  });

  test('the event loop runs between the steps, which are all short', async () => {
    const items = Array.from({ length: 40_000 }, (_, index) => `{"${index.toString(36)}":0}`);
    let pauses = 0;
    const { value } = await parseLargeBody(Buffer.from(`{"items":[${items}]}`), async () => void pauses++);
    expect((value as { items: object[] }).items).toEqual(items.map((item) => JSON.parse(item)));
    expect(pauses).toBeGreaterThan(1);
  });

  test.each([
    ['an item', (inner: string) => `[${inner}]`],
    ['the part outside of arrays', (inner: string) => `{"a":${inner}}`],
  ])('%s has a limited length', async (_, around) => {
    const object = (members: number) => `{${Array.from({ length: members }, (_, index) => `"${index}":0`)}}`;
    const parse = (text: string) => parseLargeBody(Buffer.from(text), pause);
    await parse(around(object(structureMax - 3)));
    await expect(parse(around(object(structureMax + 1)))).rejects.toThrow('more than 32768 members');
  });
});

test('a byte order mark before the body is ignored, one only', async () => {
  const marked = Buffer.from('\ufeff{"a":[1]}');
  expect(parseBody(marked)).toEqual({ text: '{"a":[1]}', value: { a: [1] } });
  expect(await parseLargeBody(marked, async () => {})).toEqual({ text: '{"a":[1]}', value: { a: [1] } });
  expect(() => parseBody(Buffer.from('\ufeff\ufeff{}'))).toThrow('is not valid JSON');
});
