// The leases of a process, without Redis: what they keep and send is bounded.

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type LeasedRequest, Leases } from '../../../src/decide/leases/leases.ts';

const termMs = 100;
let sent: number[];
let hasLeft: boolean;
let leases: Leases;
let now: number;
const open = (after: number) =>
  new Leases({
    termMs,
    after,
    nowMs: () => now,
    mayAsk: () => true,
    async settle(_workspaceId, _settlement, tallies, leaves) {
      sent.push(tallies.reduce((sum, { count }) => sum + count, 0));
      hasLeft ||= leaves;
    },
  });
beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  now = 0;
  hasLeft = false;
  leases = open(1);
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
  slot: -1,
  name: '',
});
function decideOften(request: LeasedRequest, times: number) {
  for (let time = 1; time <= times; time++) expect(leases.decide(request)).toBeDefined();
}

const decision = { outcome: 1, subject: Buffer.alloc(0), atMs: 0, charges: [], again: () => true };

test('a quarter of a term settles the decisions of all keys, however many they are', async () => {
  const requests = Array.from({ length: 300 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, 0, termMs, () => decision);
  for (let turn = 1; turn <= 4; turn++) {
    for (const request of requests) decideOften(request, 8);
    await vi.advanceTimersByTimeAsync(termMs / 4);
    expect(sent.reduce((sum, count) => sum + count, 0)).toBe(turn * requests.length * 8);
  }
});

test('a settlement is bounded in bytes', async () => {
  const large = { ...decision, subject: Buffer.alloc(4000) };
  const requests = Array.from({ length: 10 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, 0, termMs, () => large);
  for (const request of requests) decideOften(request, 8);
  await vi.advanceTimersByTimeAsync(termMs / 4);
  expect(sent).toEqual([24, 24, 24, 8]);
});

test('fewer decisions of a lease are settled once, when it has ended', async () => {
  const request = requestOf('one');
  leases.granted(leases.ask(request)!, 0, termMs, () => decision);
  decideOften(request, 7);
  now = termMs - 1;
  await vi.advanceTimersByTimeAsync(3 * termMs);
  expect(sent).toEqual([]);
  now = termMs;
  await vi.advanceTimersByTimeAsync(termMs / 4);
  expect(sent).toEqual([7]);
});

test('a request that was granted no lease does not ask with each of the next requests', () => {
  const request = requestOf('one');
  const ask = leases.ask(request)!;
  leases.granted(ask, 0, 0, () => decision);
  for (let time = 1; time <= 32; time++) expect(leases.ask(request)).toBeUndefined();
  expect(leases.ask(request)).toBeDefined();
});

test('in the next term it asks again', () => {
  const request = requestOf('one');
  leases.granted(leases.ask(request)!, 0, 0, () => decision);
  now = termMs;
  expect(leases.ask(request)).toBeDefined();
});

test('a lease is found when the decisions of the next term are counted', () => {
  const leased = requestOf('leased');
  now = termMs / 2;
  leases.granted(leases.ask(leased)!, 0, termMs, () => decision);
  now = termMs;
  expect(leases.ask(requestOf('other'))).toBeDefined();
  expect(leases.decide(leased)).toBeDefined();
});

test('a lease ends one term after it was asked for, however late its answer is, and decides until then only', () => {
  // It decides too little to be renewed before.
  leases = open(4);
  const request = requestOf('one');
  for (let time = 1; time <= 3; time++) expect(leases.ask(request)).toBeUndefined();
  const ask = leases.ask(request)!;
  now = termMs / 2;
  leases.granted(ask, 0, termMs, () => decision);
  now = termMs - 0.001;
  expect(leases.decide(request)).toBeDefined();
  now = termMs;
  expect(leases.decide(request)).toBeUndefined();
});

test('the end of a process leaves the registry, also after requests that were hot', async () => {
  const request = requestOf('hot');
  const ask = leases.ask(request)!;
  leases.granted(ask, 5, termMs, () => decision);
  expect(leases.decide(request)).toBeDefined();
  await leases.recall('ws', new Set([ask.number]));
  await leases.close();
  expect(hasLeft).toBe(true);
});

test('no lease is asked for with a long request', () => {
  expect(leases.ask(requestOf('long', 'x'.repeat(1025)))).toBeUndefined();
  expect(leases.ask(requestOf('short', 'x'.repeat(1024)))).toBeDefined();
});

test('requests of one key that differ are counted apart, so none of them asks for a lease', () => {
  leases = open(4);
  const requests = Array.from({ length: 1000 }, (_, index) => requestOf('key', `tag ${index}`));
  for (let time = 1; time <= 3; time++) {
    const asked = requests.filter((request) => leases.ask(request));
    // A few have the same hash.
    expect(asked.length).toBeLessThan(50);
  }
});

test.each<[string, Partial<LeasedRequest>]>([
  ['tags', { text: Buffer.from('b') }],
  ['cost', { cost: 2 }],
  ['root key', { rootDigest: 'toor' }],
  ['key', { about: 'another' }],
  ['workspace', { workspaceId: 'sw' }],
])('a lease is for the same request: not with another %s', (_what, difference) => {
  const request = requestOf('key', 'a');
  const other = { ...requestOf('key', 'a'), ...difference };
  leases.granted(leases.ask(request)!, 0, termMs, () => ({ ...decision, again: () => 'first' }));
  expect(leases.decide(requestOf('key', 'a'))).toBe('first');
  expect(leases.decide(other)).toBeUndefined();
  leases.granted(leases.ask(other)!, 0, termMs, () => ({ ...decision, again: () => 'second' }));
  expect([leases.decide(request), leases.decide(other)]).toEqual(['first', 'second']);
});
