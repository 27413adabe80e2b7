// src/http/turns.ts: how much work runs in one turn of the event loop, and in which order the rest does.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { requestUnits, Turns } from '../../src/http/turns.ts';

/** The requests that a turn begins at once. */
const requestsMax = 512;

/** Begins requests until the turn has no room. Returns how many began. */
function fill(turns: Turns): number {
  for (let count = 0; count < 10_000; count++) if (!turns.begin(requestUnits)) return count;
  throw new Error('A turn without end.');
}

test('a turn begins 512 requests, and so does the next one', async () => {
  const turns = new Turns();
  for (let turn = 1; turn <= 3; turn++) {
    expect(fill(turns)).toBe(requestsMax);
    await nextTurn();
  }
});

test('work of other units counts as so many requests, also when it was done unasked', async () => {
  const turns = new Turns();
  expect(turns.begin(100 * requestUnits)).toBe(true);
  turns.spend(300 * requestUnits);
  expect(fill(turns)).toBe(112);
});

test('what waits runs at the ends of turns, 512 requests each, and none overtakes it', async () => {
  const turns = new Turns();
  const ran: number[] = [];
  for (let index = 0; index < 2 * requestsMax + 1; index++) turns.defer('a', requestUnits, () => ran.push(index));
  expect(ran).toEqual([]);
  for (const count of [requestsMax, 2 * requestsMax]) {
    expect(turns.begin(requestUnits)).toBe(false);
    await nextTurn();
    expect(ran.length).toBe(count);
  }
  await nextTurn();
  expect(ran).toEqual(Array.from({ length: 2 * requestsMax + 1 }, (_, index) => index));
  // The last turn has room for all but one.
  expect(fill(turns)).toBe(requestsMax - 1);
});

test('callers take turns, however much one of them has', async () => {
  const turns = new Turns();
  const ran: string[] = [];
  const defer = (caller: string, name = caller) => turns.defer(caller, requestUnits, () => void ran.push(name));
  for (let index = 0; index < 3000; index++) defer('many');
  defer('few');
  await nextTurn();
  expect(ran.slice(0, 3)).toEqual(['many', 'few', 'many']);
  // Also those that come later, and more of them than a turn has room for.
  for (let index = 0; index < 2000; index++) defer(`caller ${index}`);
  for (let turn = 0; turn < 6; turn++) await nextTurn();
  expect(new Set(ran).size).toBe(2002);
});

test('canceled work does not run and takes no room', async () => {
  const turns = new Turns();
  const ran: number[] = [];
  const tasks = Array.from({ length: 5000 }, (_, index) =>
    turns.defer(`${index % 3}`, requestUnits, () => void ran.push(index)),
  );
  for (const task of tasks.slice(0, -1)) task.run = undefined;
  await nextTurn();
  expect(ran).toEqual([4999]);
  expect(fill(turns)).toBe(requestsMax - 1);
});

test('work that waits may make more work wait, for a later turn', async () => {
  const turns = new Turns();
  let ran = 0;
  const again = () => {
    ran++;
    turns.defer('a', 512 * requestUnits, again);
  };
  turns.defer('a', 512 * requestUnits, again);
  for (let turn = 1; turn <= 3; turn++) {
    await nextTurn();
    expect(ran).toBe(turn);
  }
});

test('a server with few requests in a turn rarely awaits its end', () => {
  const immediate = vi.spyOn(globalThis, 'setImmediate');
  const turns = new Turns();
  for (let request = 1; request < 256; request++) turns.begin(requestUnits);
  expect(immediate).toHaveBeenCalledTimes(0);
  turns.begin(requestUnits);
  turns.begin(requestUnits);
  expect(immediate).toHaveBeenCalledTimes(1);
  immediate.mockRestore();
});
