import { afterEach, expect, test, vi } from 'vitest';
import { Metrics } from '../src/metrics.ts';

const minuteMs = 60_000;

/** Metrics by a clock of the test. */
function metricsAt(startMs = 1000) {
  let nowMs = startMs;
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
  const metrics = new Metrics();
  const verified = metrics.callsOf('keys.verifyKey', 'decides');
  return {
    metrics,
    verified,
    advance: (ms: number) => {
      nowMs += ms;
    },
    /** Counts requests of this duration. */
    took: (count: number, ms: number) => {
      for (let index = 0; index < count; index++) verified.count(200, ms);
    },
  };
}

afterEach(() => void vi.restoreAllMocks());

test('half and 99 % of the decisions did not exceed the times, by their buckets', () => {
  const { metrics, took, advance } = metricsAt();
  expect(metrics.decisionTimes()).toEqual({ periodMs: 0, count: 0 });
  took(80, 0.07);
  took(20, 3);
  advance(500);
  // From 0.05 to 0.1 ms, and from 2.5 to 5 ms.
  expect(metrics.decisionTimes()).toEqual({ periodMs: 500, count: 100, p50Ms: 0.081, p99Ms: 4.875 });
  took(900, 0.01);
  expect(metrics.decisionTimes()).toMatchObject({ count: 1000, p50Ms: 0.028, p99Ms: 3.75 });
});

test('one that took longer than all bounds counts as the last bound', () => {
  const { metrics, took } = metricsAt();
  took(1, 60_000);
  expect(metrics.decisionTimes()).toMatchObject({ count: 1, p50Ms: 5000, p99Ms: 5000 });
});

test('those of all deciding operations count, failed ones too, and no others', () => {
  const { metrics } = metricsAt();
  metrics.callsOf('ratelimits.limit', 'decides').count(503, 1);
  metrics.callsOf('apis.createApi', 'manages').count(200, 1);
  metrics.callsOf('page').count(200, 1);
  metrics.callsOf('ratelimits.limit').count(200, 1);
  expect(metrics.decisionTimes().count).toBe(2);
});

test('read every few seconds, they are those of one to two minutes', () => {
  const { metrics, took, advance } = metricsAt();
  const periods = [];
  for (let at = 0; at <= 5 * minuteMs; at += 5000) {
    const { periodMs, count } = metrics.decisionTimes();
    expect(count).toBe(periodMs / 1000);
    if (at > 2 * minuteMs) periods.push(periodMs);
    took(5, 1);
    advance(5000);
  }
  expect(Math.min(...periods)).toBe(minuteMs);
  expect(Math.max(...periods)).toBe(2 * minuteMs - 5000);
});
