// The leases of a process, without Redis: what they keep and send is bounded.

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type LeasedRequest, Leases } from '../../../src/decide/leases/leases.ts';

const termMs = 100;
let sent: number[];
/** By tags, which are the subjects of tallies here. */
let counted: Map<string, number>;
let hasLeft: boolean;
let leases: Leases;
let now: number;
let roundTripMs: number;
let isSettling: boolean;
const open = (after: number, longMs?: number) =>
  new Leases({
    longMs: longMs === undefined ? undefined : () => longMs,
    roundTripMs: () => roundTripMs,
    termMs,
    after,
    nowMs: () => now,
    mayAsk: () => true,
    async settle(_workspaceId, _settlement, tallies, leaves) {
      if (!isSettling) throw new Error('Redis is away');
      for (const { subject, count } of tallies) {
        const tags = subject.toString();
        counted.set(tags, (counted.get(tags) ?? 0) + count);
      }
      sent.push(tallies.reduce((sum, { count }) => sum + count, 0));
      hasLeft ||= leaves > 0;
    },
  });
beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  counted = new Map();
  now = 0;
  roundTripMs = 0;
  isSettling = true;
  hasLeft = false;
  leases = open(1);
});
afterEach(() => {
  vi.useRealTimers();
});

const requestOf = (name: string, text = '', tags = ''): LeasedRequest => ({
  workspaceId: 'ws',
  rootDigest: 'root',
  about: name,
  cost: 1,
  text: Buffer.from(text + tags),
  leasedBytes: text.length,
  tags,
  slot: -1,
  name: '',
});
function decideOften(request: LeasedRequest, times: number) {
  for (let time = 1; time <= times; time++) expect(leases.decide(request)).toBeDefined();
}

const grant = (units: number, term: number) => ({ units, term, isCut: false, isLong: false });
const subjectOf = ({ text }: LeasedRequest) => text;
const decision = { outcome: 1, subjectOf, atMs: 0, charges: [], decisionAfter: () => true };

