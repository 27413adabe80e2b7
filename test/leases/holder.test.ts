// The leases of a process, without Redis: what they keep and send is bounded.

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type LeasedRequest, Leases } from '../../src/store/leases/leases.ts';

const termMs = 100;
let sent: number[];
let leases: Leases;
beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  leases = new Leases({
    termMs,
    after: 1,
    nowMs: () => 0,
    mayAsk: () => true,
    settle: async (_workspaceId, _settlement, tallies) =>
      void sent.push(tallies.reduce((sum, { count }) => sum + count, 0)),
  });
});
afterEach(() => {
  vi.useRealTimers();
});

const requestOf = (name: string, text = ''): LeasedRequest => ({
  workspaceId: 'ws',
  rootDigest: 'root',
  about: name,
  cost: 1,
  text: Buffer.from(text),
});
const decision = { outcome: 1, subject: Buffer.alloc(0), again: () => true };

test('a quarter of a term settles the decisions of all keys, however many they are', async () => {
  const requests = Array.from({ length: 300 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, 0, termMs, decision);
  for (let turn = 1; turn <= 4; turn++) {
    for (const request of requests) expect(leases.decide(request) ?? leases.decide(request)).toBeDefined();
    await vi.advanceTimersByTimeAsync(termMs / 4);
    expect(sent.reduce((sum, count) => sum + count, 0)).toBe(turn * requests.length);
  }
});

test('a settlement is bounded in bytes', async () => {
  const large = { ...decision, subject: Buffer.alloc(4000) };
  const requests = Array.from({ length: 10 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, 0, termMs, large);
  for (const request of requests) expect(leases.decide(request)).toBeDefined();
  await vi.advanceTimersByTimeAsync(termMs / 4);
  expect(sent).toEqual([3, 3, 3, 1]);
});

test('no lease is asked for with a long request', () => {
  expect(leases.ask(requestOf('long', 'x'.repeat(1025)))).toBeUndefined();
  expect(leases.ask(requestOf('short', 'x'.repeat(1024)))).toBeDefined();
});
