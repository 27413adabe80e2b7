import { afterEach, describe, expect, test, vi } from 'vitest';
import { type QueuedBatch, WorkspaceQueues } from '../../src/decide/queues.ts';
import { ApiError } from '../../src/errors.ts';

class Batch implements QueuedBatch {
  readonly since = performance.now();
  weight = 0;
  count = 0;
  isBegun = false;
  isDone = false;
  failed: unknown;

  fail(error: unknown) {
    this.failed = error;
  }
}

interface Sent {
  workspaceId: string;
  batch: Batch;
  call: unknown;
  /** Decides the batch, or this many of its requests. */
  answer(count?: number, work?: number): void;
  /** Fails the call. */
  fail(error: Error): void;
  /** Fails the batch only. */
  failAlone(error: Error): void;
}

/** WorkspaceQueues whose batches the test settles: a call is answered when all of its batches are. */
function open({ inFlightMax = 1000, unknownAtOnce = 1000, sharesCalls = false } = {}) {
  const sent: Sent[] = [];
  const overloaded = vi.fn();
  const queues = new WorkspaceQueues({
    newBatch: () => new Batch(),
    send: (parts) =>
      new Promise((resolve, fail) => {
        const works: (number | Error)[] = [];
        for (const [index, { workspaceId, batch }] of parts.entries()) {
          const settle = (work: number | Error) => {
            works[index] = work;
            if (Object.keys(works).length < parts.length) return;
            resolve({ works, work: works.length, allWork: 0, at: performance.now() });
          };
          const answer = (count = batch.count, work = 1) => {
            batch.weight *= 1 - count / batch.count;
            batch.isBegun = count > 0;
            batch.isDone = count === batch.count;
            settle(count && work);
          };
          sent.push({ workspaceId, batch, call: parts, answer, fail, failAlone: settle });
        }
      }),
    nodeOf: () => () => '',
    sharesCalls: () => sharesCalls,
    shareMax: 0,
    weightMax: 3,
    workMax: 6,
    inFlightMax,
    unknownAtOnce,
    waitMs: 1000,
    overloaded,
  });
  const join = (workspaceId: string, weight = 1, isKnown = true) => {
    const batch = queues.join(workspaceId, isKnown);
    batch.weight += weight;
    batch.count++;
    return batch;
  };
  const counts = () => sent.map(({ workspaceId, batch }) => `${workspaceId}${batch.count}`).join(' ');
  const joinAsUnknown = (workspaceId: string) => join(workspaceId, 1, false);
  return { queues, sent, overloaded, join, joinAsUnknown, counts };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const unavailable = new ApiError('store_unavailable', 'The store is away.');
afterEach(() => void vi.useRealTimers());

test('requests of one turn are a batch per workspace, and a full one does not wait for the end of the turn', async () => {
  const { join, counts } = open();
  join('a');
  join('b');
  join('a');
  expect(counts()).toBe('');
  await turn();
  expect(counts()).toBe('a2 b1');
  for (let index = 0; index < 4; index++) join('b');
  expect(counts()).toBe('a2 b1 b3');
  await turn();
  expect(counts()).toBe('a2 b1 b3 b1');
});

test('a lone request is sent before the end of the turn, unless batches have several', async () => {
  const { join, counts, sent } = open();
  join('a');
  await Promise.resolve();
  expect(counts()).toBe('a1');
  // Another one is in flight.
  join('b');
  await Promise.resolve();
  expect(counts()).toBe('a1');
  await turn();
  expect(counts()).toBe('a1 b1');
  for (let times = 0; times < 8; times++) {
    for (const { answer } of sent) answer();
    await turn();
    for (let index = 0; index < 3; index++) join('a');
    await turn();
  }
  for (const { answer } of sent) answer();
  await turn();
  const before = sent.length;
  join('a');
  await Promise.resolve();
  expect(sent.length).toBe(before);
  await turn();
  expect(sent.length).toBe(before + 1);
});

test('batches beyond the maximum of work that a workspace has at Redis wait for a reply, those of others do not', async () => {
  const { queues, join, counts, sent } = open();
  for (let index = 0; index < 11; index++) join('a');
  await turn();
  expect(counts()).toBe('a3 a3');
  join('b');
  join('a');
  await turn();
  expect(counts()).toBe('a3 a3 b1');
  expect(queues.inFlight).toBe(13);
  sent[1]!.answer();
  await turn();
  expect(counts()).toBe('a3 a3 b1 a3');
  sent[0]!.answer();
  sent[3]!.answer();
  await turn();
  expect(counts()).toBe('a3 a3 b1 a3 a3');
  for (const { answer } of sent) answer();
  await turn();
  expect(queues.inFlight).toBe(0);
});

test('what a call leaves undecided is sent before what waits, and no request joins it', async () => {
  const { queues, join, counts, sent } = open();
  for (let index = 0; index < 3; index++) join('a');
  const [first] = [join('a', 50)];
  await turn();
  expect(counts()).toBe('a3 a1');
  sent[0]!.answer(2);
  await turn();
  expect(counts()).toBe('a3 a1');
  const later = join('a');
  expect(later.count).toBe(1);
  await turn();
  sent[1]!.answer();
  await turn();
  expect(counts()).toBe('a3 a1 a3 a1');
  expect(sent.map(({ batch }) => batch)).toEqual([sent[2]!.batch, first, sent[0]!.batch, later]);
  for (const { answer } of sent) answer();
  await turn();
  expect(queues.inFlight).toBe(0);
});

test('an expensive request counts with its weight', async () => {
  const { join, counts } = open();
  join('a', 50);
  join('a');
  await turn();
  expect(counts()).toBe('a1');
});

test('when Redis is unavailable waiting requests fail immediately; after any other error they continue', async () => {
  const { queues, join, sent, counts } = open();
  const batches = Array.from({ length: 9 }, () => join('a'));
  const other = join('b');
  await turn();
  expect(counts()).toBe('a3 a3 b1');
  sent[0]!.fail(new Error('a bug'));
  await turn();
  expect(batches[0]!.failed).toMatchObject({ message: 'a bug' });
  expect(counts()).toBe('a3 a3 b1 a3');
  for (let index = 0; index < 4; index++) batches.push(join('a'));
  await turn();
  expect(counts()).toBe('a3 a3 b1 a3');
  sent[1]!.fail(unavailable);
  await turn();
  expect([batches[3], batches[12]].map((batch) => batch!.failed)).toEqual([unavailable, unavailable]);
  expect([batches[6], other].map((batch) => batch!.failed)).toEqual([undefined, undefined]);
  expect(queues.inFlight).toBe(4);
  join('a');
  await turn();
  expect(counts()).toBe('a3 a3 b1 a3 a1');
});

test('a request that waited for a command timeout is refused, not sent', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { queues, join, sent, counts } = open();
  const batches = Array.from({ length: 7 }, () => join('a'));
  await turn();
  vi.advanceTimersByTime(999);
  const later = Array.from({ length: 3 }, () => join('a')).at(-1)!;
  await turn();
  vi.advanceTimersByTime(1);
  sent[0]!.answer();
  await turn();
  expect(batches[6]!.failed).toMatchObject({ code: 'store_unavailable' });
  expect(later.failed).toBeUndefined();
  expect(counts()).toBe('a3 a3 a1');
  expect(queues.inFlight).toBe(4);
});