test('a quarter of a term settles the decisions of all keys, however many they are', async () => {
  const requests = Array.from({ length: 300 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, grant(0, termMs), () => decision);
  for (let turn = 1; turn <= 4; turn++) {
    for (const request of requests) decideOften(request, 8);
    await vi.advanceTimersByTimeAsync(termMs / 4);
    expect(sent.reduce((sum, count) => sum + count, 0)).toBe(turn * requests.length * 8);
  }
});

test('a settlement is bounded in bytes', async () => {
  const large = { ...decision, subjectOf: () => Buffer.alloc(4000) };
  const requests = Array.from({ length: 10 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, grant(0, termMs), () => large);
  for (const request of requests) decideOften(request, 8);
  await vi.advanceTimersByTimeAsync(termMs / 4);
  expect(sent).toEqual([24, 24, 24, 8]);
});

test('fewer decisions of a lease are settled once, when it has ended', async () => {
  const request = requestOf('one');
  leases.granted(leases.ask(request)!, grant(0, termMs), () => decision);
  decideOften(request, 7);
  now = termMs - 1;
  await vi.advanceTimersByTimeAsync(3 * termMs);
  expect(sent).toEqual([]);
  now = termMs;
  await vi.advanceTimersByTimeAsync(termMs / 4);
  expect(sent).toEqual([7]);
});

test('while many tallies wait to be settled, no lease is asked for', async () => {
  const requests = Array.from({ length: 700 }, (_, index) => requestOf(`${index}`));
  for (const request of requests) leases.granted(leases.ask(request)!, grant(0, termMs), () => decision);
  for (const request of requests) decideOften(request, 2);
  now = termMs;
  isSettling = false;
  await vi.advanceTimersByTimeAsync(termMs / 4);
  const other = requestOf('other');
  expect(leases.ask(other)).toBeUndefined();
  isSettling = true;
  await vi.advanceTimersByTimeAsync(termMs);
  expect(sent.reduce((sum, count) => sum + count, 0)).toBe(2 * requests.length);
  expect(leases.ask(other)).toBeDefined();
});

test('a request that was granted no lease does not ask with each of the next requests', () => {
  const request = requestOf('one');
  const ask = leases.ask(request)!;
  leases.granted(ask, grant(0, 0), () => decision);
  for (let time = 1; time <= 32; time++) expect(leases.ask(request)).toBeUndefined();
  expect(leases.ask(request)).toBeDefined();
});

test('in the next term it asks again', () => {
  const request = requestOf('one');
  leases.granted(leases.ask(request)!, grant(0, 0), () => decision);
  now = termMs;
  expect(leases.ask(request)).toBeDefined();
});

test('one that is never granted a lease asks less and less often, in the next terms too', () => {
  const request = requestOf('credits');
  const decisionsUntilAsk = () => {
    for (let decisions = 1; ; decisions++) {
      now += termMs;
      const ask = leases.ask(request);
      if (!ask) continue;
      leases.granted(ask, grant(0, 0), () => decision);
      return decisions;
    }
  };
  expect(Array.from({ length: 10 }, decisionsUntilAsk)).toEqual([1, 1, 1, 1, 1, 65, 129, 257, 513, 513]);
  let ask: ReturnType<typeof leases.ask>;
  while (!ask) ask = leases.ask(request);
  leases.granted(ask, grant(0, termMs), () => decision);
  now += termMs;
  expect(Array.from({ length: 5 }, decisionsUntilAsk)).toEqual([1, 1, 1, 1, 1]);
});

test('a lease is found when the decisions of the next term are counted', () => {
  const leased = requestOf('leased');
  now = termMs / 2;
  leases.granted(leases.ask(leased)!, grant(0, termMs), () => decision);
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
  leases.granted(ask, grant(0, termMs), () => decision);
  now = termMs - 0.001;
  expect(leases.decide(request)).toBeDefined();
  now = termMs;
  expect(leases.decide(request)).toBeUndefined();
});

describe('a lease is renewed', () => {
  const request = requestOf('hot');
  /** Redis answers 80 ms later: with 100 units for the term of a distance of 80 ms. */
  const far = grant(100, 177);
  function hold(given = far) {
    const ask = leases.ask(request)!;
    now += roundTripMs;
    leases.granted(ask, given, () => decision);
  }
  const isAsked = () => leases.decide(request) === undefined;

  test('when a quarter of its term is left', () => {
    hold(grant(100, termMs));
    now = 74;
    expect([isAsked(), isAsked()]).toEqual([false, false]);
    now = 75;
    expect([isAsked(), isAsked()]).toEqual([true, false]);
  });

  test('so early that the next one arrives before its end, and decides meanwhile', () => {
    roundTripMs = 80;
    hold();
    now = 86;
    expect([isAsked(), isAsked()]).toEqual([false, false]);
    now = 87;
    expect(isAsked()).toBe(true);
    const ask = leases.ask(request)!;
    now = 87 + 80;
    expect([isAsked(), isAsked()]).toEqual([false, false]);
    leases.granted(ask, far, () => ({ ...decision, decisionAfter: () => 'next' }));
    expect(leases.decide(request)).toBe('next');
    now = 87 + 176;
    expect(isAsked()).toBe(true);
    expect(leases.decide(request)).toBe('next');
    now = 87 + 177;
    expect(leases.decide(request)).toBeUndefined();
  });

  test('from when the next one was asked for, however late that arrives', () => {
    hold(grant(100, termMs));
    decideOften(request, 1);
    now = 75;
    expect(isAsked()).toBe(true);
    const late = leases.ask(request)!;
    now = 75 + termMs - 1;
    leases.granted(late, grant(100, termMs), () => decision);
    expect([isAsked(), isAsked()]).toEqual([true, false]);
    const later = leases.ask(request)!;
    now = 75 + termMs;
    expect(leases.decide(request)).toBeUndefined();
    now += termMs - 1;
    leases.granted(later, grant(100, termMs), () => decision);
    expect(leases.decide(request)).toBeUndefined();
  });

  test('so early that its units last until then', () => {
    roundTripMs = 80;
    hold();
    now = 81;
    decideOften(request, 50);
    expect([isAsked(), isAsked()]).toEqual([true, false]);
    expect(leases.ask(request)!.wanted).toBe(4);
  });

  test('often enough: what it decided before it was renewed counts', () => {
    roundTripMs = 80;
    leases = open(4);
    for (let time = 1; time <= 3; time++) expect(leases.ask(request)).toBeUndefined();
    hold();
    decideOften(request, 4);
    now = 90;
    expect(isAsked()).toBe(true);
    hold();
    now = 90 + 87;
    expect(isAsked()).toBe(true);
  });

  test('not before its end if that is the end of what the decision depends on, and then not at once', () => {
    roundTripMs = 80;
    hold({ units: 100, term: 120, isCut: true, isLong: false });
    now = 119;
    expect([isAsked(), isAsked()]).toEqual([false, false]);
    now = 120;
    expect(isAsked()).toBe(true);
    expect(leases.ask(request)).toBeUndefined();
    // Some milliseconds later it has ended for Redis, too.
    now = 127.7;
    expect(leases.ask(request)).toBeUndefined();
    now = 127.8;
    expect(leases.ask(request)).toBeDefined();
  });

  test('at once, if it was cut and recalled, or used up', async () => {
    hold({ units: 100, term: 120, isCut: true, isLong: false });
    decideOften(request, 2);
    await leases.recall();
    hold({ units: 1, term: 120, isCut: true, isLong: false });
    expect(leases.decide(request)).toBeDefined();
    expect(leases.decide(request)).toBeUndefined();
    expect(leases.ask(request)).toBeDefined();
  });

  test('with half of the units, when it used less than a third of them', () => {
    const first = leases.ask(request)!;
    leases.granted(first, grant(first.wanted, termMs), () => decision);
    const wanted = [];
    for (let time = 1; time <= 4; time++) {
      while (!isAsked());
      const ask = leases.ask(request)!;
      wanted.push(ask.wanted);
      leases.granted(ask, grant(ask.wanted, termMs), () => decision);
    }
    expect(wanted).toEqual([4, 8, 16, 32]);
    decideOften(request, 5);
    now = 75;
    expect(isAsked()).toBe(true);
    // What the lease has not used is known when the next one comes.
    const same = leases.ask(request)!;
    expect(same.wanted).toBe(32);
    leases.granted(same, grant(32, termMs), () => decision);
    now = 150;
    expect(isAsked()).toBe(true);
    expect(leases.ask(request)!.wanted).toBe(16);
  });
});

describe('long terms', () => {
  const request = requestOf('warm');
  const long = (units: number) => ({ units, term: 1000, isCut: false, isLong: true });
  beforeEach(() => {
    roundTripMs = 10;
    leases = open(12, 1000);
  });
  /** Requests for Redis, one each so many milliseconds; the ask of the last one. */
  function requests(count: number, eachMs: number) {
    for (let time = 1; time < count; time++) {
      expect(leases.ask(request)).toBeUndefined();
      now += eachMs;
    }
    return leases.ask(request);
  }

  test('a lease is asked for from six decisions in one on, and for one only', () => {
    expect(requests(6, 160)).toMatchObject({ isHot: false });
  });

  test.each([5, 6])('where Redis is nearer than 10 ms, from ten on, and again after six, not %i', (times) => {
    roundTripMs = 9;
    leases.granted(requests(10, 80)!, long(0), () => decision);
    decideOften(request, times);
    now += 1000;
    expect(leases.decide(request)).toBeUndefined();
    expect(leases.ask(request) !== undefined).toBe(times === 6);
  });

  test('and from twelve in a term of LEASE_MS on for that, too', () => {
    leases.granted(requests(6, 8)!, grant(0, 0), () => decision);
    // No lease was granted, so it asks for none for a while.
    for (let time = 1; time <= 32; time++) expect(leases.ask(request)).toBeUndefined();
    expect(leases.ask(request)).toMatchObject({ isHot: true });
  });

  test('decisions of more than a long term ago do not count', () => {
    expect(requests(5, 160)).toBeUndefined();
    now = 1001;
    expect(requests(5, 160)).toBeUndefined();
  });

  test.each([
    [3, true],
    [2, false],
  ])('a lease that decided %i times is asked for again with the next request: %s', (times, isKept) => {
    leases.granted(requests(6, 160)!, long(0), () => decision);
    decideOften(request, times);
    now += 1000;
    expect(leases.decide(request)).toBeUndefined();
    expect(leases.ask(request) !== undefined).toBe(isKept);
  });

  test.each([
    ['decided three times', 3, true],
    ['decided twice', 2, false],
    ['had not arrived', 0, false],
  ])(
    'a lease that %s when it was taken back is asked for again with the next request: %#',
    async (_what, times, isKept) => {
      const ask = requests(6, 10)!;
      const grantNow = () => leases.granted(ask, long(0), () => decision);
      if (times > 0) grantNow();
      decideOften(request, times);
      const recalled = leases.recall('ws');
      if (times === 0) grantNow();
      await recalled;
      if (isKept) expect(leases.ask(request)).toBeDefined();
      // Or from six requests on.
      else expect(requests(6, 10)).toMatchObject({ wanted: 12, isHot: false });
    },
  );

  test('two leases in a row that were taken back early are enough', async () => {
    let ask = requests(6, 10)!;
    for (const times of [3, 0, 0]) {
      leases.granted(ask, long(0), () => decision);
      decideOften(request, times);
      await leases.recall('ws');
      ask = leases.ask(request)!;
    }
    expect(ask).toBeUndefined();
  });

  test('a lease that is renewed is asked for again, also if the next one had not arrived', async () => {
    leases.granted(requests(6, 160)!, long(0), () => decision);
    decideOften(request, 3);
    now += 900;
    expect(leases.decide(request)).toBeUndefined();
    const ask = leases.ask(request)!;
    const recalled = leases.recall('ws');
    leases.granted(ask, long(0), () => decision);
    await recalled;
    expect(leases.ask(request)).toBeDefined();
  });

  test('is asked for with more units the sooner the last ones were used', () => {
    const wanted: number[] = [];
    for (const usedMs of [10, 200, 400, 700]) {
      const ask = wanted.length === 0 ? requests(6, 1)! : leases.ask(request)!;
      wanted.push(ask.wanted);
      leases.granted(ask, { ...long(ask.wanted), term: 1000 }, () => decision);
      decideOften(request, Math.ceil(0.75 * ask.wanted) - 1);
      now += usedMs;
      while (leases.decide(request));
    }
    wanted.push(leases.ask(request)!.wanted);
    expect(wanted).toEqual([12, 96, 480, 1200, 2400]);
  });
});

test('a request that had a lease asks again soon, and once more, before it asks for none for a while', () => {
  const request = requestOf('one');
  leases.granted(leases.ask(request)!, grant(0, termMs), () => decision);
  decideOften(request, 2);
  now = termMs;
  expect(leases.decide(request)).toBeUndefined();
  const refuse = () => leases.granted(leases.ask(request)!, grant(0, 0), () => decision);
  refuse();
  // It may have asked in the last moment of a slice.
  expect(leases.ask(request)).toBeUndefined();
  now += termMs / 4;
  refuse();
  refuse();
  for (let time = 1; time <= 32; time++) expect(leases.ask(request)).toBeUndefined();
});

test('the end of a process leaves the registry, also after requests that were hot', async () => {
  const request = requestOf('hot');
  const ask = leases.ask(request)!;
  leases.granted(ask, grant(5, termMs), () => decision);
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
  const requests = Array.from({ length: 1000 }, (_, index) => requestOf('key', `limit ${index}`));
  for (let time = 1; time <= 3; time++) {
    const asked = requests.filter((request) => leases.ask(request));
    // A few have the same hash.
    expect(asked.length).toBeLessThan(50);
  }
});

test.each<[string, Partial<LeasedRequest>]>([
  ['limit', { text: Buffer.from('b') }],
  ['cost', { cost: 2 }],
  ['root key', { rootDigest: 'toor' }],
  ['key', { about: 'another' }],
  ['workspace', { workspaceId: 'sw' }],
])('a lease is for the same request: not with another %s', (_what, difference) => {
  const request = requestOf('key', 'a');
  const other = { ...requestOf('key', 'a'), ...difference };
  leases.granted(leases.ask(request)!, grant(0, termMs), () => ({ ...decision, decisionAfter: () => 'first' }));
  expect(leases.decide(requestOf('key', 'a'))).toBe('first');
  expect(leases.decide(other)).toBeUndefined();
  leases.granted(leases.ask(other)!, grant(0, termMs), () => ({ ...decision, decisionAfter: () => 'second' }));
  expect([leases.decide(request), leases.decide(other)]).toEqual(['first', 'second']);
});

describe('requests that differ in their tags', () => {
  const tagged = (tags: string | number) => requestOf('key', '', `${tags}`);
  async function settle() {
    now += termMs;
    await vi.advanceTimersByTimeAsync(termMs);
  }

  test('share a lease, which counts each list of tags', async () => {
    leases = open(4);
    for (const tags of ['a', 'b', 'a']) expect(leases.ask(tagged(tags))).toBeUndefined();
    leases.granted(leases.ask(tagged('a'))!, grant(100, termMs), () => decision);
    for (const tags of ['a', 'b', 'b', '', 'a', 'b']) expect(leases.decide(tagged(tags))).toBeDefined();
    await settle();
    expect(counted).toEqual(new Map(Object.entries({ a: 2, b: 3, '': 1 })));
    expect(sent).toEqual([6]);
  });

  test('are tallied while the lease lasts, and counted once', async () => {
    leases.granted(leases.ask(tagged('a'))!, grant(0, 10 * termMs), () => decision);
    for (let turn = 1; turn <= 4; turn++) {
      for (const tags of ['a', 'b']) decideOften(tagged(tags), 8);
      await vi.advanceTimersByTimeAsync(termMs / 4);
      expect(counted).toEqual(new Map(Object.entries({ a: 8 * turn, b: 8 * turn })));
    }
  });

  test('are tallied by the count of each list: few decisions wait for the end, and no list for another one', async () => {
    leases.granted(leases.ask(tagged('a'))!, grant(0, 2 * termMs), () => decision);
    decideOften(tagged('a'), 9);
    for (const tags of ['b', 'c', 'd']) decideOften(tagged(tags), 7);
    await vi.advanceTimersByTimeAsync(termMs / 4);
    expect(counted).toEqual(new Map([['a', 9]]));
    decideOften(tagged('b'), 1);
    await vi.advanceTimersByTimeAsync(termMs / 4);
    expect(counted).toEqual(new Map(Object.entries({ a: 9, b: 8 })));
    now = 2 * termMs;
    await vi.advanceTimersByTimeAsync(termMs);
    expect(counted).toEqual(new Map(Object.entries({ a: 9, b: 8, c: 7, d: 7 })));
  });

  test('are decided at Redis when there are too many lists for a lease, which is not asked for again by them', async () => {
    leases.granted(leases.ask(tagged(0))!, grant(4000, termMs), () => decision);
    for (let number = 1; number < 1024; number++) decideOften(tagged(number), 1);
    const other = tagged('other');
    expect([leases.decide(other), leases.ask(other)]).toEqual([undefined, undefined]);
    decideOften(tagged(7), 3);
    await settle();
    expect(counted.get('7')).toBe(4);
    expect(sent.reduce((sum, count) => sum + count, 0)).toBe(1026);
  });

  test('are decided at Redis when all leases together have too many, until these are settled', async () => {
    const requests = Array.from({ length: 20 }, (_, index) => requestOf(`${index}`));
    for (let round = 1; round <= 2; round++) {
      for (const request of requests) leases.granted(leases.ask(request)!, grant(0, termMs), () => decision);
      const tagged = requests.flatMap(({ about }) =>
        Array.from({ length: 1000 }, (_, tag) => requestOf(about, '', `t${tag}`)),
      );
      expect(tagged.filter((request) => leases.decide(request))).toHaveLength(16_384);
      await settle();
    }
  });

  test('are decided at Redis when they are too long', () => {
    leases.granted(leases.ask(tagged('a'))!, grant(0, termMs), () => decision);
    decideOften(tagged('x'.repeat(1024)), 1);
    expect(leases.decide(tagged('x'.repeat(1025)))).toBeUndefined();
  });

  test('a lease that gained nothing is not asked for again before its key is in heavy use', async () => {
    leases = open(4);
    const askOften = () => {
      for (let time = 1; time <= 3; time++) expect(leases.ask(tagged('a'))).toBeUndefined();
      return leases.ask(tagged('a'))!;
    };
    leases.granted(askOften(), grant(0, termMs), () => decision);
    for (let number = 1; number < 30; number++) decideOften(tagged(number), 1);
    await settle();
    leases.granted(askOften(), grant(0, termMs), () => decision);
    for (let number = 1; number < 30; number++) decideOften(tagged(number % 3), 1);
    await settle();
    expect(leases.ask(tagged('a'))).toBeDefined();
  });

  describe('are counted by the lease that renews theirs', () => {
    const atMs = 3_599_999;
    const turn = () => vi.advanceTimersByTimeAsync(termMs);
    const grantOf = (next: Partial<typeof decision>) =>
      leases.granted(leases.ask(tagged('a'))!, grant(4000, termMs), () => ({ ...decision, atMs, ...next }));
    /** The next lease arrives after four fifths of the term. */
    function renew(next: Partial<typeof decision> = {}) {
      now += 0.8 * termMs;
      expect(leases.decide(tagged('a'))).toBeUndefined();
      grantOf(next);
    }
    beforeEach(() => {
      leases = open(1, 4 * termMs);
      grantOf({});
      decideOften(tagged('a'), 4);
      for (const tags of ['b', 'c']) decideOften(tagged(tags), 3);
    });

    test('together, so that few decisions are tallied seldom', async () => {
      renew();
      await turn();
      expect(counted.size).toBe(1);
      expect(sent).toEqual([0]);
      decideOften(tagged('b'), 5);
      await turn();
      expect(counted.get('b')).toBe(8);
      await settle();
      expect(counted).toEqual(new Map(Object.entries({ a: 4, b: 8, c: 3 })));
    });

    test.each([
      ['another hour', { atMs: atMs + 1 }],
      ['another outcome', { outcome: 2 }],
      ['another identity', { subjectOf: ({ text }: LeasedRequest) => Buffer.from(`${text} of another`) }],
    ])('not with %s', async (_what, next) => {
      renew(next);
      await turn();
      expect(counted).toEqual(new Map(Object.entries({ a: 4, b: 3, c: 3 })));
    });

    test('no longer than a long term', async () => {
      for (let time = 1; time <= 5; time++) {
        expect(Math.max(0, ...counted.values())).toBe(0);
        renew();
        decideOften(tagged('d'), 1);
        await turn();
      }
      expect(counted).toEqual(new Map(Object.entries({ a: 4, b: 3, c: 3, d: 4 })));
    });

    test('not when it counts too many lists', async () => {
      for (let number = 3; number < 1024; number++) decideOften(tagged(number), 1);
      renew();
      await turn();
      expect(counted.get('b')).toBe(3);
      decideOften(tagged('other'), 1);
    });
  });
});
