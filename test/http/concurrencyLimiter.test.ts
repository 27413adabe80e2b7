// src/http/concurrencyLimiter.ts: which requests run, wait, and are rejected.

import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { ConcurrencyLimiter, serialize } from '../../src/http/concurrencyLimiter.ts';

/** Work that runs until `end` is called. */
function work() {
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { end, run: () => ended };
}

const busy = expect.objectContaining({ code: 'too_many_requests' });

test('a few requests of a workspace run, more wait in order, and other workspaces are not affected', async () => {
  const limiter = new ConcurrencyLimiter({ atOnce: 2, max: 100, waitMs: 10_000 });
  const began: string[] = [];
  const works = Array.from({ length: 5 }, work);
  const done = works.map(({ run }, index) =>
    limiter.run('ws_1', () => {
      began.push(`${index}`);
      return run();
    }),
  );
  await limiter.run('ws_2', async () => void began.push('other'));
  expect(began).toEqual(['0', '1', 'other']);
  works[1]!.end();
  await done[1];
  expect(began).toEqual(['0', '1', 'other', '2']);
  for (const { end } of works) end();
  await Promise.all(done);
  expect(began).toEqual(['0', '1', 'other', '2', '3', '4']);
});

test('a request that waits too long is rejected, and leaves the queue', async () => {
  const limiter = new ConcurrencyLimiter({ atOnce: 1, max: 100, waitMs: 30 });
  const first = work();
  const working = limiter.run('ws_1', first.run);
  await expect(limiter.run('ws_1', () => Promise.reject(new Error('never begins')))).rejects.toEqual(busy);
  const next = limiter.run('ws_1', async () => 'next');
  first.end();
  await working;
  expect(await next).toBe('next');
});

test('a request that fails frees its place for the next one', async () => {
  const limiter = new ConcurrencyLimiter({ atOnce: 1, max: 100, waitMs: 10_000 });
  const failing = limiter.run('ws_1', async () => {
    await delay(1);
    throw new Error('failed');
  });
  const next = limiter.run('ws_1', async () => 'next');
  await expect(failing).rejects.toThrow('failed');
  expect(await next).toBe('next');
  expect(await limiter.run('ws_1', async () => 'again')).toBe('again');
});

/** Starts requests that do not end, until one is rejected. Returns the number of accepted ones. */
async function fill(limiter: ConcurrencyLimiter, workspaceId: string, ends: (() => void)[]): Promise<number> {
  for (let taken = 0; taken < 1000; taken++) {
    const { run, end } = work();
    ends.push(end);
    const outcome = limiter.run(workspaceId, run).then(
      () => 'ended',
      (error) => error.code,
    );
    if ((await Promise.race([outcome, delay(0, 'under way')])) === 'too_many_requests') return taken;
  }
  throw new Error('never refused');
}

test('one workspace cannot take all places, and gets them back when its requests have ended', async () => {
  const limiter = new ConcurrencyLimiter({ atOnce: 2, max: 90, waitMs: 10_000 });
  const ends: (() => void)[] = [];
  expect(await fill(limiter, 'ws_1', ends)).toBe(80);
  expect(await limiter.run('ws_2', async () => 'other')).toBe('other');
  expect(await fill(limiter, 'ws_2', ends)).toBe(9);
  for (const end of ends) end();
  await delay(1);
  expect(await fill(limiter, 'ws_1', ends)).toBe(80);
  for (const end of ends) end();
});

/** Sends requests that take some milliseconds, all at once. Returns their kinds in the order in which they began. */
async function orderOf(...requests: (readonly [kind: string, ms: number])[]): Promise<string> {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const limiter = new ConcurrencyLimiter({ atOnce: 1, max: 100, waitMs: 1_000_000 });
  const began: string[] = [];
  for (const [kind, ms] of requests) {
    const take = () => {
      began.push(kind);
      return new Promise<void>((resolve) => setTimeout(resolve, ms));
    };
    void limiter.run('ws_1', take, kind);
  }
  await vi.advanceTimersByTimeAsync(500_000);
  return began.join(' ');
}
const times = <Item>(count: number, item: Item) => Array<Item>(count).fill(item);

test('the kind that took least time is next, and each kind gets its turn', async () => {
  const order = await orderOf(...times(3, ['long', 50] as const), ...times(6, ['short', 20] as const));
  expect(order).toBe('long short short short long short short long short');
});

test('a kind that was idle makes up for a second at most', async () => {
  const order = await orderOf(...times(2, ['busy', 50_000] as const), ...times(3, ['idle', 600] as const));
  expect(order).toBe('busy idle idle busy idle');
});

test('kinds share the places of their workspace', async () => {
  const limiter = new ConcurrencyLimiter({ atOnce: 1, max: 9, waitMs: 10_000 });
  const long = work();
  const floods = Array.from({ length: 8 }, (_, index) => limiter.run('ws_1', long.run, `kind ${index}`));
  await expect(limiter.run('ws_1', async () => 'no room', 'another')).rejects.toEqual(busy);
  expect(await limiter.run('ws_2', async () => 'other', 'another')).toBe('other');
  long.end();
  await Promise.all(floods);
  expect(await limiter.run('ws_1', async () => 'room', 'another')).toBe('room');
});

test('requests that were rejected, failed or timed out free their places', async () => {
  const limiter = new ConcurrencyLimiter({ atOnce: 1, max: 1, waitMs: 1 });
  for (let round = 0; round < 3; round++) {
    const first = work();
    const running = limiter.run('ws_1', first.run);
    await expect(limiter.run('ws_2', async () => 'no room')).rejects.toEqual(busy);
    first.end();
    await running;
    await expect(limiter.run('ws_1', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
  }
  const patient = new ConcurrencyLimiter({ atOnce: 1, max: 2, waitMs: 1 });
  const first = work();
  const running = patient.run('ws_1', first.run);
  for (let round = 0; round < 3; round++) {
    await expect(patient.run('ws_1', async () => 'not run')).rejects.toEqual(busy);
  }
  first.end();
  await running;
});

test('serialize lets the event loop do other work between two functions', async () => {
  const nextTurn = serialize();
  const order: string[] = [];
  const large = [1, 2, 3].map((index) => nextTurn().then(() => order.push(`large ${index}`)));
  const goOn = () => {
    order.push('other');
    if (order.length < 10) setImmediate(goOn);
  };
  setImmediate(goOn);
  await Promise.all(large);
  expect(order.join(' ')).toMatch(/large 1 (other )+large 2 (other )+large 3/);
});

test('with a rest, the place of a long request is free only after twice its time, and that of a short one at once', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const limiter = new ConcurrencyLimiter({ atOnce: 1, max: 100, waitMs: 10_000, restMsMax: 50 });
  const began: string[] = [];
  const takes = (name: string, ms: number) =>
    limiter.run('ws_1', async () => {
      began.push(name);
      if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    });
  void takes('short', 0);
  await vi.advanceTimersByTimeAsync(0);
  void takes('long', 10);
  void takes('longer', 40);
  void takes('last', 0);
  expect(began).toEqual(['short', 'long']);
  await vi.advanceTimersByTimeAsync(29);
  expect(began).toEqual(['short', 'long']);
  await vi.advanceTimersByTimeAsync(1);
  expect(began).toEqual(['short', 'long', 'longer']);
  await vi.advanceTimersByTimeAsync(89);
  expect(began.at(-1)).toBe('longer');
  await vi.advanceTimersByTimeAsync(1);
  expect(began.at(-1)).toBe('last');
});
