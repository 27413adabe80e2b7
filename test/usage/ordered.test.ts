import { expect, test } from 'vitest';
import { Ordered } from '../../src/usage/ordered.ts';
import { random, seed } from '../support/random.ts';

const sorted = (map: ReadonlyMap<string, number>) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
const allOf = (names: Ordered<number>, after?: string) => [...names.after(after)].flat();

test(`names in any order are found, listed and removed from the end (seed ${seed})`, () => {
  const pick = random(seed);
  const names = new Ordered<number>();
  const model = new Map<string, number>();
  const nameOf = [
    (number: number) => String(number),
    (number: number) => String(number).padStart(7, '0'),
    (number: number) => `${number % 3 ? 'a' : ''}${'x'.repeat(number % 40)}${number}`,
  ][pick(0, 2)]!;
  for (let step = 0; step < 20; step++) {
    const from = pick(1000, 4000);
    for (let count = pick(0, 900); count > 0; count--) {
      // Ascending, descending and random ones.
      const name = nameOf([from + count, from - count, pick(0, 9000)][step % 3]!);
      const value = model.get(name) ?? model.size;
      if (names.getOrAdd(name, () => value) !== value) throw new Error(`${name} has another value`);
      model.set(name, value);
    }
    if (model.size > 1 && pick(0, 2) === 0) {
      const removed = names.removeLast();
      const last = sorted(model).slice(model.size - removed.size);
      expect(sorted(removed)).toEqual(last);
      for (const [name] of last) model.delete(name);
      expect([removed.size > 0, model.size > 0]).toEqual([true, true]);
    }
    const expected = sorted(model).map(([name]) => name);
    expect(names.size).toBe(expected.length);
    expect(names.last()).toBe(expected.at(-1));
    expect(allOf(names)).toEqual(expected);
    const place = pick(0, 1) === 0 ? nameOf(pick(0, 9000)) : (expected[pick(0, expected.length)] ?? '');
    expect(allOf(names, place)).toEqual(expected.filter((name) => name > place));
    expect(names.get(place)).toBe(model.get(place));
  }
});

test('names that come in order fill parts', () => {
  const names = new Ordered<number>();
  for (let number = 0; number < 2000; number++) names.getOrAdd(String(number).padStart(4, '0'), () => 1);
  expect([...names.after(undefined)].map(({ length }) => length)).toEqual([512, 512, 512, 464]);
  // A name between them divides one.
  names.getOrAdd('0001.', () => 1);
  expect([...names.after(undefined)].map(({ length }) => length)).toEqual([257, 256, 512, 512, 464]);
});

test('a part has some hundred names, whatever their order', () => {
  const names = new Ordered<number>();
  for (let number = 0; number < 5000; number++)
    names.getOrAdd(String((number * 7919) % 5000).padStart(4, '0'), () => 1);
  const parts = [...names.after(undefined)].map(({ length }) => length);
  expect(Math.max(...parts)).toBeLessThanOrEqual(512);
  expect(Math.min(...parts)).toBeGreaterThanOrEqual(256);
});
