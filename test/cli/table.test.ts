// Times and durations of the command line.

import { expect, test } from 'vitest';
import { durationOf, durationText, endOf, expiryOf, firstOf, timeOf } from '../../src/cli/table.ts';

const now = Date.parse('2026-11-22T22:30:00Z');

test.each([
  ['14:03', '2026-11-22T14:03:00Z'],
  ['14:03:59Z', '2026-11-22T14:03:59Z'],
  ['22:30', '2026-11-22T22:30:00Z'],
  ['22:31', '2026-11-21T22:31:00Z'],
  ['23:40+01:00', '2026-11-21T22:40:00Z'],
  ['23:20+01:00', '2026-11-22T22:20:00Z'],
  ['00:10+02:00', '2026-11-22T22:10:00Z'],
  ['22:00-05:00', '2026-11-22T03:00:00Z'],
  ['2026-11-16', '2026-11-16T00:00:00Z'],
  ['2026-11-16T14:03', '2026-11-16T14:03:00Z'],
  ['2026-11-16T14:03+01:00', '2026-11-16T13:03:00Z'],
])('%s is %s', (text, time) => {
  expect(timeOf(text, now)).toBe(Date.parse(time));
});

test('a period may end in the future, or on the day after its start', () => {
  const [at, afterMidnight] = [Date.parse('2026-11-22T14:05:00Z'), Date.parse('2026-11-23T00:05:00Z')];
  const periods = [
    ['14:00', '14:10', at, '2026-11-22T14:00:00Z', '2026-11-22T14:10:00Z'],
    ['14:00', '14:03', at, '2026-11-22T14:00:00Z', '2026-11-22T14:03:00Z'],
    ['23:55', '00:10', afterMidnight, '2026-11-22T23:55:00Z', '2026-11-23T00:10:00Z'],
    ['2026-11-22', '2026-11-21', at, '2026-11-22T00:00:00Z', '2026-11-21T00:00:00Z'],
  ] as const;
  for (const [from, to, nowMs, start, end] of periods) {
    const startMs = timeOf(from, nowMs);
    expect([startMs, endOf(to, startMs, nowMs)]).toEqual([Date.parse(start), Date.parse(end)]);
  }
});

test.each(['', '14', '25:00', '2026-11', '2026-13-01', '2026-02-31', '2026-11-16T', 'T14:03', 'now', '1795385741189'])(
  '%j is no time',
  (text) => {
    expect(() => timeOf(text, now)).toThrow(`${text} is not a time. Use a time of UTC such as 14:03`);
  },
);

test('times begin in 1970', () => {
  expect(() => timeOf('1969-12-31', now)).toThrow('1969-12-31 is before 1970');
  expect(timeOf('1970-01-01', now)).toBe(0);
});

test.each([
  ['250ms', 250, '250ms'],
  ['90s', 90_000, '90s'],
  ['60s', 60_000, '1m'],
  ['90m', 5_400_000, '90m'],
  ['12h', 43_200_000, '12h'],
  ['30d', 2_592_000_000, '30d'],
  ['1w', 604_800_000, '7d'],
  ['0s', 0, '0ms'],
])('%s is %i ms, and printed as %s', (text, ms, printed) => {
  expect(durationOf(text)).toBe(ms);
  expect(durationText(ms)).toBe(printed);
  expect(durationOf(durationText(ms))).toBe(ms);
});

test.each(['', '1', 'd', '1 d', '1.5h', '-1h', '1y', '1D', '1d1h', '1234567890123s'])('%j is no duration', (text) => {
  expect(() => durationOf(text)).toThrow(`${text} is not a duration. Use, for example, 90s, 15m, 12h, 30d or 1w.`);
});

test('an expiry is a date, a time with its zone, or a duration from now', () => {
  expect(expiryOf('1w', now)).toBe(now + 604_800_000);
  expect(expiryOf('2026-11-23', now)).toBe(Date.parse('2026-11-23'));
  for (const text of ['2026-11-22', '0s']) expect(() => expiryOf(text, now)).toThrow('is in the past');
  for (const text of ['23:00', '2026-11-23T10:00', '4000w', 'never', '2027-02-31', '2027-02-29T10:00Z', '2027-13-01']) {
    expect(() => expiryOf(text, now)).toThrow(`--expires ${text} is not valid. Use a date`);
  }
});

test('a long list is cut, and counted', () => {
  expect(firstOf(['a', 'b'], 2)).toBe('a, b');
  expect(firstOf(['a', 'b', 'c'], 2, ' ')).toBe('a b and 1 more');
});