test('requests beyond IN_FLIGHT_MAX are refused at once, and one workspace cannot take all places', async () => {
  const { queues, join, sent, overloaded } = open({ inFlightMax: 90 });
  const joins = (workspaceId: string) => {
    for (let taken = 0; ; taken++) {
      try {
        join(workspaceId);
      } catch (error) {
        expect(error).toMatchObject({ code: 'store_unavailable' });
        return taken;
      }
    }
  };
  expect(joins('a')).toBe(80);
  expect(joins('b')).toBe(9);
  expect(overloaded).toHaveBeenCalledTimes(2);
  for (let round = 0; round < 40; round++) {
    await turn();
    for (const { answer } of sent) answer();
  }
  await turn();
  expect(queues.inFlight).toBe(0);
  expect(joins('c')).toBe(80);
});

test('the last places are for workspaces with nothing in progress', () => {
  const { join } = open({ inFlightMax: 1 });
  join('a');
  expect(() => join('b')).toThrow('overloaded');
});

describe('unknown callers', () => {
  const names = (count: number) => Array.from({ length: count }, (_, index) => `n${index} `);

  test('that each name another workspace have a few batches at Redis, in order; a known caller waits for none', async () => {
    const { queues, join, joinAsUnknown, sent, counts } = open({ unknownAtOnce: 2 });
    for (const name of names(5)) joinAsUnknown(name);
    await turn();
    expect(counts()).toBe('n0 1 n1 1');
    join('a');
    await turn();
    expect(counts()).toBe('n0 1 n1 1 a1');
    sent[1]!.answer();
    await turn();
    expect(counts()).toBe('n0 1 n1 1 a1 n2 1');
    sent[0]!.answer();
    sent[3]!.answer();
    await turn();
    expect(counts()).toBe('n0 1 n1 1 a1 n2 1 n3 1 n4 1');
    for (const { answer } of sent) answer();
    await turn();
    expect(queues.inFlight).toBe(0);
  });

  test('take no places of known callers', () => {
    const { join, joinAsUnknown } = open({ inFlightMax: 90 });
    for (const name of names(90)) joinAsUnknown(name);
    expect(() => joinAsUnknown('one more')).toThrow('overloaded');
    for (let count = 0; count < 80; count++) join('a');
  });

  test('have batches of their own, also in the workspace of a known caller', async () => {
    const { join, joinAsUnknown, counts } = open({ unknownAtOnce: 1 });
    joinAsUnknown('b');
    joinAsUnknown('a');
    for (let count = 0; count < 4; count++) join('a');
    await turn();
    expect(counts()).toBe('a3 b1 a1');
  });

  test('of one workspace share batches, and those of another workspace are sent in between', async () => {
    const { joinAsUnknown, sent, counts } = open({ unknownAtOnce: 1 });
    for (let count = 0; count < 7; count++) joinAsUnknown('a');
    joinAsUnknown('b');
    await turn();
    expect(counts()).toBe('a3');
    for (const expected of ['a3 a3', 'a3 a3 b1', 'a3 a3 b1 a1']) {
      sent.at(-1)!.answer();
      await turn();
      expect(counts()).toBe(expected);
    }
  });

  test('all fail at once when Redis is unavailable, and later ones are sent again', async () => {
    const { queues, joinAsUnknown, sent, counts } = open({ unknownAtOnce: 2 });
    const batches = names(5).map((name) => joinAsUnknown(name));
    await turn();
    sent[0]!.fail(unavailable);
    await turn();
    expect(batches.map(({ failed }) => failed)).toEqual([unavailable, undefined, ...Array(3).fill(unavailable)]);
    joinAsUnknown('c');
    await turn();
    expect(counts()).toBe('n0 1 n1 1 c1');
    for (const { answer } of sent) answer();
    await turn();
    expect(queues.inFlight).toBe(0);
  });
});

