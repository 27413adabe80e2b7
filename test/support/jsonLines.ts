// Texts of one JSON object a line, as an export and a log are.

// biome-ignore lint/suspicious/noExplicitAny: a test knows what its lines have
export const jsonLinesOf = <Line = any>(text: string): Line[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

export const textOf = (lines: readonly object[]) => lines.map((line) => `${JSON.stringify(line)}\n`).join('');
