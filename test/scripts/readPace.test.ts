import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ReadPace, type Timed } from '../../src/scripts/readPace.ts';

let pace: ReadPace;
let running: number;
let most: number;
let started: string[];
let begunAt: number;
beforeEach(() => {
  vi.useFakeTimers();
  pace = new ReadPace();
  running = 0;
  most = 0;
  started = [];
  begunAt = Date.now();
});
afterEach(() => void vi.useRealTimers());

/** A script that takes Redis this long, and whose reply is its number. */
const read =
  (ms: number, number = 0, name = 'script') =>
  async (): Promise<Timed> => {
    started.push(`${name} ${number}`);
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, ms));
    running--;
    return [ms * 1000, number];
  };

test('of the long scripts of a workspace one runs at a time, and waits for as long as the last one took', async () => {
  await runOnce(4);
  const replies = Promise.all([1, 2, 3].map((number) => pace.run('ws', 'search', read(4, number))));
  // Four milliseconds of pause before each of them, and four that it runs.
  await vi.advanceTimersByTimeAsync(8);
  expect(started).toEqual(['script 0', 'script 1']);
  await vi.advanceTimersByTimeAsync(8);
  expect(started).toEqual(['script 0', 'script 1', 'script 2']);
  await vi.advanceTimersByTimeAsync(20);
  expect([await replies, most]).toEqual([[1, 2, 3], 1]);
});

async function runOnce(ms: number) {
  const first = pace.run('ws', 'search', read(ms));
  await vi.advanceTimersByTimeAsync(ms);
  await first;
}

test('short scripts run at once, and so do other scripts and other workspaces beside long ones', async () => {
  await runOnce(4);
  void pace.run('ws', 'search', read(4, 1));
  const others = [pace.run('ws', 'read', read(0, 2)), pace.run('sw', 'search', read(0, 3))];
  const short = [4, 5].map((number) => pace.run('short', 'read', read(0.1, number)));
  await vi.advanceTimersByTimeAsync(1);
  expect(await Promise.all([...others, ...short])).toEqual([2, 3, 4, 5]);
  expect(started).not.toContain('script 1');
  await vi.advanceTimersByTimeAsync(20);
});

test('pauses that are shorter than a timer are made up for by the next ones', async () => {
  const short = async (): Promise<Timed> => {
    started.push('short');
    return [600, 0];
  };
  await pace.run('ws', 'search', short);
  const reads = Promise.all(Array.from({ length: 10 }, () => pace.run('ws', 'search', short)));
  await vi.advanceTimersByTimeAsync(3);
  // Half of the time: 0.6 of each 1.2 milliseconds.
  expect(started.length).toBeGreaterThan(4);
  expect(started.length).toBeLessThan(9);
  await vi.advanceTimersByTimeAsync(20);
  expect(await reads).toHaveLength(10);
});

test('short ones that are read one after the other pause, too', async () => {
  const short = async (): Promise<Timed> => {
    started.push('short');
    return [600, 0];
  };
  for (let reads = 1; reads <= 10; reads++) {
    // What is due at once has run before the next one is asked for.
    await vi.advanceTimersByTimeAsync(0);
    const reading = pace.run('ws', 'search', short);
    while (started.length < reads) await vi.advanceTimersByTimeAsync(1);
    await reading;
  }
  // They took 6 milliseconds of Redis's time. It has had as much without them, but for the last pause.
  expect(Date.now() - begunAt).toBeGreaterThanOrEqual(5);
});

test('a script that fails lets the next one run', async () => {
  await runOnce(4);
  const failed = pace
    .run('ws', 'search', async () => Promise.reject(new Error('lost')))
    .catch(({ message }) => message);
  const next = pace.run('ws', 'search', read(1, 1));
  await vi.advanceTimersByTimeAsync(10);
  expect(await Promise.all([failed, next])).toEqual(['lost', 1]);
});

test('a clock that is set does not stop reads, and after a pause the first one runs at once', async () => {
  await pace.run('ws', 'search', async () => [3_600_000_000, 0]);
  await pace.run('sw', 'search', async () => [-3_600_000_000, 0]);
  const next = pace.run('ws', 'search', read(1, 1));
  await vi.advanceTimersByTimeAsync(1001);
  expect(await next).toBe(1);
  await vi.advanceTimersByTimeAsync(10);
  void pace.run('ws', 'search', read(1, 2));
  expect(started.at(-1)).toBe('script 2');
  await vi.advanceTimersByTimeAsync(10);
});
