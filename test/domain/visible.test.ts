import { expect, test } from 'vitest';
import { escapeInvisible, markInvisible } from '../../src/domain/visible.ts';

test.each([
  ['a control character', 'a\u0000b\u009bc', 'a\\u0000b\\u009bc'],
  ['ends of lines', 'a\nb\u2028c\u2029d', 'a\\u000ab\\u2028c\\u2029d'],
  ['direction marks', 'a\u202eb\u2066c\u200ed\u061ce', 'a\\u202eb\\u2066c\\u200ed\\u061ce'],
  ['zero-width characters', '\u200b\u2060\ufeff\u00ad', '\\u200b\\u2060\\ufeff\\u00ad'],
  ['fillers that look like a space', '\u3164\uffa0\u115f\u1160\u2800', '\\u3164\\uffa0\\u115f\\u1160\\u2800'],
  ['a grapheme joiner', 'b\u034fc', 'b\\u034fc'],
  ['a tag', 'a\u{e0041}', 'a\\udb40\\udc41'],
  ['half of a character', '\ud800a', '\\ud800a'],
  ['annotations', 'a\ufff9b', 'a\\ufff9b'],
  ['joiners between letters that do not join', 'ad\u200da\u200c1', 'ad\\u200da\\u200c1'],
  ['a second joiner', '👩\u200d\u200d👩', '👩\u200d\\u200d👩'],
  ['a joiner at the beginning', '\u200da', '\\u200da'],
  ['a variation selector of a letter', 'a\ufe0f', 'a\\ufe0f'],
])('%s', (_title, text, escaped) => expect(escapeInvisible(text)).toBe(escaped));

test.each([
  ['plain text', 'Ada & <b> "x" é ß Ж 漢字 עברית العربية'],
  ['an emoji with joiners', '👩\u200d👩\u200d👧 👍🏽\u200d ❤\ufe0f'],
  ['a joiner in Devanagari', 'क\u094d\u200dष'],
  ['a non-joiner in Persian', 'می\u200cخواهم'],
  ['no-break spaces', 'a\u00a0b'],
])('%s stays', (_title, text) => expect(escapeInvisible(text)).toBe(text));

test('a mark gets each character', () => {
  expect(markInvisible('a\u202e\u{e0041}b', (character) => `<${character.codePointAt(0)!.toString(16)}>`)).toBe(
    'a<202e><e0041>b',
  );
});
