import { describe, expect, test } from 'vitest';
import { ApiError } from '../../src/errors.ts';
import { parseBody } from '../../src/http/body.ts';

function refusal(body: string | Buffer): ApiError {
  try {
    parseBody(Buffer.from(body));
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('parsed');
}

describe('what is taken', () => {
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

  test('a pair of escapes, however deep the rest is', () => {
    const text = `[${'['.repeat(100_000)}${']'.repeat(100_000)},"\\ud83d\\ude00"]`;
    expect((parseBody(Buffer.from(text)).value as unknown[])[1]).toBe('😀');
  });

  test('a member named __proto__ is a member like any other', () => {
    for (const text of ['{"__proto__":{"a":1}}', '{"__proto__":{"a":1},"pair":"\\ud83d\\ude00"}']) {
      expect(Object.hasOwn(parseBody(Buffer.from(text)).value as object, '__proto__')).toBe(true);
    }
  });
});

describe('what is refused with 400', () => {
  test.each([
    ['nothing', ''],
    ['an open object', '{"a":1'],
    ['a trailing comma', '{"a":1,}'],
    ['text after the value', '{} {}'],
    ['a comment', '{/* */}'],
    ['single quotes', "{'a':1}"],
    ['NaN', '{"a":NaN}'],
    ['a raw line break in a string', '{"a":"\n"}'],
    ['a byte order mark', '\ufeff{}'],
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

  test('half a character below any nesting', () => {
    const deep = `{"a":"\\ud83d\\ude00","b":${'['.repeat(200_000)}"\\ude00"${']'.repeat(200_000)}}`;
    expect(refusal(deep).message).toBe('The body is not valid JSON: an escape stands for half of a character.');
  });
});
