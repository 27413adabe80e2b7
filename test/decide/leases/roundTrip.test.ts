// What a server adds to its terms for its distance to Redis: any single measure may be wrong.

import { expect, test } from 'vitest';
import { RoundTrip } from '../../../src/decide/leases/roundTrip.ts';

/** One call after the other, a tenth of a second apart. */
function measuring(...times: number[]) {
  const roundTrip = new RoundTrip();
  let now = 0;
  const measure = (...more: number[]) => {
    for (const ms of more) {
      roundTrip.measured(ms, now);
      now += 100;
    }
    return roundTrip.ms;
  };
  measure(...times);
  return { roundTrip, measure, wait: (ms: number) => (now += ms) };
}

test('the first calls of a process say nothing', () => {
  expect(measuring().roundTrip.ms).toBe(0);
  expect(measuring(80, 81).roundTrip.ms).toBe(0);
  expect(measuring(80, 81, 82).roundTrip.ms).toBe(80);
});

test('calls that had to wait do not count: for a slow script, or while the process was paused', () => {
  expect(measuring(0.4, 0.5, 0.6, 30_000, 250).roundTrip.ms).toBe(0);
  expect(measuring(900, 80.9, 81, 30_000, 250, 250).roundTrip.ms).toBe(80);
});

test('it is bounded, whatever is measured', () => {
  expect(measuring(5000, 5000, 5000).roundTrip.ms).toBe(400);
});

test('a way that gets shorter counts at once, one that gets longer within twenty seconds', () => {
  const { measure, wait } = measuring(80, 80, 80);
  expect(measure(20)).toBe(20);
  expect(measure(80, 80, 80)).toBe(20);
  wait(9_000);
  expect(measure(80)).toBe(20);
  wait(1_000);
  expect(measure(80)).toBe(20);
  wait(10_000);
  expect(measure(80)).toBe(80);
});

test('after a long pause only what is measured since counts', () => {
  const { measure, wait } = measuring(20, 20, 20);
  wait(60_000);
  expect(measure(80)).toBe(80);
});
