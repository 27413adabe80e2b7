// http/turns.ts: who works, who waits, and who is refused.

import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createTurns } from '../../src/http/turns.ts';

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
  const turns = createTurns({ atOnce: 2, max: 100, waitMs: 10_000 });
  const began: string[] = [];
  const works = Array.from({ length: 5 }, work);
  const done = works.map(({ run }, index) =>
    turns.take('ws_1', () => {
      began.push(`${index}`);
      return run();
    }),
  );
  await turns.take('ws_2', async () => void began.push('other'));
  expect(began).toEqual(['0', '1', 'other']);
  works[1]!.end();
  await done[1];
  expect(began).toEqual(['0', '1', 'other', '2']);
  for (const { end } of works) end();
  await Promise.all(done);
  expect(began).toEqual(['0', '1', 'other', '2', '3', '4']);
});

test('who waits too long is refused, and its place in the row is gone', async () => {
  const turns = createTurns({ atOnce: 1, max: 100, waitMs: 30 });
  const first = work();
  const working = turns.take('ws_1', first.run);
  await expect(turns.take('ws_1', () => Promise.reject(new Error('never begins')))).rejects.toEqual(busy);
  const next = turns.take('ws_1', async () => 'next');
  first.end();
  await working;
  expect(await next).toBe('next');
});

test('work that fails hands its turn on', async () => {
  const turns = createTurns({ atOnce: 1, max: 100, waitMs: 10_000 });
  const failing = turns.take('ws_1', async () => {
    await delay(1);
    throw new Error('failed');
  });
  const next = turns.take('ws_1', async () => 'next');
  await expect(failing).rejects.toThrow('failed');
  expect(await next).toBe('next');
  expect(await turns.take('ws_1', async () => 'again')).toBe('again');
});

test('more than may be under way are refused at once, and no longer when others have ended', async () => {
  const turns = createTurns({ atOnce: 1, max: 2, waitMs: 10_000 });
  const works = [work(), work()];
  const done = works.map(({ run }) => turns.count(run));
  await expect(turns.count(async () => 'third')).rejects.toEqual(busy);
  works[0]!.end();
  await done[0];
  expect(await turns.count(async () => 'third')).toBe('third');
  works[1]!.end();
  await done[1];
});
