// CSV that spreadsheets read as data, even in a locale with another separator than the comma.

/**
 * Separators of cells in other locales and imports, which read the quotes of a cell that is not the first as text. A
 * comma in quotes separates nothing.
 */
const separators = ';|\\t\\r\\n';
/** Characters that begin a formula, including their full-width, small, raised and lowered forms. */
const formula = '=+\\-@＝＋－＠﹦﹢﹣﹫⁼⁺⁻₌₊₋−';
/**
 * Blanks, quotes, and what is not visible: a spreadsheet may drop them before a formula. One class, so that nothing
 * backtracks.
 */
const dropped = ' \\x0b\\x0c\\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000"\'\\p{Default_Ignorable_Code_Point}';
/** The beginning of a formula at the beginning of a text, or of what another separator makes a cell. */
const startsFormula = new RegExp(`(^|[${separators}])([${dropped}]*)(?=[${formula}])`, 'gu');
const needsQuotes = new RegExp(`[",${separators}]|^\\s|\\s$`);

function cell(value: unknown): string {
  if (typeof value === 'number') return String(value);
  const text = value === undefined || value === null ? '' : String(value);
  // An apostrophe makes a spreadsheet take the rest as text.
  const safe = text.replace(startsFormula, "$1$2'");
  return needsQuotes.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Rows as lines. Numbers stay numbers; a text that a spreadsheet would run as a formula has an apostrophe before. */
export const csvRows = (rows: readonly (readonly unknown[])[]): string =>
  rows.map((row) => row.map(cell).join(',')).join('\r\n');

/** Rows below their headings. */
export const csvOf = (headings: readonly string[], rows: readonly (readonly unknown[])[]): string =>
  csvRows([headings, ...rows]);
