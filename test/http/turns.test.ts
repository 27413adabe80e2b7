// http/turns.ts: who works, who waits, and who is refused.

import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createTurns, oneByOne } from '../../src/http/turns.ts';

/** Work that goes on until it is told to end. */
function work() {
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { end, run: () => ended };
}

const busy = expect.objectContaining({ code: 'store_unavailable' });

test('a few of a workspace work, more wait in order, and other workspaces do not notice', async () => {
  const take = createTurns({ atOnce: 2, max: 100, waitMs: 10_000 });
  const began: string[] = [];
  const works = Array.from({ length: 5 }, work);
  const done = works.map(({ run }, index) =>
    take('ws_1', () => {
      began.push(`${index}`);
      return run();
    }),
  );
  await take('ws_2', async () => void began.push('other'));
  expect(began).toEqual(['0', '1', 'other']);
  works[1]!.end();
  await done[1];
  expect(began).toEqual(['0', '1', 'other', '2']);
  for (const { end } of works) end();
  await Promise.all(done);
  expect(began).toEqual(['0', '1', 'other', '2', '3', '4']);
});

test('who waits too long is refused, and its place in the row is gone', async () => {
  const take = createTurns({ atOnce: 1, max: 100, waitMs: 30 });
  const first = work();
  const working = take('ws_1', first.run);
  await expect(take('ws_1', () => Promise.reject(new Error('never begins')))).rejects.toEqual(busy);
  const next = take('ws_1', async () => 'next');
  first.end();
  await working;
  expect(await next).toBe('next');
});

test('work that fails hands its turn on', async () => {
  const take = createTurns({ atOnce: 1, max: 100, waitMs: 10_000 });
  const failing = take('ws_1', async () => {
    await delay(1);
    throw new Error('failed');
  });
  const next = take('ws_1', async () => 'next');
  await expect(failing).rejects.toThrow('failed');
  expect(await next).toBe('next');
  expect(await take('ws_1', async () => 'again')).toBe('again');
});

/** Starts requests that never end by themselves until one is refused; returns how many were not. */
async function fill(take: ReturnType<typeof createTurns>, workspaceId: string, ends: (() => void)[]): Promise<number> {
  for (let taken = 0; taken < 1000; taken++) {
    const { run, end } = work();
    ends.push(end);
    const outcome = take(workspaceId, run).then(
      () => 'ended',
      (error) => error.code,
    );
    if ((await Promise.race([outcome, delay(0, 'under way')])) === 'store_unavailable') return taken;
  }
  throw new Error('never refused');
}

test('one workspace alone does not take all of the room, and has it again when its requests have ended', async () => {
  const take = createTurns({ atOnce: 2, max: 90, waitMs: 10_000 });
  const ends: (() => void)[] = [];
  expect(await fill(take, 'ws_1', ends)).toBe(80);
  expect(await take('ws_2', async () => 'other')).toBe('other');
  expect(await fill(take, 'ws_2', ends)).toBe(9);
  for (const end of ends) end();
  await delay(1);
  expect(await fill(take, 'ws_1', ends)).toBe(80);
  for (const end of ends) end();
});

test('of a workspace so many wait and no more, whatever room there is', async () => {
  const take = createTurns({ atOnce: 2, waitingMax: 3, max: 1000, waitMs: 10_000 });
  const ends: (() => void)[] = [];
  expect(await fill(take, 'ws_1', ends)).toBe(5);
  expect(await fill(take, 'ws_2', ends)).toBe(5);
  for (const end of ends) end();
});

test('what was refused, failed or waited in vain leaves its room to others', async () => {
  const take = createTurns({ atOnce: 1, max: 1, waitMs: 1 });
  for (let round = 0; round < 3; round++) {
    const first = work();
    const running = take('ws_1', first.run);
    await expect(take('ws_2', async () => 'no room')).rejects.toEqual(busy);
    first.end();
    await running;
    await expect(take('ws_1', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
  }
  const patient = createTurns({ atOnce: 1, max: 2, waitMs: 1 });
  const first = work();
  const running = patient('ws_1', first.run);
  for (let round = 0; round < 3; round++) {
    await expect(patient('ws_1', async () => 'in vain')).rejects.toEqual(busy);
  }
  first.end();
  await running;
});

test('one by one: between any two of these other work of the event loop goes', async () => {
  const turn = oneByOne();
  const order: string[] = [];
  const large = [1, 2, 3].map((index) => turn().then(() => order.push(`large ${index}`)));
  const goOn = () => {
    order.push('other');
    if (order.length < 10) setImmediate(goOn);
  };
  setImmediate(goOn);
  await Promise.all(large);
  expect(order.join(' ')).toMatch(/large 1 (other )+large 2 (other )+large 3/);
});
