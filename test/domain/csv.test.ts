import { expect, test } from 'vitest';
import { csvOf } from '../../src/domain/csv.ts';

const cellOf = (value: unknown) =>
  csvOf(['a'], [[value]])
    .split('\r\n')
    .slice(1)
    .join('\r\n');

test.each([
  ['plain', 'plain'],
  ['', ''],
  [undefined, ''],
  [null, ''],
  [-5, '-5'],
  [1.5, '1.5'],
  ['a, b', '"a, b"'],
  ['a "b"', '"a ""b"""'],
  ['a;b', '"a;b"'],
  ['two\nlines', '"two\nlines"'],
  ['a-b=c+d@e', 'a-b=c+d@e'],
  ['{"balance":[1,-2]}', '"{""balance"":[1,-2]}"'],
])('%j is %j', (value, cell) => expect(cellOf(value)).toBe(cell));

// The second cell is what a spreadsheet with another separator makes of it.
test.each([
  ['=1+1', "'=1+1"],
  ['+1', "'+1"],
  ['-1', "'-1"],
  ['@SUM(A1)', "'@SUM(A1)"],
  ['\t=1', `"\t'=1"`],
  ['  =1', `"  '=1"`],
  ['\u00a0\u3000=1', `"\u00a0\u3000'=1"`],
  ['\u200b\ufeff=1', "\u200b\ufeff'=1"],
  ['"=1"', `"""'=1"""`],
  ["'=1", "''=1"],
  ['x;=1+1', `"x;'=1+1"`],
  ['x; =1+1', `"x; '=1+1"`],
  ['x;"=1+1"', `"x;""'=1+1"""`],
  ['x\t=1+1', `"x\t'=1+1"`],
  ['x|=1+1', `"x|'=1+1"`],
  ['x\r=1', `"x\r'=1"`],
  ['x\n=1', `"x\n'=1"`],
  ['x;y;-1;@a', `"x;y;'-1;'@a"`],
  ['＝1+1', "'＝1+1"],
  ['＋1', "'＋1"],
  ['－1', "'－1"],
  ['＠a', "'＠a"],
  ['x;＝1', `"x;'＝1"`],
  ['﹦1', "'﹦1"],
  ['−1', "'−1"],
])('%j is no formula: %s', (value, cell) => expect(cellOf(value)).toBe(cell));

test('a long text of blanks takes no longer than another', () => {
  const text = '\ufeff \u3000'.repeat(100_000);
  expect(cellOf(text)).toBe(`"${text}"`);
});

test('headings are cells, too, and rows end as RFC 4180 says', () => {
  expect(csvOf(['=a', 'b'], [['c', 1]])).toBe("'=a,b\r\nc,1");
});