describe('batches that may be sent in the same turn', () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  /** The batches of each call. */
  const callsOf = (sent: readonly Sent[]) =>
    [...new Set(sent.map(({ call }) => call))].map((call) =>
      sent.flatMap((each) => (each.call === call ? `${each.workspaceId}${each.batch.count}` : [])).join(' '),
    );

  test('share calls up to the weight of a full one; in a Cluster each has its own', async () => {
    for (const [sharesCalls, expected] of [
      [true, ['a1 b1 c1', 'd1 e1']],
      [false, ['a1', 'b1', 'c1', 'd1', 'e1']],
    ] as const) {
      const { queues, join, sent } = open({ sharesCalls });
      for (const name of names) join(name);
      await turn();
      expect(callsOf(sent)).toEqual(expected);
      for (const { answer } of sent) answer();
      await turn();
      expect(queues.inFlight).toBe(0);
    }
  });

  test('also of unknown callers, after a reply', async () => {
    const { queues, joinAsUnknown, sent } = open({ sharesCalls: true, unknownAtOnce: 2 });
    for (const name of names) joinAsUnknown(name);
    for (let answered = 0; answered < names.length; ) {
      await turn();
      while (answered < sent.length) sent[answered++]!.answer();
    }
    expect(callsOf(sent)).toEqual(['a1 b1', 'c1 d1', 'e1']);
    await turn();
    expect(queues.inFlight).toBe(0);
  });

  test('a batch that a call did not begin is first in the next one, and then one that has more', async () => {
    const { queues, join, sent } = open({ sharesCalls: true });
    join('a');
    join('a');
    join('b');
    await turn();
    const [a, b] = sent as [Sent, Sent];
    a.answer(1);
    b.answer(0);
    await turn();
    expect(callsOf(sent)).toEqual(['a2 b1', 'b1 a2']);
    expect(sent.slice(2).map(({ batch }) => batch)).toEqual([b.batch, a.batch]);
    for (const { answer } of sent.slice(2)) answer();
    await turn();
    expect(queues.inFlight).toBe(0);
  });

  test('one that fails fails alone; a call that fails fails all, and what waits in their workspaces', async () => {
    const { queues, join, sent } = open({ sharesCalls: true });
    const [a, b] = [join('a'), join('b')];
    await turn();
    sent[0]!.failAlone(new Error('a bug'));
    sent[1]!.answer();
    await turn();
    expect([a.failed, b.failed]).toEqual([new Error('a bug'), undefined]);
    const others = names.slice(0, 3).map((name) => join(name));
    await turn();
    const waiting = Array.from({ length: 7 }, () => join('a')).at(-1)!;
    await turn();
    sent[2]!.fail(unavailable);
    await turn();
    expect([...others, waiting].map(({ failed }) => failed)).toEqual(Array(4).fill(unavailable));
    for (const { answer } of sent.slice(2)) answer();
    await turn();
    expect(queues.inFlight).toBe(0);
  });

  test('are not delayed by a workspace whose requests are expensive: it has calls of its own', async () => {
    const { join, sent } = open({ sharesCalls: true });
    for (let index = 0; index < 3; index++) join('a');
    for (let index = 0; index < 3; index++) join('a');
    await turn();
    sent[0]!.answer(3, 1000);
    await turn();
    sent.length = 0;
    for (const name of names.slice(0, 3)) join(name);
    await turn();
    expect(callsOf(sent)).toEqual(['a1', 'b1 c1']);
  });
});
