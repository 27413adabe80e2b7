// Characters that are not visible, or that reorder the visible ones: a name with them can look like another name.

/** Control characters, lone surrogates, separators of lines, the blank of Braille, and annotations. */
const always = '[\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}\\u2800\\ufff9-\\ufffb]';
/** Characters that Unicode lets a renderer ignore: direction marks, zero-width and filler characters, tags. */
const ignorable = '\\p{Default_Ignorable_Code_Point}';
/** Scripts and emoji need them. After these letters, or after another one, they are only invisible. */
const joiners = '(?:\\u200c|\\u200d)';
const unjoined = '(?<![^\\p{Script=Latin}\\p{Script=Greek}\\p{Script=Cyrillic}\\p{ASCII}\\u200c\\u200d])';
const selectors = '[\\ufe00-\\ufe0f]';
const invisible = new RegExp(
  `${always}|(?!${joiners}|${selectors})${ignorable}|${unjoined}${joiners}|(?<!\\p{Emoji})${selectors}`,
  'gu',
);
const ascii = /^[\x20-\x7e]*$/;

/** The text with `markOf` each such character in its place. */
export const markInvisible = (text: string, markOf: (character: string) => string): string =>
  ascii.test(text) ? text : text.replace(invisible, markOf);

/** As escapes of JSON. The result for JSON is the same JSON. */
export const escapeInvisible = (text: string): string =>
  markInvisible(text, (character) =>
    [...Array(character.length).keys()]
      .map((index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`)
      .join(''),
  );
